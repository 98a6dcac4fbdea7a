"""fairseq's memory-mapped data set, written as a stream.

``PREFIX.bin`` holds the ids of all items one after another, and ``PREFIX.idx`` the place of each (:data:`..files.INDEX_HEADER`).
``fairseq-preprocess`` writes the same, but its builder keeps every size in memory and takes one item at a time.
"""

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from ...base.files import INDEX_HEADER, INDEX_MAGIC, INDEX_VERSION, atomic_write, create, partial_of
from ..vocabulary import UNK_ID

_TYPE_CODES = {np.dtype(np.uint16): 8, np.dtype(np.uint32): 9}
_BLOCK = 1 << 16
COUNTS = ("items", "tokens", "documents", "text_bytes", "unknown", "spelled")
"""The totals that a writer counts; ``spelled`` are the places where the text itself has the name of <unk>."""


def files_of(prefix: Path) -> list[Path]:
    """Return the files that a :class:`DatabinWriter` writes."""
    return [Path(f"{prefix}.bin"), Path(f"{prefix}.idx")]


class DatabinWriter:
    """Writes ``PREFIX.bin`` and ``PREFIX.idx`` in constant memory.

    The files get their names in ``finish``; without it, the end of the ``with`` block removes them.

    Args:
        dtype: uint16 or uint32.
        symbols: size of the dictionary.
    """

    def __init__(self, prefix: Path, dtype: np.dtype, symbols: int) -> None:
        self.bin, self.idx = files_of(prefix)
        self.counts = np.zeros(symbols, dtype=np.int64)  # how often each symbol occurs
        self.totals: Counter[str] = Counter(dict.fromkeys(COUNTS, 0))
        self._dtype = dtype
        self._sizes = tempfile.TemporaryFile(dir=self.bin.parent)  # noqa: SIM115 (both are closed by __exit__)
        self._bin = create(partial_of(self.bin), "wb")

    def add(self, ids: np.ndarray, sizes: np.ndarray) -> None:
        """Append ``len(sizes)`` items, whose ids follow one another."""
        self._bin.write(ids.astype(self._dtype, copy=False).tobytes())
        self._sizes.write(sizes.astype(np.int32, copy=False).tobytes())
        counts = np.bincount(ids, minlength=len(self.counts))
        self.counts += counts
        self.totals.update(items=len(sizes), tokens=len(ids), unknown=int(counts[UNK_ID]))

    def add_documents(self, ids: np.ndarray, sizes: np.ndarray, documents: int, text_bytes: int, spelled: int) -> None:
        """Append items in which every document starts with a single ``</s>``; the very first one is dropped."""
        if documents and not self.totals["documents"]:
            ids, sizes = ids[1:], sizes[1:]
        self.add(ids, sizes)
        self.totals.update(documents=documents, text_bytes=text_bytes, spelled=spelled)

    def finish(self) -> dict[str, int]:
        """Put both files in place; returns the totals."""
        self._bin.flush()
        os.fsync(self._bin.fileno())
        os.replace(self._bin.name, self.bin)
        with atomic_write(self.idx, "wb") as index:
            self._write_index(index)
        return dict(self.totals)

    def _write_index(self, index: IO[bytes]) -> None:
        items = self.totals["items"]
        index.write(INDEX_HEADER.pack(INDEX_MAGIC, INDEX_VERSION, _TYPE_CODES[self._dtype], items))
        for sizes in self._blocks():
            index.write(sizes.tobytes())
        offset = 0
        for sizes in self._blocks():
            ends = offset + np.cumsum(sizes.astype(np.int64) * self._dtype.itemsize)
            index.write(np.concatenate(([offset], ends[:-1])).astype(np.int64).tobytes())
            offset = int(ends[-1])

    def _blocks(self) -> Iterator[np.ndarray]:
        self._sizes.seek(0)
        while block := self._sizes.read(4 * _BLOCK):
            yield np.frombuffer(block, np.int32)

    def __enter__(self) -> "DatabinWriter":
        return self

    def __exit__(self, *_) -> None:
        self._sizes.close()
        self._bin.close()
        partial_of(self.bin).unlink(missing_ok=True)
