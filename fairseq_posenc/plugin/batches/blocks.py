"""Lines that are longer than a block."""

from collections.abc import Iterable

import numpy as np
from fairseq.data import FairseqDataset, ListDataset, TokenBlockDataset
from torch import Tensor

from ...base.errors import InputError

MIN_PIECE = 3  # tokens; with fewer, a piece of a cut line could be a single token


def cut(lengths: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut items after every ``limit`` tokens; return (P,) the item of each piece, and the place there of its first token."""
    pieces = np.maximum(-(-lengths // limit), 1)
    item = np.arange(len(lengths)).repeat(pieces)
    return item, (np.arange(len(item)) - (pieces.cumsum() - pieces)[item]) * limit


class CutLinesDataset(ListDataset):
    """Lines, with those of more than ``max_length`` tokens cut into pieces of that length; the last piece is the rest.

    No piece is a single token, which ``complete_doc`` would take for the end of a document: a last piece takes a token from the
    one before. Apart from the sizes, memory grows only with the number of long lines.

    Args:
        dataset: the lines.
        sizes: tokens of each line.
        max_length: tokens per piece, at least :data:`MIN_PIECE`.
    """

    def __init__(self, dataset: FairseqDataset, sizes: np.ndarray, max_length: int) -> None:
        long = np.flatnonzero(sizes > max_length)
        lengths = sizes[long].astype(np.int64)
        line, self._offset = cut(lengths, max_length)
        self._offset[(self._offset > 0) & (lengths[line] - self._offset == 1)] -= 1
        self._added = np.arange(len(line) + 1) - np.append(line, len(long))  # pieces beyond the first, of the lines before
        self._pieces = long[line] + self._added[:-1]  # of long lines
        sizes = np.insert(sizes, long.repeat(np.bincount(line) - 1), 0)
        sizes[self._pieces] = np.diff((lengths.cumsum() - lengths)[line] + self._offset, append=lengths.sum())
        super().__init__(dataset, sizes)

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: int) -> Tensor:
        line, start = self._locate(index)
        return self.dataset[line][start : start + self.sizes[index]]

    def prefetch(self, indices: Iterable[int]) -> None:
        self.dataset.prefetch({self._locate(index)[0] for index in indices})

    def _locate(self, index: int) -> tuple[int, int]:
        """Return the line of a piece, and the place there of its first token."""
        before = int(self._pieces.searchsorted(index))  # pieces of long lines
        is_long = before < len(self._pieces) and self._pieces[before] == index
        return int(index - self._added[before]), int(self._offset[before]) if is_long else 0


class CutLinesBlockDataset(TokenBlockDataset):
    """fairseq's blocks, none longer than ``block_size``, for lines of any length."""

    def __init__(self, dataset, sizes, block_size, pad, eos, break_mode=None, **options) -> None:
        sizes = np.asarray(sizes)
        if break_mode not in (None, "none") and block_size is not None and sizes.max(initial=0) > block_size:
            if block_size < MIN_PIECE:
                raise InputError(f"blocks of {block_size} tokens are too short to cut lines into: raise --tokens-per-sample")
            dataset = CutLinesDataset(dataset, sizes, block_size)
            sizes = dataset.sizes
        super().__init__(dataset, sizes, block_size, pad, eos, break_mode, **options)
