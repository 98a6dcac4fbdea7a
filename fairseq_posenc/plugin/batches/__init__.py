"""Tasks and criterions that fairseq lacks, and batches that grow. Importing this package registers them."""

from . import batch_warmup, masked_lm, masked_lm_sentence_order, masked_lm_static, sentence_prediction, squad

__all__ = ["batch_warmup", "masked_lm", "masked_lm_sentence_order", "masked_lm_static", "sentence_prediction", "squad"]
