"""UltraBERT: EuroBERT's layers, of which two in three see a window. transformers 4 does not have it.

Of its models the encoder is imported: the language model's head has two inner layers, for which there is no equivalent here.
"""

from transformers import PretrainedConfig

from ...core.transformer.config import LAYER_TYPES
from .base import Options, register
from .eurobert import LLAMA, LlamaLike
from .rotary import alternating, base, require_usual_heads


@register
class Ultrabert(LlamaLike):
    """UltraBERT's encoder, whose layers have a base of the angles for each of their types."""

    name, prefix, heads = "ultrabert", "Ultrabert", ()
    keys = LLAMA

    def fields(self, config: PretrainedConfig) -> Options:
        require_usual_heads(config)
        bases = {kind: base(config.rope_parameters[kind]) for kind in LAYER_TYPES if kind in config.layer_types}
        return super().fields(config) | {"positions": alternating(config.layer_types, bases, config.sliding_window)}
