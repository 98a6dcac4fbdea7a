"""Relative positions of Transformer-XL (Dai et al. 2019), for both directions."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...base.errors import InputError
from ..terms import Expansion, Relative, RelativeIndex, Rotation, Scale, Shift, Terms, Window
from .base import Scheme, Settings, register
from .sinusoidal import vaswani


@register
class TransformerXL(Scheme):
    """``e_ij = s · ((q_i + u)·k_j + (q_i + v)·W_R R_{i-j})`` (section 3.3), R the sinusoids of the signed distance i - j.

    ``content_bias`` u and ``position_bias`` v are (1, heads, d), the same in all layers; ``projection`` W_R is
    (layers, 1, D, D). With A_r = W_R R_{-r} the form is ``q + u`` for q and the bias ``s · (v - u)·A_r``.

    Between whole numbers there are no tables: since R_{i-j} is R_j turned by i, queries and keys get D features more.
    """

    name = "transformer_xl"
    equation = "e = ((q+u)·k + (q+v)·W_R R_{i-j}) / √d"
    source = "Dai et al. 2019, §3.3"
    family, advice = "vectors by offset", "queries meet sinusoids of the offset, so that any length has some"
    interpretable = False
    decays = ("projection",)
    honours = ("position_share_layers", "position_scale_factor")

    def __init__(self, settings: Settings, options: Scheme.Options) -> None:
        super().__init__(settings, options)
        self.content_bias = nn.Parameter(torch.empty(1, settings.heads, settings.head_dim))
        self.position_bias = nn.Parameter(torch.empty(1, settings.heads, settings.head_dim))
        self.projection = nn.Parameter(torch.empty(self.layer_sets, 1, settings.dim, settings.dim))
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02)

    def join(self, others: Sequence[Terms]) -> None:
        scaled = any(isinstance(change, Scale) for part in others for change in part.transforms)
        if scaled or self.settings.reset or any(part.gains for part in others):
            raise InputError(
                "'transformer_xl' adds its positions in two parts, and 'reset', 'm1', 'm2' and log-n would change one of them"
            )

    def layer_terms(self, window: Window) -> list[Terms]:
        if window.span is None:
            return self._expansions(window)
        distances = self.of_offsets(self._sinusoids, window)  # (R, D)
        tables = self.by_head(distances.to(self.projection.dtype) @ self.projection[:, 0])  # (L, H, R, d)
        u, v = self.content_bias[0], self.position_bias[0]  # (H, d)
        biases = (tables @ (v - u)[..., None])[..., 0] * self.settings.scale  # (L, H, R)
        index, add_u = RelativeIndex(window), Shift(queries=u[:, None])
        return [
            Terms(transforms=(add_u,), query_tables=(Relative(table, index),), biases=(Relative(bias, index),))
            for table, bias in zip(tables.unbind(), biases.unbind(), strict=True)
        ]

    def _expansions(self, window: Window) -> list[Terms]:
        """``y·R_{i-j}`` with y = W_Rᵀ (q + v) is the product of R_j and of (-y_sin, y_cos) turned back by i."""
        dim, u, v = self.settings.dim, self.content_bias[0, :, None], self.position_bias[0, :, None]  # (H, 1, d)
        rates = 10000 ** (-torch.arange(0, dim, 2, device=window.device, dtype=window.dtype) / dim)
        angles = (window.positions[..., None] * rates).repeat_interleave(2, dim=-1)[:, None]  # (B or 1, 1, K, D or D + 1)
        is_sine = torch.arange(angles.shape[-1], device=window.device) % 2 == 0
        keys = torch.where(is_sine, angles.sin(), angles.cos())
        weights = F.pad(self.projection[:, 0].unflatten(-1, (self.settings.heads, -1)).permute(0, 2, 3, 1), (0, dim % 2))
        weights = torch.where(is_sine, -weights, weights)  # (L, H, d, D or D + 1)
        turned = Rotation(angles.cos(), -angles.sin())
        return [Terms(transforms=(Shift(queries=u), Expansion(weight, v - u, turned, keys))) for weight in weights]

    def _sinusoids(self, offsets: Tensor) -> Tensor:
        return vaswani(-offsets, self.settings.dim)
