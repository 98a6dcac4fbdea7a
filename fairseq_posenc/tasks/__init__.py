"""Tasks and criterions that fairseq lacks. Importing this package registers them."""

from . import finetuning, masked_lm

__all__ = ["finetuning", "masked_lm"]
