"""The base of schemes that learn one row per offset."""

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
    signed = True  # whether j - i and i - j have rows of their own
    resets = True  # whether its tables have rows for [CLS]; scalar biases leave them to the scheme ``reset``

    def __init__(self, settings: Settings, options: Any) -> None:
        super().__init__(settings, options)
        self.clip = self.general("max_relative_position")
        self.offsets = 2 * self.clip + 1 if self.signed else self.clip + 1  # rows for them

    @property
    def takes_any_length(self) -> bool:
        return self.inductive or self.settings.options.max_relative_position is not None

    @property
    def has_cls_rows(self) -> bool:
        return self.resets and self.settings.reset

    def offset_table(self, *width: int, std: float | None = None) -> nn.Parameter:
        """A table (layers or 1, heads or 1, rows, *width), as :meth:`parameter`."""
        return self.parameter(self.offsets + 2 * self.has_cls_rows, *width, std=std)

    def offset_index(self, window: Window) -> RelativeIndex:
        """Row ``clip(j - i, k) + k``, or ``min(|j - i|, k)`` unless ``signed``; the last two rows are those of [CLS]."""
        (self.require_whole if self.takes_any_length else self.require_rows)(window)
        clipped = window.offsets.clamp(-self.clip, self.clip)
        return self.indexed(window, clipped + self.clip if self.signed else clipped.abs())

    def indexed(self, window: Window, rows: Tensor) -> RelativeIndex:
        """An index by ``rows``, one per offset of the window, over a table of :attr:`offsets` rows and those of [CLS] if any."""
        return RelativeIndex(window, rows, (self.offsets, self.offsets + 1) if self.has_cls_rows else None)
