"""The interface to fairseq: models and architectures. Importing this package registers them."""

import fairseq.models  # first, because the start-up hook imports this package's modules when fairseq is imported

from ..options import architectures
from . import roberta, transformer, transformer_lm

architectures.update_configs()
