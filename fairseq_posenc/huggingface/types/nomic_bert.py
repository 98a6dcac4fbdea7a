"""NomicBERT (Nussbaum et al. 2024): BERT with rotations, and gated layers without biases. transformers 4 does not have it."""

from transformers import PretrainedConfig

from .base import ATTENTION, GATED, NORMS_AFTER, ModelType, Options, embeddings, language_model, layers, pooled, register
from .rotary import rotations


@register
class NomicBert(ModelType):
    """NomicBERT. With the vector of its token type in the word embeddings, the output projection is no longer tied to them."""

    name, prefix = "nomic_bert", "NomicBert"
    keys = (
        *embeddings("nomic_bert"),
        *layers("nomic_bert.layers.#", ATTENTION | GATED | NORMS_AFTER),
        *language_model("cls.predictions.transform", "layer_norm", "cls.predictions.decoder"),
        *pooled("nomic_bert.pooler.dense"),
    )
    fixed = {"gated_ffn": True, "linear_bias": False}

    def fields(self, config: PretrainedConfig) -> Options:
        return rotations(config)
