"""Attention with linear biases (Press et al. 2022), in the symmetric form for encoders."""

import math

import torch
from torch import Tensor

from ..terms import Relative, RelativeIndex, Terms, Window
from .base import Scheme, option, register


def slopes(heads: int, device: torch.device | str | None = None, dtype: torch.dtype = torch.float64) -> Tensor:
    """(H,) the authors' slopes: ``2^(-8h/H)`` for h = 1 … H where H is a power of two.

    For any other H they are the slopes of the greatest power of two P below H, followed by every other slope of 2P, starting
    with its first. They are computed on the device, since copying a list to it would wait for it.
    """
    power = 2 ** math.floor(math.log2(heads))
    numbers = torch.arange(1, power + 1, dtype=dtype, device=device)
    return torch.exp2(-8 / power * torch.cat([numbers, numbers[: heads - power] - 0.5]))


@register
class Alibi(Scheme):
    """``e_ij = s · q_i·k_j - m_h |j - i|``. No parameters.

    The causal form equals the authors', since softmax ignores a constant per row.

    The symmetric form cannot distinguish left from right. With ``--alibi-sided true``, keys after the query have the slopes in
    reverse order, ``m_{H+1-h}``.
    """

    name = "alibi"
    equation = "e = q·k / √d - m_h |j-i|"
    source = "Press et al. 2022, §3"
    family = "scalar biases by offset"
    advice = "prefers near tokens without training; symmetric, so that left and right are learned late"
    honours = ()
    data_driven = False

    class Options:
        sided: bool = option("other slopes to the right than to the left", False)

    def layer_terms(self, window: Window) -> list[Terms]:
        m, r = slopes(self.settings.heads, window.device, window.dtype)[:, None], window.offsets
        if self.options.sided:
            m = torch.where(r > 0, m.flip(0), m)
        return [Terms(biases=(Relative(-m * r.abs(), RelativeIndex(window)),))]
