"""Rotations by angles that depend on the words between (Movahedi et al. 2025)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...base.errors import FieldError
from ..terms import Rotation, Terms, Window, precise
from .base import Scheme, Settings, option, register


@register
class SelectiveRope(Scheme):
    """``e_ij = s · (R_{φ_i} q_i)·(R_{φ_j} k_j)`` with ``φ_i = Σ_{t ≤ i} θ ⊙ (1 + U V x_t)``, each head's own sums of its input x.

    RoPE with a learned step over each word, as CABLE is ALiBi with one. ``down`` V is (layers, heads, rank, D) and ``up`` U, one
    number for each pair of features, (layers, heads, d/2, rank). U starts at 0, where it is RoPE with θ_c = base^(-2c/d).

    The sums begin with each document and count tokens: ``position_ids`` and ``--position-sampling`` change nothing.
    """

    name = "selective_rope"
    equation = "e = (R_{φ_i} q)·(R_{φ_j} k) / √d, φ_i = Σ_{t≤i} θ (1 + U V x_t)"
    source = "Movahedi et al. 2025, §4"
    family, advice = "rotations", "as rope, with angles that depend on the words between"
    reads_input = reads_past = True
    interpretable = False
    decays = ("down", "up")

    class Options:
        base: float = option("base of the frequencies", 10000.0, minimum=2.0, maximum=1e12)
        rank: int = option("numbers that are read from each word", 16, minimum=1, maximum=1 << 12)

    def __init__(self, settings: Settings, options: Options) -> None:
        super().__init__(settings, options)
        if settings.head_dim % 2:
            raise FieldError(f"selective_rope turns pairs of features, and the head dimension is {settings.head_dim}")
        self.down = self.parameter(options.rank, settings.dim, std=0.02)
        self.up = self.parameter(settings.head_dim // 2, options.rank)
        nn.init.zeros_(self.up)

    def input_terms(self, layer: int, window: Window, x: Tensor) -> Terms:
        row = self.row_of(layer)
        down, up = precise(self.down[row]), precise(self.up[row])
        steps = 1 + torch.einsum("bnd,hrd,hcr->bhnc", precise(x), down, up)
        if window.padding is not None:
            steps = steps.masked_fill(window.padding[:, None, :, None], 0.0)
        sums = steps.cumsum(-2)
        if window.documents is not None:  # vectors of other schemes are turned by the sums themselves, and not their differences
            before = window.documents[:, None, :, None].expand(*sums.shape[:2], -1, sums.shape[-1])
            sums = sums - F.pad(sums, (0, 0, 1, 0)).gather(-2, before)
        pairs = torch.arange(up.shape[1], device=x.device, dtype=steps.dtype)
        angles = (sums * self.options.base ** (-pairs / len(pairs))).repeat_interleave(2, dim=-1)
        return Terms(transforms=(Rotation(angles.cos(), angles.sin()),))
