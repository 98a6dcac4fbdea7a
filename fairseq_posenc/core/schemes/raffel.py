"""One learned scalar per offset (Huang et al. 2021, after Raffel et al. 2020)."""

from ..terms import Relative, Terms, Window
from .base import Scheme, Settings, option, register
from .offset_tables import OffsetTableScheme


@register
class Raffel(OffsetTableScheme):
    """``e_ij = s · (q_i·k_j + a_r)`` with ``r = j - i`` (eq. 10). ``weight`` is (layers, 1, 2n-1).

    With ``--raffel-scaled false``, a_r is added to the scaled scores, as in eq. 14 (``untied+raffel``).

    Unlike T5's own bias, the scalar is scaled as the scores are, has no buckets, and each layer has its own.

    Adam moves a scalar by about the learning rate per update, of which s leaves an eighth at d = 64: the order task of
    FIDELITY.md ends before it has learned anything.
    """

    name = "raffel"
    equation = "e = (q·k + a_r) / √d"
    source = "Huang et al. 2021, eq. 10"
    family, advice = "scalar biases by offset", "T5's scalar for every single offset, without buckets"
    resets = False
    honours = (*OffsetTableScheme.honours, "position_scale_factor")

    class Options:
        scaled: bool = option("whether the scalar is scaled as the scores are", True)

    def __init__(self, settings: Settings, options: Scheme.Options) -> None:
        super().__init__(settings, options)
        self.weight = self.offset_table(std=0.02)

    def layer_terms(self, window: Window) -> list[Terms]:
        index = self.offset_index(window)
        table = self.weight * self.settings.scale if self.options.scaled else self.weight
        return [Terms(biases=(Relative(scalars, index),)) for scalars in table.unbind()]
