"""The reset of [CLS] (Ke et al. 2021): its relations to other positions have parameters of their own."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from ...base.errors import InputError
from ..terms import Terms, Window
from .base import Scheme, Settings, register


@register
class Reset(Scheme):
    """``b_0j = θ_1`` for every j, ``b_i0 = θ_2`` for every other i, in place of the sum of the others' biases (section 3.2).

    θ_1 and θ_2 are scalars per head here, unless another scheme makes them (``untied``).

    Vector tables and gains (``m4+reset``) get two rows of their own for the same pairs (Huang et al. 2021, section 5.3).
    ``cls`` is (1, heads, 2), θ_1 and θ_2; there is none where no other scheme has a bias, or one makes them.
    """

    name = "reset"
    equation = "b_0j = θ₁, b_i0 = θ₂"
    source = "Ke et al. 2021, §3.2"
    family, advice = "untied positions (TUPE)", "gives [CLS] scores of its own, in a sum"
    translation_invariant = alone = has_causal_form = False
    share_layers = True

    def __init__(self, settings: Settings, options: Scheme.Options) -> None:
        super().__init__(settings, options)
        self.cls: nn.Parameter | None = self.parameter(2, std=0.02)

    def join(self, others: Sequence[Terms]) -> None:
        if not any(part.biases or part.vectors or part.value_tables or part.gains for part in others):
            raise InputError("'reset' replaces what relates [CLS] to other positions, and no other scheme here relates positions")
        if any(table.index.cls_rows is None for part in others for table in part.vectors + part.value_tables + part.gains):
            raise InputError("'reset' needs rows for [CLS] in every table of vectors, and one of another scheme here has none")
        if not any(part.biases for part in others) or any(part.cls_bias is not None for part in others):
            self.cls = None

    @property
    def general_options(self) -> dict[str, Any]:
        return {} if self.cls is None else super().general_options

    def layer_terms(self, window: Window) -> list[Terms]:
        if self.cls is None:
            return [Terms()]
        return [Terms(cls_bias=thetas, cls_first=window.first) for thetas in self.cls.unbind()]
