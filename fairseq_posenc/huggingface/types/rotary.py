"""Rotations as transformers' configurations describe them: ``rope_parameters``, and the types of layers that alternate."""

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PretrainedConfig

from ...base.errors import InputError
from ...core.schemes.positions import read_sum, sums_of
from ...core.transformer import EncoderConfig
from ...core.transformer.config import LAYER_TYPES
from .base import Head, ModelType, Options

BASE = 1e4  # of the scheme, where no option gives it


class Rotary(ModelType):
    """A type whose layers all turn whole heads by the same angles."""

    def fields(self, config: PretrainedConfig) -> Options:
        require_usual_heads(config)
        options = {"rope_layout": "half", "rope_base": base(config.rope_parameters)}
        return super().fields(config) | {"positions": "rope", "position_options": options}

    def describe(self, encoder: EncoderConfig, head: Head) -> Options | None:
        options = super().describe(encoder, head)
        parameters = {"rope_type": "default", "rope_theta": bases(encoder)[0]}
        return None if options is None else options | {"rope_parameters": parameters}


def bases(encoder: EncoderConfig) -> list[float]:
    """Return the bases of the angles of an encoder's sums."""
    usual = encoder.position_options.get("rope_base", BASE)
    return [float(read_sum(part).options.get("rope_base", usual)) for part in sums_of(encoder.positions)]


def require_usual_heads(config: PretrainedConfig) -> None:
    """Raise InputError if the heads are not D/H wide."""
    width = getattr(config, "head_dim", None)
    if width is not None and width * config.num_attention_heads != config.hidden_size:
        raise InputError(f"head_dim {width} cannot be imported, only hidden_size / num_attention_heads")


def base(parameters: Mapping[str, Any]) -> float:
    """Return the base of the angles; raises InputError if they are extended to longer sequences."""
    if parameters.get("rope_type", "default") != "default":
        raise InputError(f"rope_type {parameters['rope_type']} cannot be imported for this type of model, only default")
    return float(parameters["rope_theta"])


def alternating(kinds: Sequence[str], bases: Mapping[str, float], window: int) -> str:
    """Return the expression of layers that rotate, each by the base of its type, and see all tokens or a window.

    Args:
        kinds: each layer's type, of :data:`LAYER_TYPES`.
        bases: of each type.
        window: how many places to either side layers of the second type see.
    """
    period = next(p for p in range(1, len(kinds) + 1) if all(kind == kinds[i % p] for i, kind in enumerate(kinds)))
    ends = {LAYER_TYPES[0]: "", LAYER_TYPES[1]: f", window={window}"}
    starts = {kind: "" if base == BASE else f"base={base}, " for kind, base in bases.items()}
    return " | ".join(f"rope({starts[kind]}layout=half{ends[kind]})" for kind in kinds[:period])
