"""Tasks and criterions that fairseq lacks. Importing this package registers them."""

from . import masked_lm, packing, sentence_order, squad

__all__ = ["masked_lm", "packing", "sentence_order", "squad"]
