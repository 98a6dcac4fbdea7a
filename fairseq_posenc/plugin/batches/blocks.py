"""Lines that are longer than a block."""

import numpy as np
from fairseq.data import FairseqDataset, TokenBlockDataset

from ...base.errors import InputError

MIN_PIECE = 3  # tokens; with fewer, a piece of a cut line could be a single token


class CutLinesDataset(FairseqDataset):
    """Lines, with those of more than ``max_length`` tokens cut into pieces of that length; the last piece is the rest.

    No piece is a single token, which ``complete_doc`` would take for the end of a document: a last piece takes a token from the
    one before. Apart from the sizes, memory grows only with the number of long lines.

    Args:
        dataset: the lines.
        sizes: tokens of each line.
        max_length: tokens per piece, at least :data:`MIN_PIECE`.
    """

    def __init__(self, dataset, sizes: np.ndarray, max_length: int) -> None:
        super().__init__()
        self._dataset = dataset
        self._max_length = max_length
        self._lines = np.flatnonzero(sizes > max_length)
        self._lengths = sizes[self._lines].astype(np.int64)
        added = -(-self._lengths // max_length) - 1  # pieces beyond the first
        self._added = np.concatenate([[0], added.cumsum()])
        self._first = self._lines + self._added[:-1]  # piece of each long line
        self._last = self._lines + self._added[1:]
        self.sizes = np.insert(sizes, np.repeat(self._lines, added), max_length)
        self.sizes[self._last] = self._lengths - added * max_length
        single = self._last[self.sizes[self._last] == 1]
        self.sizes[single] += 1
        self.sizes[single - 1] -= 1

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: int):
        line, long = self._locate(index)
        if long is None:
            return self._dataset[line]
        size = int(self.sizes[index])
        is_last = index == self._last[long]
        start = self._lengths[long] - size if is_last else (index - self._first[long]) * self._max_length
        return self._dataset[line][start : start + size]

    @property
    def supports_prefetch(self) -> bool:
        return getattr(self._dataset, "supports_prefetch", False)

    def prefetch(self, indices) -> None:
        self._dataset.prefetch({self._locate(index)[0] for index in indices})

    def _locate(self, index: int) -> tuple[int, int | None]:
        """Return the line of a piece, and the number of that line among the long ones, if it is one."""
        long = int(self._first.searchsorted(index, side="right")) - 1
        if long >= 0 and index <= self._last[long]:
            return int(self._lines[long]), long
        return int(index - self._added[long + 1]), None


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
