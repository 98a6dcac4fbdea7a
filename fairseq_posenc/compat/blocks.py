"""Lines that are longer than a block."""

import numpy as np
from fairseq.data import FairseqDataset, TokenBlockDataset

from ..errors import InputError

MIN_BLOCK_SIZE = 3  # tokens per piece; with fewer, a piece of a cut line could be a single token


class Pieces(FairseqDataset):
    """Lines, with those of more than ``longest`` tokens cut into pieces of that length; the last piece is the rest of the line.

    No piece is a single token: the end of a line alone says nothing, and ``complete_doc`` takes it for the end of a document;
    a last piece takes a token from the one before. Besides the sizes, memory grows only with the number of long lines.

    Args:
        dataset: the lines.
        sizes: tokens of each.
        longest: tokens per piece, at least :data:`MIN_BLOCK_SIZE`.
    """

    def __init__(self, dataset, sizes: np.ndarray, longest: int) -> None:
        super().__init__()
        self._dataset = dataset
        self._longest = longest
        self._lines = np.flatnonzero(sizes > longest)
        self._lengths = sizes[self._lines].astype(np.int64)
        added = -(-self._lengths // longest) - 1  # pieces beyond the first
        self._added = np.concatenate([[0], added.cumsum()])
        self._first = self._lines + self._added[:-1]  # piece of each long line
        self._last = self._lines + self._added[1:]
        self.sizes = np.insert(sizes, np.repeat(self._lines, added), longest)
        self.sizes[self._last] = self._lengths - added * longest
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
        start = self._lengths[long] - size if is_last else (index - self._first[long]) * self._longest
        return self._dataset[line][start : start + size]

    @property
    def supports_prefetch(self) -> bool:
        return getattr(self._dataset, "supports_prefetch", False)

    def prefetch(self, indices) -> None:
        self._dataset.prefetch({self._locate(index)[0] for index in indices})

    def _locate(self, index: int) -> tuple[int, int | None]:
        """The line of a piece, and which of the long lines that is, if any."""
        long = int(self._first.searchsorted(index, side="right")) - 1
        if long >= 0 and index <= self._last[long]:
            return int(self._lines[long]), long
        return int(index - self._added[long + 1]), None


class Blocks(TokenBlockDataset):
    """fairseq's blocks, none longer than ``block_size``, whatever the lines' lengths."""

    def __init__(self, dataset, sizes, block_size, pad, eos, break_mode=None, **options) -> None:
        sizes = np.asarray(sizes)
        if break_mode not in (None, "none") and block_size is not None and sizes.max(initial=0) > block_size:
            if block_size < MIN_BLOCK_SIZE:
                raise InputError(f"blocks of {block_size} tokens are too short to cut lines into: raise --tokens-per-sample")
            dataset = Pieces(dataset, sizes, block_size)
            sizes = dataset.sizes
        super().__init__(dataset, sizes, block_size, pad, eos, break_mode, **options)


def cut_long_lines() -> None:
    """Cut lines of more than ``--tokens-per-sample`` tokens into blocks of that length.

    ``--sample-break-mode complete``, ``complete_doc`` and ``eos`` keep a line whole, however long, and drop a block longer than
    the model's positions: models that take any length would see other data than those that do not, and a line of 200 kB
    would be one block. Can be removed when fairseq cuts them.
    """
    from fairseq.tasks import language_modeling, masked_lm

    masked_lm.TokenBlockDataset = language_modeling.TokenBlockDataset = Blocks


PATCHES = (cut_long_lines,)
