"""Polar coordinate positional embedding (Gopalakrishnan et al. 2025)."""

import torch
from torch import Tensor, nn

from ..terms import Polar, Terms, Window, precise
from .base import Scheme, Settings, option, register


@register
class PoPE(Scheme):
    """``e_ij = s · Σ_c softplus(q_ic) softplus(k_jc) cos((j - i) θ_c + δ_c)``: words give magnitudes, positions angles.

    θ_c = base^(-c/d) for the d features of a head. ``bias`` δ is (layers, heads, d) and starts at 0, where the scores are
    symmetric in j - i. It has no bounds: δ + 2π is the same angle, and the authors' bounds, -2π and 0, would leave no gradient to
    what grows from 0. Adam moves it by about the learning rate per update, which makes it slow in the order task of FIDELITY.md.
    """

    name = "pope"
    equation = "e = Σ_c softplus(q_c) softplus(k_c) cos((j-i)θ_c + δ_c) / √d"
    source = "Gopalakrishnan et al. 2025, §3"
    family, advice = "rotations", "as rope, where positions alone decide the phase"
    interpretable = False

    class Options:
        base: float = option("base of the frequencies", 10000.0, minimum=1.0, maximum=1e12)

    def __init__(self, settings: Settings, options: Options) -> None:
        super().__init__(settings, options)
        self.bias = self.parameter(settings.head_dim)
        nn.init.zeros_(self.bias)

    def layer_terms(self, window: Window) -> list[Terms]:
        angles = self.of_positions(self._angles, window)  # (K, d) or (B, K, d)
        angles = angles if window.contiguous else angles[:, None]
        bias = precise(self.bias)[:, :, None]  # (layers, heads, 1, d)
        return [Terms(transforms=(Polar(angles, angles + delta),)) for delta in bias]

    def _angles(self, positions: Tensor) -> Tensor:
        """(…) -> (…, d), in radians."""
        d = self.settings.head_dim
        theta = self.options.base ** (-torch.arange(d, dtype=torch.float64, device=positions.device) / d)
        return positions[..., None] * theta
