"""Jina Embeddings v3 (Sturua et al. 2024): XLM-R whose positions are rotations. transformers 4 does not have it."""

from transformers import PretrainedConfig

from .base import ATTENTION, CLASSIFIER, NORMS_AFTER, ModelType, Options, embeddings, language_model, layers, register
from .rotary import rotations


@register
class JinaEmbeddingsV3(ModelType):
    """Jina Embeddings v3, whose encoder has RoBERTa's name in transformers."""

    name, prefix = "jina_embeddings_v3", "JinaEmbeddingsV3"
    keys = (
        *embeddings("roberta"),
        *layers("roberta.layers.#", ATTENTION | {"fc1": "mlp.fc1", "fc2": "mlp.fc2"} | NORMS_AFTER),
        *language_model("lm_head", "layer_norm", "lm_head.decoder"),
        *CLASSIFIER,
    )

    def fields(self, config: PretrainedConfig) -> Options:
        return rotations(config)
