"""Jina Embeddings v3 (Sturua et al. 2024): XLM-R whose positions are rotations. transformers 4 does not have it."""

from .base import ATTENTION, NORMS_AFTER, ROBERTA_HEADS, RobertaHeads, embeddings, layers, register
from .rotary import Rotary


@register
class JinaEmbeddingsV3(Rotary, RobertaHeads):
    """Jina Embeddings v3, whose encoder has RoBERTa's name in transformers."""

    name, prefix, title = "jina_embeddings_v3", "JinaEmbeddingsV3", "Jina Embeddings v3"
    keys = (
        *embeddings("roberta"),
        *layers("roberta.layers.#", ATTENTION | {"fc1": "mlp.fc1", "fc2": "mlp.fc2"} | NORMS_AFTER),
        *ROBERTA_HEADS,
    )
