"""Tasks and criterions that fairseq lacks, and batches that grow. Importing this package registers them."""

import fairseq.models  # first, because the start-up hook imports this package's modules when fairseq is imported

from . import batch_warmup, masked_lm, masked_lm_sentence_order, masked_lm_static, sentence_prediction, squad
