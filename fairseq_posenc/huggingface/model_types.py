"""The types of models that are imported and exported: those of transformers, and the project's own."""

from ..core.transformer import EncoderConfig
from ..plugin.checkpoint.state_dict import ENCODER
from ..text.vocabulary import Dictionary
from .auto import PosencConfig, modeling
from .types import MODEL_TYPES
from .types.base import CLASSIFIER, ModelType, language_model, register

__all__ = ["MODEL_TYPES", "Posenc"]


@register
class Posenc(ModelType):
    """The project's own class, to which every model is exported that no other type describes.

    Its configuration has the fields of :class:`EncoderConfig` themselves.
    """

    name, prefix, library = PosencConfig.model_type, "Posenc", modeling
    keys = ((ENCODER, "model.encoder."), *language_model("lm_head", "layer_norm", "lm_head.decoder"), *CLASSIFIER)

    def encoder_config(self, config: PosencConfig, dictionary: Dictionary) -> EncoderConfig:
        return config.encoder_config()
