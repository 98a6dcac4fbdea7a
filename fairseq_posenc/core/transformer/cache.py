"""The keys and values that a decoder keeps, so that each step computes only the next token."""

from collections.abc import Callable, Hashable

import torch
from torch import Tensor

from ..schemes import LayerTerms
from ..terms import Window

AHEAD = 64  # positions that terms are first computed for; twice as many whenever they are outgrown

Pair = tuple[Tensor, Tensor]


class Cache:
    """Keys and values of one batch that is being decoded, and the terms of the positions to come.

    Keys are kept as they enter the product, rotated already, or, where terms mix them, as the layers have projected them. Tables
    are kept projected, and inputs of layers are kept whose terms depend on those at all keys. A cache belongs to one decoder and
    to one batch, whose rows :meth:`select` reorders, repeats and removes. ``length`` is its number of tokens.
    """

    def __init__(self) -> None:
        self.length = 0
        self._own: dict[Hashable, tuple[Tensor, ...]] = {}  # (B, H, length, d) each, or (B, length, D)
        self._memory: dict[int, Pair] = {}  # by layer, (B, H, S, d) each
        self._terms: LayerTerms | None = None
        self._computed = 0  # how many positions the terms cover

    def extend(self, key: Hashable, *new: Tensor) -> tuple[Tensor, ...]:
        """What is kept under ``key``, (…, K, d) each, after that of new tokens, (…, Q, d) each, is appended."""
        if key in self._own:
            new = tuple(torch.cat(pair, dim=-2) for pair in zip(self._own[key], new, strict=True))
        self._own[key] = new
        return new

    def memory(self, layer: int, compute: Callable[[], Pair]) -> Pair:
        """A layer's keys and values of the encoder's states, computed once."""
        if layer not in self._memory:
            self._memory[layer] = compute()
        return self._memory[layer]

    def terms(self, window: Window, max_length: int | None, compute: Callable[[Window], LayerTerms]) -> LayerTerms:
        """The terms of one step's window, cut out of those that ``compute`` last returned for up to ``max_length`` positions."""
        if self._terms is None or window.keys > self._computed:
            ahead = max(AHEAD, 2 * window.keys)
            self._computed = ahead if max_length is None else max(window.keys, min(ahead, max_length))
            self._terms = compute(Window(self._computed, causal=True, device=window.device, dtype=window.dtype))
        return self._terms.cut(window)

    @property
    def rows(self) -> int:
        """The number of rows of the batch; 0 before the first step."""
        return next((len(first) for first, *_ in self._own.values()), 0)

    def select(self, rows: Tensor, memory: bool = True) -> None:
        """Continue with these rows of the batch, as beam search chooses them: in any order, repeated or left out.

        Without ``memory``, the rows of the encoder's keys and values stay, since rows with the same ones are exchanged.
        """
        self._own = {key: tuple(x.index_select(0, rows) for x in kept) for key, kept in self._own.items()}
        if memory:
            self._memory = {layer: (k.index_select(0, rows), v.index_select(0, rows)) for layer, (k, v) in self._memory.items()}
