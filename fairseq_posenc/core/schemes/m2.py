"""Method 2 of Huang et al. 2020: a scalar for each signed offset, multiplied with the score."""

from torch import nn

from ..terms import Relative, Terms, Window
from .base import Scheme, Settings, register
from .offset_tables import OffsetTableScheme


@register
class M2(OffsetTableScheme):
    """``e_ij = s · (q_i·k_j) · a_r`` with ``r = j - i`` (eq. 11). ``weight`` is (layers, 1, 2n-1) and starts about 1, as M1's.

    All offsets start nearly equal. In the order task of FIDELITY.md its accuracy is 0.85 after 500 updates, and stays below 0.9.
    """

    name = "m2"
    equation = "e = (q·k) a_r / √d"
    source = "Huang et al. 2021, eq. 11"
    family, advice = "scalar factors by offset", "a factor of the scores for each offset"

    def __init__(self, settings: Settings, options: Scheme.Options) -> None:
        super().__init__(settings, options)
        self.weight = self.offset_table()
        nn.init.normal_(self.weight, mean=1.0, std=0.02)

    def layer_terms(self, window: Window) -> list[Terms]:
        index = self.offset_index(window)
        return [Terms(gains=(Relative(table, index),)) for table in self.weight.unbind()]
