"""Tasks and criterions that fairseq lacks. Importing this package registers them."""

from . import finetuning, masked_lm, masked_lm_sentence_order, masked_lm_static

__all__ = ["finetuning", "masked_lm", "masked_lm_sentence_order", "masked_lm_static"]
