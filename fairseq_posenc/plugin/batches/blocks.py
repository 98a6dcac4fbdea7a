"""Lines that are longer than a block."""

from collections.abc import Iterable

import numpy as np
from fairseq.data import FairseqDataset, ListDataset, TokenBlockDataset
from fairseq.data.indexed_dataset import best_fitting_int_dtype
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
    one before.

    Args:
        dataset: the lines.
        sizes: tokens of each line.
        max_length: tokens per piece, at least :data:`MIN_PIECE`.
    """

    def __init__(self, dataset: FairseqDataset, sizes: np.ndarray, max_length: int) -> None:
        sizes = sizes.astype(np.int64)
        line, offset = cut(sizes, max_length)
        offset[(offset > 0) & (sizes[line] - offset == 1)] -= 1
        super().__init__(dataset, np.diff((sizes.cumsum() - sizes)[line] + offset, append=sizes.sum()))
        self._line, self._offset = (places.astype(best_fitting_int_dtype(len(line) * max_length)) for places in (line, offset))

    def __len__(self) -> int:
        return len(self._line)

    def __getitem__(self, index: int) -> Tensor:
        start = int(self._offset[index])
        return self.dataset[self._line[index]][start : start + self.sizes[index]]

    def prefetch(self, indices: Iterable[int]) -> None:
        self.dataset.prefetch({self._line[index] for index in indices})


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
