"""The types of models that are imported and exported: those of transformers, and the project's own."""

from dataclasses import fields

from transformers import PretrainedConfig

from ..core.transformer import EncoderConfig
from ..plugin.checkpoint.state_dict import ENCODER
from ..text.vocabulary import Dictionary
from .auto import PosencConfig, causal, modeling
from .types import CAUSAL_TYPES, MODEL_TYPES
from .types.base import CAUSAL, OUTPUT, ROBERTA_HEADS, Head, ModelType, Options, register

__all__ = ["CAUSAL_TYPES", "MODEL_TYPES", "Posenc"]


@register
class Posenc(ModelType):
    """The project's own class, to which every model is exported that no other type describes.

    Its configuration has the fields of :class:`EncoderConfig` themselves.
    """

    name, prefix, library = PosencConfig.model_type, "Posenc", modeling
    keys = ((ENCODER, "model.encoder."), *ROBERTA_HEADS)

    def encoder_config(self, config: PosencConfig, dictionary: Dictionary) -> EncoderConfig:
        return config.core_config()

    def describe(self, encoder: EncoderConfig, head: Head) -> Options:
        pooler = {"pooler_activation": head.activation, "pooler_dropout": head.dropout, "pooler_dim": head.width}
        return {**pooler, "is_decoder": head.kind in CAUSAL}

    def new_config(self, encoder: EncoderConfig, options: Options) -> PretrainedConfig:
        return PosencConfig(**{**options, **{field.name: getattr(encoder, field.name) for field in fields(EncoderConfig)}})


@register
class PosencCausal(Posenc):
    """The same for language models that read from left to right."""

    library, heads = causal, CAUSAL
    keys = ((OUTPUT, "decoder.output_projection.weight"), (ENCODER, "decoder."))
