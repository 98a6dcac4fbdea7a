"""Documents packed into rows by best fit, for data sets of any size.

Best-fit decreasing takes the documents from the longest to the shortest, and puts each into the fullest row that has room for it.
The rows with the same room are interchangeable. So the row is found without a search: the rooms that rows have are the bits of a
number. A million documents take one to five seconds, the more the longer the rows.
"""

from collections import deque

import numpy as np
import torch
from fairseq.data import FairseqDataset, ListDataset, TokenBlockDataset
from fairseq.data.indexed_dataset import best_fitting_int_dtype
from torch import Tensor

from .blocks import cut

CHUNK = 1 << 20  # documents that are packed together, neighbours in the data-bin; it bounds the memory that packing takes


class DocumentsDataset(TokenBlockDataset):
    """Documents, of which those of more than ``block_size`` tokens are cut after every so many.

    An item of ``dataset`` is a line with its end, and a line of one token is empty: it ends a document.
    """

    @staticmethod
    def _build_slice_indices(
        sizes: np.ndarray, break_mode: str | None, document_sep_len: int, block_size: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return tokens per piece, its first line, offset there and last line, and its first and last token in the data."""
        ends = np.cumsum(sizes, dtype=np.int64)
        changes = np.flatnonzero(np.diff(sizes > document_sep_len, prepend=False, append=False))
        starts, stops = np.concatenate([[0], ends])[changes].reshape(-1, 2).T
        document, offset = cut(stops - starts, block_size)
        begin = starts[document] + offset
        slices = np.stack([begin, np.minimum(stops[document], begin + block_size)], 1)
        first, last = ends.searchsorted(slices - [0, 1], side="right").T
        lines = np.stack([first, slices[:, 0] - (ends[first] - sizes[first]), last], 1)
        dtype = best_fitting_int_dtype(ends[-1])
        lengths = (slices[:, 1] - slices[:, 0]).astype(np.uint16 if block_size < 65535 else np.uint32)  # as fairseq's
        return lengths, lines.astype(dtype), slices.astype(dtype)


class PackedDocumentsDataset(ListDataset):
    """Rows of whole documents. They depend on the documents and the capacity alone.

    Besides the documents, memory has 8 bytes per document and 16 per row.

    Args:
        documents: documents of at most ``capacity`` tokens.
        capacity: tokens per row, at most.
    """

    def __init__(self, documents: FairseqDataset, capacity: int) -> None:
        lengths = np.asarray(documents.sizes)
        order, ends, filled = [], [], []
        for start in range(0, len(lengths), CHUNK):
            chunk = lengths[start : start + CHUNK]
            rows = best_fit(chunk, capacity)
            order.append(start + rows.argsort(kind="stable"))
            ends.append(start + np.bincount(rows).cumsum())
            filled.append(np.bincount(rows, weights=chunk).astype(np.int64))
        super().__init__(documents, np.concatenate(filled))
        self._order, self._ends = np.concatenate(order), np.concatenate(ends)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> Tensor:
        return torch.cat([self.dataset[document] for document in self.documents(index)])

    def documents(self, index: int) -> np.ndarray:
        """Return the indices of the documents in a row, in ascending order."""
        return self._order[self._ends[index - 1] if index else 0 : self._ends[index]]

    def prefetch(self, indices: list[int]) -> None:
        self.dataset.prefetch(np.concatenate([self.documents(index) for index in indices]))


def best_fit(lengths: np.ndarray, capacity: int) -> np.ndarray:
    """Return (N,) the row, numbered from 0, of each of the ``lengths`` (N,) by best-fit decreasing.

    Args:
        lengths: from 1 to ``capacity``.
        capacity: of a row.
    """
    row_of, count = np.empty(len(lengths), np.int64), 0
    rows_with = [deque[int]() for _ in range(capacity + 1)]  # by the room that is left
    rooms = 0  # bit r: there is a row with room for r tokens
    order = lengths.argsort(kind="stable")[::-1]
    for item, length in zip(order.tolist(), lengths[order].tolist(), strict=True):
        fitting = rooms >> length
        if fitting:
            room = length + (fitting & -fitting).bit_length() - 1
            row = rows_with[room].popleft()
            if not rows_with[room]:
                rooms ^= 1 << room
        else:
            room, row = capacity, count
            count += 1
        row_of[item] = row
        rows_with[room - length].append(row)
        rooms |= 1 << (room - length)
    return row_of
