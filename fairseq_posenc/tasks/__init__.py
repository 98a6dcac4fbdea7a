"""Tasks and criterions that fairseq lacks. Importing this package registers them."""

from . import masked_lm, masked_lm_sentence_order, masked_lm_static, sentence_prediction, squad

__all__ = ["masked_lm", "masked_lm_sentence_order", "masked_lm_static", "sentence_prediction", "squad"]
