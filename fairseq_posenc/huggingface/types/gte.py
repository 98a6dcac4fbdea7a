"""GTE (Zhang et al. 2024, mGTE): BERT with rotations, and gated layers. transformers 4 does not have it."""

from transformers import PretrainedConfig

from ...plugin.checkpoint.state_dict import StateDict
from .base import ATTENTION, GATED, NORMS_AFTER, Options, embeddings, language_model, layers, pooled, register
from .rotary import Rotary


@register
class Gte(Rotary):
    """GTE, whose gated projections alone have no biases: they are zero here, until training changes them."""

    name, prefix = "gte", "Gte"
    heads = ("MaskedLM", "SequenceClassification")  # transformers has no other
    keys = (
        *embeddings("gte"),
        *layers("gte.layers.#", ATTENTION | GATED | NORMS_AFTER),
        *language_model("lm_head", "layer_norm", "lm_head.decoder"),
        *pooled("gte.pooler.dense"),
    )
    fixed = {"gated_ffn": True}

    def fields(self, config: PretrainedConfig) -> Options:
        return super().fields(config) | {"activation_dropout": config.hidden_dropout_prob}

    def after_import(self, state: StateDict, config: PretrainedConfig) -> None:
        for name in [name for name in state if name.endswith("fc1.weight")]:
            state[name.replace("weight", "bias")] = state[name].new_zeros(len(state[name]))
