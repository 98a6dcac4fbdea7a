"""ELECTRA (Clark et al. 2020), of which the encoder is imported: its heads have another form than fairseq's."""

from .base import PROJECTION, register
from .bert import BertLike, bert_encoder


@register
class Electra(BertLike):
    """ELECTRA's encoder, the discriminator's or the generator's."""

    name, prefix, heads = "electra", "Electra", ()
    keys = (*bert_encoder("electra"), (PROJECTION, "electra.embeddings_project."))
