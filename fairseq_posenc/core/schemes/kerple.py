"""Kernelized relative positions (Chi et al. 2022)."""

import torch
from torch import Tensor, nn

from ..terms import Relative, RelativeIndex, Terms, Window, precise
from .base import Scheme, Settings, option, register


@register
class Kerple(Scheme):
    """``b_ij = -r_1 log(1 + r_2 |j - i|)``, or ``-r_1 |j - i|^r_2`` with r_2 ≤ 2 (``--kerple-form power``); r_1, r_2 > 0.

    ``r1`` and ``r2`` are (layers, heads), kept at least 0.01 as the authors do, with the gradient at that bound, so that a value
    beyond it can return. As theirs, r_1 starts below 2 and r_2 below 1, and with ``power`` the other way about. The paper's
    distance is causal; this form is symmetric, so one layer cannot distinguish left from right, which the order task of
    FIDELITY.md needs. With ``--kerple-sided true`` they are (layers, heads, 2), for keys before and after the query.
    """

    name = "kerple"
    equation = "e = q·k / √d - r₁ log(1 + r₂|j-i|)"
    source = "Chi et al. 2022, §4"
    family, advice = "scalar biases by offset", "as alibi, with learned slopes; --kerple-sided true tells left from right"

    class Options:
        form: str = option("kernel", "log", choices=("log", "power"))
        sided: bool = option("other parameters to the right than to the left", False)

    def __init__(self, settings: Settings, options: Options) -> None:
        super().__init__(settings, options)
        sides = (2,) if options.sided else ()
        self.r1 = self.parameter(*sides)
        self.r2 = self.parameter(*sides)
        for r, largest in zip((self.r1, self.r2), (2.0, 1.0) if options.form == "log" else (1.0, 2.0), strict=True):
            nn.init.uniform_(r, 0.01, largest)

    def layer_terms(self, window: Window) -> list[Terms]:
        is_log = self.options.form == "log"
        r1, r2 = _clamped(self.r1), _clamped(self.r2, None if is_log else 2.0)
        if self.options.sided:
            r1, r2 = (torch.where(window.offsets > 0, r[:, :, 1], r[:, :, 0]) for r in (r1, r2))
        distance = window.offsets.abs()
        scores = -r1 * ((r2 * distance).log1p() if is_log else distance**r2)
        index = RelativeIndex(window)
        return [Terms(biases=(Relative(table, index),)) for table in scores.unbind()]


def _clamped(r: Tensor, largest: float | None = None) -> Tensor:
    """(…) -> (…, 1) from 0.01 to ``largest``, with the gradient of the result as that of ``r``."""
    r = precise(r)[..., None]
    return r + (r.clamp(0.01, largest) - r).detach()
