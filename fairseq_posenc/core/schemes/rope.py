"""Rotary position embedding (Su et al. 2021), and its extensions to sequences longer than those of training."""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ...base.errors import MAX_POSITIONS, FieldError
from ..terms import Rotation, Terms, Window
from .base import Scheme, Settings, option, register

EXTENSIONS: dict[str, dict[str, float | None]] = {
    "default": {},
    "linear": {"factor": None},
    "ntk": {"factor": None},
    "ntk_bidirectional": {"factor": None, "original_positions": None},
    "yarn": {"factor": None, "original_positions": None, "beta_fast": 32.0, "beta_slow": 1.0},
    "llama3": {"factor": None, "original_positions": None, "beta_fast": 4.0, "beta_slow": 1.0},
    "longrope": {"factor": None, "original_positions": None, "factors": None},
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
    - ``llama3``: the same without the magnification, and with γ_t linear in the number of turns, from 0 at ``--rope-beta-slow``
      to 1 at ``--rope-beta-fast`` (Grattafiori et al. 2024; transformers' ``low_freq_factor`` and ``high_freq_factor``).
    - ``longrope``: ``θ_t / λ_t`` with the λ_t of ``--rope-factors``, and queries and keys multiplied by ``√(1 + ln s / ln L)``
      (Ding et al. 2024; transformers' ``long_factor``, here for sequences of any length).
    - ``ntk_bidirectional``: an encoder has seen offsets between -L and L, so that the base becomes ``(2sL / 2π)^(d/c)``, where
      ``c = 2 ⌈(d/2) log_base(2L / 2π)⌉`` features have made a whole turn (He et al. 2025, "diffusion-aware NTK").

    With ``--rope-fraction p`` only the fastest ⌊p d/2⌋ pairs turn (Barbero et al. 2025, p-RoPE).
    """

    name = "rope"
    equation = "e = (R_i q)·(R_j k) / √d"
    source = "Su et al. 2021, eq. 14, 15"
    family, advice = "rotations", "a first choice: no parameters, fused attention, good from little training, widely used"
    honours = ()
    interpretable = data_driven = False

    class Options:
        layout: str = option("which features make a pair", "interleaved", choices=("interleaved", "half"))
        base: float = option("base of the frequencies", 10000.0, minimum=2.0, maximum=1e12)
        fraction: float = option("share of the pairs that turn, the fastest", 1.0, minimum=0.0, maximum=1.0)
        type: str = option("extension to longer sequences", "default", choices=tuple(EXTENSIONS))
        factor: float | None = option("how many times longer: s", None, minimum=1.0, maximum=1e6, metavar="s")
        original_positions: int | None = option(
            "tokens of the sequences before: L", None, minimum=2, maximum=MAX_POSITIONS, metavar="L"
        )
        beta_fast: float | None = option("turns from which yarn and llama3 leave a pair", None, minimum=1e-6, maximum=1e6)
        beta_slow: float | None = option("turns up to which yarn and llama3 interpolate", None, minimum=1e-6, maximum=1e6)
        factors: str | None = option("d/2 numbers, one per pair, by which longrope divides the angles", None, metavar="X:Y")

    def __init__(self, settings: Settings, options: Options) -> None:
        super().__init__(settings, _completed(options))
        if settings.head_dim % 2:
            raise FieldError(
                f"rope turns pairs of features, so the head dimension must be even, and it is {settings.head_dim}: change "
                "`dim` or `heads`"
            )
        if 0 < self.options.fraction * settings.head_dim < 2:
            raise FieldError(f"`rope_fraction` {self.options.fraction:g} of {settings.head_dim // 2} pairs is less than one")
        if self.options.type == "ntk" and settings.head_dim == 2:
            raise FieldError("`rope_type` ntk slows the last pair of features and not the first, so a head needs two or more")
        if self.options.type == "ntk_bidirectional" and self._turned() < 2:
            raise FieldError(f"`rope_original_positions` {self.options.original_positions}: no pair turns once in so few tokens")
        self._factors = self._read_factors()

    @property
    def own_options(self) -> dict[str, Any]:
        return {name: value for name, value in super().own_options.items() if value is not None}

    @property
    def _base(self) -> float:
        d, options = self.settings.head_dim, self.options
        if options.type == "ntk":
            return options.base * options.factor ** (d / (d - 2))
        if options.type == "ntk_bidirectional":
            return (options.factor * options.original_positions / math.pi) ** (d / self._turned())
        return options.base

    def _turned(self) -> int:
        """How many features turn at least once within the 2L offsets of training."""
        d, options = self.settings.head_dim, self.options
        return 2 * math.ceil(d / 2 * math.log(options.original_positions / math.pi) / math.log(options.base))

    def frequencies(self) -> Tensor:
        """(d/2,) θ_t, in float64 on the CPU: by how much a pair turns from one token to the next, in radians."""
        options, d = self.options, self.settings.head_dim
        t = torch.arange(d // 2, device="cpu", dtype=torch.float64)
        theta = self._base ** (-2 * t / d)
        if options.type == "linear":
            theta = theta / options.factor
        if options.type in ("yarn", "llama3"):
            kept = self._kept() if options.type == "yarn" else self._kept_by_turns(theta)
            theta = kept * theta + (1 - kept) * theta / options.factor
        if options.type == "longrope":
            theta = theta / torch.tensor(self._factors, dtype=torch.float64, device="cpu")
        return theta.where(t < self._turning, 0.0)

    @property
    def _turning(self) -> int:
        """How many pairs turn."""
        return int(self.options.fraction * self.settings.head_dim // 2)

    @property
    def magnification(self) -> float:
        """What queries and keys are multiplied by."""
        options = self.options
        if options.type == "longrope":
            return math.sqrt(1 + math.log(options.factor) / math.log(options.original_positions))
        return 0.1 * math.log(options.factor) + 1 if options.type == "yarn" else 1.0

    def layer_terms(self, window: Window) -> list[Terms]:
        cos, sin = self.of_positions(self._cos_and_sin, window).unbind(-2)
        if not window.contiguous:
            cos, sin = cos[:, None], sin[:, None]
        return [Terms(transforms=(Rotation(cos, sin, self.options.layout == "interleaved", self._turning),))]

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

    def _kept_by_turns(self, theta: Tensor) -> Tensor:
        """(d/2,) γ_t of Llama 3."""
        options = self.options
        turns = options.original_positions * theta / (2 * math.pi)
        return ((turns - options.beta_slow) / (options.beta_fast - options.beta_slow)).clamp(0, 1)

    def _read_factors(self) -> list[float]:
        """λ_t, d/2 of them, or none."""
        text, pairs = self.options.factors, self.settings.head_dim // 2
        try:
            numbers = [] if text is None else [float(number) for number in text.replace(":", ",").split(",")]
        except ValueError:
            numbers = [math.nan]
        if text is not None and not (len(numbers) == pairs and all(number >= 1e-6 for number in numbers)):
            raise FieldError(
                f"`rope_factors` {text}: give {pairs} numbers above 0, one per pair of features, with colons or commas between"
            )
        return numbers

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
    given = {name: getattr(options, name) for name in EXTENSIONS["yarn"] | EXTENSIONS["longrope"]}
    for name, value in given.items():
        if name in takes and value is None and takes[name] is None:
            raise FieldError(f"`rope_type` {options.type} needs a value of `rope_{name}`")
        if name not in takes and value is not None:
            others = [kind for kind, taken in EXTENSIONS.items() if name in taken]
            value = f"{value:g}" if isinstance(value, float) else value
            raise FieldError(f"`rope_{name}` {value} means nothing to `rope_type` {options.type}, only to {', '.join(others)}")
    completed = replace(options, **{name: takes[name] for name in takes if given[name] is None})
    if completed.type in ("yarn", "llama3") and completed.beta_fast <= completed.beta_slow:
        raise FieldError(f"`rope_beta_fast` {completed.beta_fast:g} must be above `rope_beta_slow` {completed.beta_slow:g}")
    return completed
