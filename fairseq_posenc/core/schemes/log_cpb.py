"""Log-spaced continuous position bias of Swin Transformer v2 (Liu et al. 2022)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..terms import Relative, RelativeIndex, Terms, Window, precise
from .base import Scheme, Settings, option, register


@register
class LogCPB(Scheme):
    """``b_ij = B · (σ(g_θ(sign(r) ln(1 + |r|))) - 1/2)`` with ``r = j - i`` (eq. 3, 4); g_θ: a network 1 → hidden → heads, ReLU.

    B is 16, as in the authors' code, which does not subtract B/2: softmax ignores it, and half precision keeps the differences
    of numbers about 0 better. With ``--log-cpb-bound 0`` there is no bound, as in the paper: ``b_ij = g_θ(…)``. Each
    layer has its own network: ``weight1`` and ``bias1`` are (layers, hidden), ``weight2`` is (layers, heads, hidden). They start
    as the authors': weights normal at 0.02 (truncated there at 100 standard deviations, which changes nothing), biases at 0, so
    that all offsets are nearly equal. The function is defined for offsets beyond those of training.
    """

    name = "log_cpb"
    equation = "e = q·k / √d + 16 (σ(g_θ(sign(r) ln(1+|r|))) - 1/2), r = j-i"
    source = "Liu et al. 2022, eq. 3, 4"
    family = "scalar biases by offset"
    advice = "a learned function of the offset; kept its loss at four times the length of training"

    class Options:
        hidden: int = option("hidden width of the network", 512, minimum=1, maximum=1 << 16)
        bound: float = option("largest bias B; 0: none", 16.0, minimum=0.0, maximum=1e6)

    def __init__(self, settings: Settings, options: Options) -> None:
        super().__init__(settings, options)
        self.weight1 = nn.Parameter(torch.empty(self.layer_sets, options.hidden))
        self.bias1 = nn.Parameter(torch.empty(self.layer_sets, options.hidden))
        self.weight2 = self.parameter(options.hidden)
        nn.init.normal_(self.weight1, std=0.02)
        nn.init.zeros_(self.bias1)
        nn.init.normal_(self.weight2, std=0.02)

    def layer_terms(self, window: Window) -> list[Terms]:
        index = RelativeIndex(window)
        return [Terms(biases=(Relative(self._function(layer, window.offsets), index),)) for layer in range(self.layer_sets)]

    def _function(self, layer: int, r: Tensor) -> Tensor:
        """(R,) -> (H, R)."""
        weight1, bias1, weight2 = (precise(p)[layer] for p in (self.weight1, self.bias1, self.weight2))
        r = r.to(weight1.dtype)
        x = r.sign() * r.abs().log1p()
        scores = weight2 @ F.relu(weight1[:, None] * x + bias1[:, None])
        return self.options.bound * (scores.sigmoid() - 0.5) if self.options.bound else scores
