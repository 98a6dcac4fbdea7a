"""Tasks and criterions that fairseq lacks. Importing this package registers them."""

from . import masked_lm, masking, sentence_order, sentence_prediction, squad

__all__ = ["masked_lm", "masking", "sentence_order", "sentence_prediction", "squad"]
