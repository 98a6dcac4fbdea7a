"""Absolute positions with projections of their own: BERT-A^d of Ke et al. 2021."""

from ..terms import Shift, Terms, Window
from .base import option, register
from .projections import ProjectedPositions


@register
class AbsoluteUntiedProjection(ProjectedPositions):
    """``e_ij = (q_i + p_i U^Q)·(k_j + p_j U^K) / sqrt(4d)``: BERT's absolute positions, projected apart from the words.

    Four terms, so the scale is that of four (Ke et al. 2021, section 4). The forms of U^Q and U^K
    (``--absolute-untied-projection-form``) are those of :class:`.projections.ProjectedPositions`.
    """

    name = "absolute_untied_projection"
    equation = "e = (q + p_i U^Q)·(k + p_j U^K) / √(4d)"
    source = "Ke et al. 2021, BERT-A^d"
    family, advice = "untied positions (TUPE)", "absolute positions with projections of their own (BERT-A^d)"
    interpretable = False
    scale_factor = 4.0

    class Options:
        form: str = option("of the projections of positions", "code", choices=("code", "equation"))

    def layer_terms(self, window: Window) -> list[Terms]:
        return [Terms(transforms=(Shift(queries, keys),)) for queries, keys in self.positions(window)]
