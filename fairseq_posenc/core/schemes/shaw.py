"""Relative position representations (Shaw et al. 2018)."""

from torch import nn

from ..terms import Relative, Terms, Window
from .base import Settings, option, register
from .offset_tables import OffsetTableScheme


@register
class Shaw(OffsetTableScheme):
    """``e_ij = s · (q_i·k_j + q_i·a^K_r)`` and ``z_i = Σ_j p_ij (v_j + a^V_r)`` with ``r = clip(j - i, k)`` (eq. 3, 4).

    ``keys`` and ``values`` are (layers, 1, 2k+1, d): one table per layer, shared by the heads.
    """

    name = "shaw"
    equation = "e = (q·k + q·a^K_r) / √d,  z = Σ p (v + a^V_r)"
    source = "Shaw et al. 2018, eq. 3, 4"
    family, advice = "vectors by offset", "offsets meet queries and values: good from little training, slower than biases"
    interpretable = False
    inductive = True

    class Options:
        terms: str = option("which tables there are: a^K, a^V or both", "both", choices=("both", "keys", "values"))

    keys: nn.Parameter | None
    values: nn.Parameter | None

    def __init__(self, settings: Settings, options: Options) -> None:
        super().__init__(settings, options)
        for name in ("keys", "values"):
            table = self.offset_table(settings.head_dim, std=0.02) if options.terms in ("both", name) else None
            self.register_parameter(name, table)

    def layer_terms(self, window: Window) -> list[Terms]:
        index = self.offset_index(window)

        def relative(parameter: nn.Parameter | None) -> list[tuple[Relative, ...]]:
            if parameter is None:
                return [()] * self.layer_sets
            return [(Relative(table, index),) for table in parameter.unbind()]

        return [
            Terms(query_tables=keys, value_tables=values)
            for keys, values in zip(relative(self.keys), relative(self.values), strict=True)
        ]
