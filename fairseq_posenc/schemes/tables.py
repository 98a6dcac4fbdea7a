"""What schemes with one learned row per offset have in common."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ..terms import RelativeIndex, Window
from .base import Scheme, Settings


class OffsetTableScheme(Scheme):
    """A scheme whose tables have a row for each offset ``-k … k``, and two for [CLS] where the composition resets it.

    k is ``--max-relative-position``, or else the greatest offset that occurs, ``max_positions - 1``. Offsets beyond an
    explicit k are clipped to it; without one, sequences longer than ``max_positions`` are refused unless ``inductive``.
    """

    inductive = False
    share_heads = True
    honours = ("max_relative_position", *Scheme.honours)
    resets = True  # whether its tables have rows for [CLS]; scalar biases leave them to the scheme ``reset``

    def __init__(self, settings: Settings, options: Any) -> None:
        super().__init__(settings, options)
        self.clip = self.general("max_relative_position")

    @property
    def takes_any_length(self) -> bool:
        return self.inductive or self.settings.options.max_relative_position is not None

    @property
    def has_cls_rows(self) -> bool:
        return self.resets and self.settings.reset

    def offset_table(self, *width: int, offsets: int | None = None) -> nn.Parameter:
        """An uninitialised table (layers or 1, heads or 1, rows, *width)."""
        return self.parameter((2 * self.clip + 1 if offsets is None else offsets) + 2 * self.has_cls_rows, *width)

    def offset_index(self, window: Window) -> RelativeIndex:
        """Row ``clip(j - i, k) + k``; the last two rows are those of [CLS]."""
        if not self.takes_any_length:
            self.require_length(window.keys)
        return self.indexed(window, window.offsets.clamp(-self.clip, self.clip) + self.clip, 2 * self.clip + 1)

    def indexed(self, window: Window, rows: Tensor, offsets: int) -> RelativeIndex:
        """An index by ``rows`` over a table of so many offsets, followed by the rows of [CLS] where there are any."""
        return RelativeIndex(window, rows, (offsets, offsets + 1) if self.has_cls_rows else None)
