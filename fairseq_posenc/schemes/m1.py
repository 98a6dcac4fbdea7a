"""Method 1 of Huang et al. 2020: a scalar for each absolute distance, multiplied with the score."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from ..terms import Relative, Terms, Window
from .base import Scheme, Settings, register
from .tables import OffsetTableScheme


@register
class M1(OffsetTableScheme):
    """``e_ij = s · (q_i·k_j) · a_|j-i|``. ``weight`` is (layers, 1, n).

    Scalars start about 1, where attention is that of a model without positions; about 0 it would not see the words either.

    Symmetric in j - i, it cannot tell left from right in one layer, as the order task of FIDELITY.md asks.
    """

    name = "m1"
    equation = "e = (q·k) a_|j-i| / √d"
    source = "Huang et al. 2020, method 1"

    def __init__(self, settings: Settings, options: Scheme.Options) -> None:
        super().__init__(settings, options)
        self.weight = self.offset_table(offsets=self.clip + 1)
        nn.init.normal_(self.weight, mean=1.0, std=0.02)

    def layer_terms(self, window: Window) -> Sequence[Terms]:
        if not self.takes_any_length:
            self.require_length(window.keys)
        index = self.indexed(window, window.offsets.abs().clamp(max=self.clip), self.clip + 1)
        return [Terms(gains=(Relative(table, index),)) for table in self.weight.unbind()]
