"""MPNet (Song et al. 2020): RoBERTa with T5's biases, one table for all layers."""

from transformers import PretrainedConfig

from ...plugin.checkpoint.state_dict import POSITIONS, StateDict
from .base import ROBERTA_HEADS, RobertaHeads, register
from .bert import BertLike, bert_encoder

TABLE = f"{POSITIONS}t5.weight"
ATTENTION = {f"{name}_proj": f"attention.attn.{name}" for name in "qkv"} | {"out_proj": "attention.attn.o"}


@register
class MPNet(RobertaHeads, BertLike):
    """MPNet, which has 32 buckets up to a distance of 128, and pads with symbol 1, whatever is configured."""

    name, prefix, title = "mpnet", "MPNet", "MPNet"
    keys = (
        *bert_encoder("mpnet", **ATTENTION, self_attn_layer_norm="attention.LayerNorm"),
        (TABLE, "mpnet.encoder.relative_attention_bias.weight"),
        *ROBERTA_HEADS,
    )
    fixed = {"positions": "absolute+t5", "position_options": {"t5_buckets": 32, "t5_max_distance": 128}}
    counts_from_padding = True

    def after_import(self, state: StateDict, config: PretrainedConfig) -> None:
        super().after_import(state, config)
        state[TABLE] = state[TABLE].T[None].contiguous()  # (1, H, buckets)

    def before_export(self, state: StateDict, config: PretrainedConfig) -> None:
        super().before_export(state, config)
        state[TABLE] = state[TABLE][0].T.contiguous()
