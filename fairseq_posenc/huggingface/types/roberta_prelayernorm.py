"""RoBERTa with LayerNorm before each block, as fairseq trains it with ``--encoder-normalize-before``."""

from .base import FINAL_NORM, ROBERTA_HEADS, RobertaHeads, register
from .bert import BertLike, bert_encoder

NORMS = {"self_attn_layer_norm": "attention.LayerNorm", "final_layer_norm": "intermediate.LayerNorm"}


@register
class RobertaPreLayerNorm(RobertaHeads, BertLike):
    """RoBERTa with LayerNorm before each block and after the last one."""

    name, prefix, title = "roberta-prelayernorm", "RobertaPreLayerNorm", "RoBERTa-PreLayerNorm"
    keys = (
        *bert_encoder("roberta_prelayernorm", **NORMS),
        (FINAL_NORM, "roberta_prelayernorm.LayerNorm."),
        *ROBERTA_HEADS,
    )
    fixed = {"normalize_before": True}
    counts_from_padding = True
