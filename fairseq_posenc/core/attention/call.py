"""A call of attention apart from its terms: the kind of call, and which keys are visible."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..terms import is_captured

MIN_TILE = 128
"""Least number of queries in a tile of :meth:`Call.tiles`; at n = 1,024, steps with half of it took up to a quarter longer."""
MIN_TILE_ELSEWHERE = 512
"""The same on other devices than CPUs, which start kernels for each tile and run many queries side by side. It was not timed."""
EVERY = slice(None)
Tile = tuple[slice, slice]  # of the queries and of the keys


@dataclass(frozen=True)
class Call:
    """A kind of call. Backends are chosen by it, so it is a value that compares and hashes."""

    device: torch.device
    dtype: torch.dtype  # of queries, keys and values
    head_dim: int
    queries: int
    keys: int
    dropout: float = 0.0  # probability that applies now, 0 outside training
    weights: bool = False  # whether to return p

    @property
    def start(self) -> int:
        """Position of the first query: queries have the last positions of the keys."""
        return self.keys - self.queries

    @property
    def whole(self) -> Tile:
        """All queries and keys."""
        return slice(0, self.queries), slice(0, self.keys)

    def tiles(self, window: int | None) -> list[Tile]:
        """Blocks of queries, each with the keys that the terms' window leaves visible to some of them.

        It is one block of everything where more save nothing: without a window, or with one that is wide.
        """
        if window is None or is_captured():  # first, as comparing lengths would fix them in what is captured
            return [self.whole]
        block = max(MIN_TILE if self.device.type == "cpu" else MIN_TILE_ELSEWHERE, window)
        if block >= self.queries or block + 2 * window >= self.keys:
            return [self.whole]
        stops = [min(i + block, self.queries) for i in range(0, self.queries, block)]
        starts = [0, *stops[:-1]]
        return [
            (slice(i, stop), slice(max(0, self.start + i - window), min(self.start + stop + window, self.keys)))
            for i, stop in zip(starts, stops, strict=True)
        ]


@dataclass(frozen=True, eq=False)
class Mask:
    """Which keys are visible to a query: all that no field masks.

    Only backends that need a matrix make one. A data loader can give the mask of a batch, so that nobody has to read the tokens
    from the device.
    """

    padding: Tensor | None = None  # (B, K) bool, True at keys that are masked for all queries
    causal: bool = False  # no key after the query
    documents: Tensor | None = None  # (B or 1, K): the start of each position's document; other documents are masked

    def blocked(self, call: Call, window: int | None, queries: slice = EVERY, keys: slice = EVERY) -> Tensor | None:
        """(B or 1, 1, Q or 1, K) bool, True where a key is masked; None if none is masked.

        ``window`` is that of the terms; ``queries`` and ``keys`` cut a tile out.
        """
        masks = [] if self.padding is None else [self.padding[:, None, None, keys]]
        causal = self.causal and call.queries > 1  # all keys are visible to the last query
        reach = window if window is not None and (is_captured() or window < call.keys - 1) else None
        if causal or reach is not None:
            places = torch.arange(call.keys, device=call.device)
            ahead = places[keys] - places[call.start :][queries, None]
            masks += [(ahead > 0)[None, None]] if causal else []
            masks += [] if reach is None else [(ahead.abs() > reach)[None, None]]
        if self.documents is not None:
            masks.append(self.documents[:, None, call.start :][..., queries, None] != self.documents[:, None, None, keys])
        if not masks:
            return None
        total, *others = masks
        for other in others:
            total = total | other
        return total


def cut(x: Tensor | None, *cuts: slice) -> Tensor | None:
    """The cuts of the first dimensions, but for those that are shared and have one row."""
    return None if x is None else x[tuple(part if x.shape[dim] > 1 else slice(None) for dim, part in enumerate(cuts))]
