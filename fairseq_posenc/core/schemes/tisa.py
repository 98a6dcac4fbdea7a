"""Translation-invariant self-attention (Wennberg & Henter 2021)."""

import torch
from torch import Tensor, nn

from ..terms import Relative, RelativeIndex, Terms, Window, precise
from .base import Scheme, Settings, option, register


def scoring_function(amplitude: Tensor, sharpness: Tensor, offset: Tensor, offsets: Tensor) -> Tensor:
    """``f_θ(r) = Σ_s a_s exp(-|b_s| (r - c_s)²)`` (eq. 5): a, b, c (…, S) and r (R,) -> (…, R), in float32 or better."""
    a, b, c = (precise(p)[..., None] for p in (amplitude, sharpness, offset))
    return (a * torch.exp(-b.abs() * (offsets - c) ** 2)).sum(-2)


@register
class Tisa(Scheme):
    """``e_ij = s · q_i·k_j + f_θ(j - i)`` (eq. 4b), with a scoring function f_θ of S Gaussian kernels per head and layer.

    ``amplitude``, ``sharpness`` and ``offset`` are (layers, heads, S): 3·S·H·L parameters. The kernels start narrow and near
    the diagonal, scattered so that the heads differ: offsets of standard deviation 5, amplitudes and widths about 0.1.
    ``absolute+tisa`` is eq. 4a.

    Adam moves each by about the learning rate per update: slow in the order task of FIDELITY.md.
    """

    name = "tisa"
    equation = "e = q·k / √d + Σ_s a_s exp(-|b_s| (j-i-c_s)²)"
    source = "Wennberg & Henter 2021, eq. 4b, 5"
    family = "scalar biases by offset"
    advice = "few parameters, a curve per head; loses little at four times the length of training"

    class Options:
        kernels: int = option("number S of kernels per head", 5, minimum=1, maximum=1024, metavar="S")

    def __init__(self, settings: Settings, options: Options) -> None:
        super().__init__(settings, options)
        self.amplitude = self.parameter(options.kernels)
        self.sharpness = self.parameter(options.kernels)
        self.offset = self.parameter(options.kernels)
        nn.init.normal_(self.amplitude, mean=0.1, std=0.1)
        nn.init.normal_(self.sharpness, mean=0.1, std=0.1)
        nn.init.normal_(self.offset, std=5.0)

    def layer_terms(self, window: Window) -> list[Terms]:
        scores = scoring_function(self.amplitude, self.sharpness, self.offset, window.offsets)  # (L, H, R)
        index = RelativeIndex(window)
        return [Terms(biases=(Relative(table, index),)) for table in scores.unbind()]
