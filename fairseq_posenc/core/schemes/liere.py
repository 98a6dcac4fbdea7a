"""Learned rotations (LieRE: Ostmeier et al. 2024) of a sequence, in which they are RoPE with learned angles."""

import torch

from ...base.errors import FieldError
from ..terms import Rotation, Terms, Window, precise
from .base import Scheme, Settings, register


@register
class LieRE(Scheme):
    """``e_ij = s · (R_i q_i)·(R_j k_j)`` with ``R_p = exp(p A)`` and a learned skew-symmetric A per layer and head.

    A sequence has one coordinate, so that ``R_iᵀ R_j = exp((j - i) A)``. Every skew-symmetric A is ``Q B Qᵀ`` with an orthogonal
    Q and blocks of 2×2 on the diagonal of B. The projections of queries and keys, which are learned anyway, contain Q, and what
    remains are d/2 angles: ``theta`` is (layers, heads, d/2), and turns pairs of adjacent features. It starts at RoPE's angles. A
    model of half precision keeps it in float32, since 512 θ would be rounded by up to 2 radians.
    """

    name = "liere"
    equation = "e = (R_i q)·(R_j k) / √d, R_p = exp(p A)"
    source = "Ostmeier et al. 2024, §3"
    family, advice = "rotations", "as rope, with learned angles"
    interpretable = False
    keeps_float32 = True

    def __init__(self, settings: Settings, options: Scheme.Options) -> None:
        super().__init__(settings, options)
        d = settings.head_dim
        if d % 2:
            raise FieldError(f"liere turns pairs of features, and a head has {d}: change `dim` or `heads`")
        self.theta = self.parameter(d // 2)
        with torch.no_grad():
            self.theta.copy_(10000.0 ** (-torch.arange(0, d, 2, dtype=self.theta.dtype) / d))

    def layer_terms(self, window: Window) -> list[Terms]:
        positions = window.positions[..., None].to(precise(self.theta).dtype)  # (B or 1, K, 1)
        # (layers, B or 1, heads, K, d/2)
        angles = (precise(self.theta)[:, None, :, None] * positions[:, None]).repeat_interleave(2, dim=-1)
        return [Terms(transforms=(Rotation(cos, sin),)) for cos, sin in zip(angles.cos(), angles.sin(), strict=True)]
