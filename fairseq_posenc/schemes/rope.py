"""Rotary position embedding (Su et al. 2021), and its extensions to sequences longer than those of training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..errors import MAX_POSITIONS, FieldError
from ..terms import Rotation, Terms, Window
from .base import Scheme, Settings, option, register

EXTENSIONS: dict[str, dict[str, float | None]] = {
    "default": {},
    "linear": {"factor": None},
    "ntk": {"factor": None},
    "yarn": {"factor": None, "original_positions": None, "beta_fast": 32.0, "beta_slow": 1.0},
}
"""The values of ``--rope-type``, and the options that each takes: its default, or None where it must be given."""


@register
class Rope(Scheme):
    """``e_ij = s · (R_i q_i)·(R_j k_j)`` (eq. 14, 15).

    R_p turns the t-th pair of features by ``p · θ_t``, with ``θ_t = base^(-2t/d)``. Pairs are adjacent features as in the paper
    (``interleaved``), or t and t + d/2 as in GPT-NeoX and Llama (``half``): the same model up to the order of rows of the
    projections. No parameters.

    Sequences longer than the L tokens of training have angles beyond ``L · θ_t``, which the model has not learned.
    ``--rope-type`` changes the angles for sequences of ``s · L`` tokens, where s is ``--rope-factor``; a short training on such
    sequences then helps:

    - ``linear``: ``θ_t / s``, position interpolation (Chen et al. 2023, eq. 4).
    - ``ntk``: ``base · s^(d/(d-2))`` in place of the base, so that the last pair turns s times slower and the first as before
      (bloc97's "NTK-aware scaled RoPE", 2023; Peng et al. 2024, section 3.1).
    - ``yarn``: ``γ_t θ_t + (1 - γ_t) θ_t / s``, and queries and keys multiplied by ``0.1 ln s + 1`` (Peng et al. 2024,
      sections 3.2 and 3.4). γ_t is 1 for pairs that turn more than ``--rope-beta-fast`` times in the L tokens of
      ``--rope-original-positions``, 0 for those that turn less than ``--rope-beta-slow`` times. Between them it falls linearly
      in t, from a whole t to a whole t, as in the authors' code; in the paper it is linear in the number of turns.
    """

    name = "rope"
    equation = "e = (R_i q)·(R_j k) / √d"
    source = "Su et al. 2021, eq. 14, 15"
    honours = ()
    interpretable = False
    data_driven = False

    @dataclass(frozen=True)
    class Options:
        layout: str = option("which features make a pair", "interleaved", choices=("interleaved", "half"))
        base: float = option("base of the frequencies", 10000.0, minimum=1.0, maximum=1e12)
        type: str = option("extension to longer sequences", "default", choices=tuple(EXTENSIONS))
        factor: float | None = option("how many times longer: s", None, minimum=1.0, maximum=1e6, metavar="s")
        original_positions: int | None = option(
            "tokens of the sequences before: L", None, minimum=1, maximum=MAX_POSITIONS, metavar="L"
        )
        beta_fast: float | None = option("turns from which yarn leaves a pair", None, minimum=1e-6, maximum=1e6)
        beta_slow: float | None = option("turns up to which yarn interpolates", None, minimum=1e-6, maximum=1e6)

    def __init__(self, settings: Settings, options: Options) -> None:
        super().__init__(settings, _completed(options))
        if settings.head_dim % 2:
            raise FieldError(
                f"rope turns pairs of features, so the head dimension must be even, and it is {settings.head_dim}: change "
                "`dim` or `heads`"
            )
        if self.options.type == "ntk" and settings.head_dim == 2:
            raise FieldError("`rope_type` ntk slows the last pair of features and not the first, so a head needs two or more")

    @property
    def own_options(self) -> dict[str, Any]:
        return {name: value for name, value in super().own_options.items() if value is not None}

    @property
    def transformers_options(self) -> dict[str, Any]:
        options = self.options
        parameters = {"rope_type": options.type, "rope_theta": self._base}
        if options.type == "ntk":  # transformers has it with a factor that follows each sequence's length; a fixed one is a base
            parameters["rope_type"] = "default"
        elif options.type != "default":
            parameters["factor"] = options.factor
        if options.type == "yarn":
            parameters |= {"original_max_position_embeddings": options.original_positions, "attention_factor": self.magnification}
            parameters |= {"beta_fast": options.beta_fast, "beta_slow": options.beta_slow}
        return {"rope_parameters": parameters}

    @property
    def _base(self) -> float:
        d = self.settings.head_dim
        return self.options.base * self.options.factor ** (d / (d - 2)) if self.options.type == "ntk" else self.options.base

    def frequencies(self) -> Tensor:
        """(d/2,) θ_t, in float64 on the CPU: by how much a pair turns from one token to the next, in radians."""
        options, d = self.options, self.settings.head_dim
        theta = self._base ** (-torch.arange(0, d, 2, device="cpu", dtype=torch.float64) / d)
        if options.type == "linear":
            return theta / options.factor
        if options.type == "yarn":
            kept = self._kept()
            return kept * theta + (1 - kept) * theta / options.factor
        return theta

    @property
    def magnification(self) -> float:
        """What queries and keys are multiplied by."""
        return 0.1 * math.log(self.options.factor) + 1 if self.options.type == "yarn" else 1.0

    def layer_terms(self, window: Window) -> Sequence[Terms]:
        cos, sin = self.of_positions(self._cos_and_sin, window).unbind(-2)
        if not window.contiguous:
            cos, sin = cos[:, None], sin[:, None]
        return [Terms(transforms=(Rotation(cos, sin, self.options.layout == "interleaved"),))]

    def _cos_and_sin(self, positions: Tensor) -> Tensor:
        """(…) -> (…, 2, d)."""
        angles = positions[..., None] * self.frequencies().to(positions.device)  # (…, d/2)
        angles = torch.cat([angles, angles], -1) if self.options.layout == "half" else angles.repeat_interleave(2, dim=-1)
        return torch.stack([angles.cos(), angles.sin()], dim=-2) * self.magnification

    def _kept(self) -> Tensor:
        """(d/2,) γ_t."""
        first = max(math.floor(self._pair(self.options.beta_fast)), 0)
        last = min(math.ceil(self._pair(self.options.beta_slow)), self.settings.head_dim - 1)
        t = torch.arange(self.settings.head_dim // 2, device="cpu", dtype=torch.float64)
        return 1 - ((t - first) / max(last - first, 0.001)).clamp(0, 1)

    def _pair(self, turns: float) -> float:
        """The t, not a whole one, of the pair that turns so often in L tokens: ``L θ_t = 2π · turns``."""
        options = self.options
        return (
            self.settings.head_dim * math.log(options.original_positions / (2 * math.pi * turns)) / (2 * math.log(options.base))
        )


def _completed(options: Any) -> Any:
    """With the defaults of what the type takes.

    Raises:
        FieldError: an option that it must have is missing, or one is given that it does not take.
    """
    takes = EXTENSIONS[options.type]
    given = {name: getattr(options, name) for name in EXTENSIONS["yarn"]}
    for name, value in given.items():
        if name in takes and value is None and takes[name] is None:
            raise FieldError(f"`rope_type` {options.type} needs a value of `rope_{name}`")
        if name not in takes and value is not None:
            others = [kind for kind, taken in EXTENSIONS.items() if name in taken]
            raise FieldError(f"`rope_{name}` {value:g} means nothing to `rope_type` {options.type}, only to {', '.join(others)}")
    completed = replace(options, **{name: takes[name] for name in takes if given[name] is None})
    if completed.type == "yarn":
        if completed.beta_fast <= completed.beta_slow:
            raise FieldError(f"`rope_beta_fast` {completed.beta_fast:g} must be above `rope_beta_slow` {completed.beta_slow:g}")
        if completed.base == 1:
            raise FieldError(
                "`rope_base` 1 turns all pairs by the same angle: `rope_type` yarn distinguishes fast pairs from slow ones"
            )
    return completed
