"""ModernBERT, NomicBERT, EuroBERT and RoFormer, whose positions are rotations: their configurations and joined projections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers import PretrainedConfig

from ..base.errors import InputError
from ..core.schemes import same
from ..core.schemes.positions import read_sum, sums_of
from ..core.transformer import EncoderConfig
from ..core.transformer.config import TRANSFORMERS
from ..plugin.checkpoint.state_dict import StateDict
from .configuration import LAYER_TYPES

Joined = tuple[str, tuple[str, ...]]
"""A parameter's name, without the layer's and the end, and the names of the parts that it is made of, one below the other."""

QKV: Joined = "attn.Wqkv", ("attn.q", "attn.k", "attn.v")
GATED: Joined = "mlp.Wi", ("mlp.gate_proj", "mlp.up_proj")
MODERNBERT_NAMES = TRANSFORMERS | {
    "activation": "hidden_activation",
    "dropout": "embedding_dropout",
    "attention_dropout": "attention_dropout",
    "activation_dropout": "mlp_dropout",
    "layer_norm_eps": "norm_eps",
    "linear_bias": "attention_bias",
    "norm_bias": "norm_bias",
    "head_bias": "classifier_bias",
}
"""A field of EncoderConfig -> its name in ModernBERT's configuration."""
MODERNBERT = {"gated_ffn": True, "normalize_before": True, "first_norm": False, "initialization": "megatron"}
NOMICBERT = {"gated_ffn": True, "linear_bias": False, "positions": "rope"}
EUROBERT = {
    **{"gated_ffn": True, "normalize_before": True, "layernorm_embedding": False, "norm": "rms", "norm_bias": False},
    **{"head_layer": False, "head_bias": False, "dropout": 0.0, "positions": "rope"},
}
ROPE_BASE = 1e4  # of the scheme, where no option gives it


def values_of(config: PretrainedConfig) -> dict[str, Any] | None:
    """Return fields of EncoderConfig that a configuration of one of these types describes; None for another type.

    Raises:
        InputError: it has an option without an equivalent here.
    """
    if config.model_type == "modernbert":
        _require_equal(config, "attention_bias", "mlp_bias")
        _require_equal(config, "hidden_activation", "classifier_activation")
        values = {ours: getattr(config, theirs) for ours, theirs in MODERNBERT_NAMES.items()}
        return values | MODERNBERT | {"positions": _alternating(config)}
    if config.model_type in ("nomic_bert", "eurobert"):
        if config.head_dim * config.num_attention_heads != config.hidden_size:
            raise InputError(f"head_dim {config.head_dim} cannot be imported, only hidden_size / num_attention_heads")
        rotations = {"position_options": {"rope_layout": "half", "rope_base": _base(config.rope_parameters)}}
        return rotations | (NOMICBERT if config.model_type == "nomic_bert" else _eurobert(config))
    if config.model_type == "roformer":
        if config.rotary_value:
            raise InputError("rotary_value cannot be imported: rotations of the values have no equivalent here")
        return {"positions": "rope", "embed_dim": config.embedding_size if config.embedding_size != config.hidden_size else 0}
    return None


def _eurobert(config: PretrainedConfig) -> dict[str, Any]:
    _require_equal(config, "attention_bias", "mlp_bias")
    _require_equal(config, "num_key_value_heads", "num_attention_heads")
    return EUROBERT | {
        "linear_bias": config.attention_bias,
        "output_bias": config.mlp_bias,
        "attention_dropout": config.attention_dropout,
        "layer_norm_eps": config.rms_norm_eps,
    }


def _require_equal(config: PretrainedConfig, one: str, other: str) -> None:
    if (first := getattr(config, one)) != (second := getattr(config, other)):
        raise InputError(f"{one} {first} and {other} {second} cannot be imported, only the same for both")


def modernbert_options(config: EncoderConfig) -> dict[str, Any]:
    """Return what a ModernBERT that is as near as possible to an encoder has beyond :data:`MODERNBERT_NAMES`."""
    sums = [read_sum(part) for part in sums_of(config.positions)]
    base = config.position_options.get("rope_base", ROPE_BASE)
    bases = [float(each.options.get("rope_base", base)) for each in (sums[0], sums[-1])]
    return {
        "mlp_bias": config.linear_bias,
        "global_attn_every_n_layers": len(sums),
        "local_attention": 2 * (sums[-1].window or 0),
        "global_rope_theta": bases[0],
        "local_rope_theta": bases[1],
        "cls_token_id": 0,
        "sep_token_id": config.separator_idx,
    }


def split(state: StateDict, joined: Joined) -> StateDict:
    """Return a state dict with the parts of joined parameters in their place."""
    whole, parts = joined
    found = dict(state)
    for name in [name for name in state if f".{whole}." in name]:
        values = found.pop(name).chunk(len(parts))
        found |= {name.replace(f".{whole}.", f".{part}."): value.clone() for part, value in zip(parts, values, strict=True)}
    return found


def join(state: StateDict, joined: Joined) -> StateDict:
    """The reverse of :func:`split`."""
    whole, parts = joined
    found = dict(state)
    for name in [name for name in state if f".{parts[0]}." in name]:
        values = [found.pop(name.replace(f".{parts[0]}.", f".{part}.")) for part in parts]
        found[name.replace(f".{parts[0]}.", f".{whole}.")] = torch.cat(values)
    return found


def _alternating(config: PretrainedConfig) -> str:
    """Return the expression of ModernBERT's rotations: every k-th layer sees all tokens, and the others a window."""
    kinds, layers = getattr(config, "layer_types", None), config.num_hidden_layers
    if kinds is None:  # transformers 4
        period, bases = config.global_attn_every_n_layers, [config.global_rope_theta, config.local_rope_theta]
    else:
        period = next((number for number, kind in enumerate(kinds) if number and kind == LAYER_TYPES[0]), len(kinds))
        if kinds != [LAYER_TYPES[number % period > 0] for number in range(len(kinds))]:
            raise InputError(
                f"layer_types {kinds} cannot be imported, only {LAYER_TYPES[0]} in the first and every k-th layer after it"
            )
        bases = [_base(config.rope_parameters[kind]) for kind in LAYER_TYPES]
    local = _rope(bases[0] if bases[1] is None else bases[1], config.local_attention // 2)
    expression = " | ".join([_rope(bases[0]), *[local] * (min(period, layers) - 1)])
    return "modernbert" if same(expression, "modernbert", layers) else expression


def _rope(base: float, window: int | None = None) -> str:
    options = [f"base={base}" * (base != ROPE_BASE), "layout=half", "" if window is None else f"window={window}"]
    return f"rope({', '.join(filter(None, options))})"


def _base(parameters: Mapping[str, Any]) -> float:
    if parameters.get("rope_type", "default") != "default":
        raise InputError(f"rope_type {parameters['rope_type']} cannot be imported for this type of model, only default")
    return float(parameters["rope_theta"])
