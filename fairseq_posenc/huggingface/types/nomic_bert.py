"""NomicBERT (Nussbaum et al. 2024): BERT with rotations, and gated layers without biases. transformers 4 does not have it."""

from ...core.transformer import EncoderConfig
from .base import ATTENTION, GATED, NORMS_AFTER, Head, Options, embeddings, language_model, layers, pooled, register
from .rotary import Rotary


@register
class NomicBert(Rotary):
    """NomicBERT. With the vector of its token type in the word embeddings, the output projection is no longer tied to them."""

    name, prefix, title = "nomic_bert", "NomicBert", "NomicBERT"
    keys = (
        *embeddings("nomic_bert"),
        *layers("nomic_bert.layers.#", ATTENTION | GATED | NORMS_AFTER),
        *language_model("cls.predictions.transform", "layer_norm", "cls.predictions.decoder"),
        *pooled("nomic_bert.pooler.dense"),
    )
    fixed = {"gated_ffn": True, "linear_bias": False}

    def describe(self, encoder: EncoderConfig, head: Head) -> Options | None:
        if not head.may_have(encoder.dim, "tanh"):
            return None
        return {"type_vocab_size": 1, "classifier_dropout": head.dropout, **(super().describe(encoder, head) or {})}
