"""OPT (Zhang et al. 2022): a language model with learned absolute positions, whose names are fairseq's."""

import torch
from transformers import PretrainedConfig

from ...core.transformer.config import TRANSFORMERS
from ...plugin.checkpoint.state_dict import ABSOLUTE, ENCODER, StateDict
from .base import CAUSAL, FINAL_NORM, OUTPUT, ModelType, register

SAME = {name: name for name in ("ffn_dim", "dropout", "attention_dropout", "layerdrop")}


@register
class Opt(ModelType):
    """OPT, with LayerNorm before each block or after it. No token uses the first two rows of its position table."""

    name, prefix, title, heads = "opt", "OPT", "OPT", CAUSAL
    keys = (
        *((ABSOLUTE, "model.decoder.embed_positions.weight"), (FINAL_NORM, "model.decoder.final_layer_norm.")),
        *((ENCODER, "model.decoder."), (OUTPUT, "lm_head.weight")),
    )
    names = {
        **{**TRANSFORMERS, **SAME, "activation": "activation_function"},
        **{"linear_bias": "enable_bias", "normalize_before": "do_layer_norm_before"},
    }
    fixed = {"layernorm_embedding": False, "layer_norm_eps": 1e-5}

    def before_export(self, state: StateDict, config: PretrainedConfig) -> None:
        state[ABSOLUTE] = torch.nn.functional.pad(state[ABSOLUTE], (0, 0, 2, 0))
