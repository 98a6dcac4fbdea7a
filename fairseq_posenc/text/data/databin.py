"""fairseq's memory-mapped data set, written as a stream.

``PREFIX.bin`` holds the ids of all items one after another, and ``PREFIX.idx`` the place of each (:data:`..files.INDEX_HEADER`).
``fairseq-preprocess`` writes the same, but its builder keeps every size in memory and takes one item at a time.
"""

import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

from ...base.files import INDEX_HEADER, INDEX_MAGIC, INDEX_VERSION, atomic_write, create, partial_of
from ..vocabulary import UNK_ID

_TYPE_CODES = {np.dtype(np.uint16): 8, np.dtype(np.uint32): 9}
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
        self._sizes = tempfile.TemporaryFile(dir=self.bin.parent)  # noqa: SIM115 - all three are closed by __exit__
        self._offsets = tempfile.TemporaryFile(dir=self.bin.parent)  # noqa: SIM115
        self._bin = create(partial_of(self.bin), "wb")

    def add(self, ids: np.ndarray, sizes: np.ndarray, **totals: int) -> None:
        """Append ``len(sizes)`` items, whose ids follow one another, and others of the ``COUNTS``.

        If there are ``documents``, each begins with an item that is a single ``</s>``; the very first one is dropped.
        """
        if totals.get("documents") and not self.totals["documents"]:
            ids, sizes = ids[1:], sizes[1:]
        start = self._bin.tell()
        self._bin.write(ids.astype(self._dtype, copy=False).tobytes())
        self._sizes.write(sizes.astype(np.int32, copy=False).tobytes())
        ends = sizes.cumsum(dtype=np.int64)
        self._offsets.write((start + (ends - sizes) * self._dtype.itemsize).tobytes())
        counts = np.bincount(ids, minlength=len(self.counts))
        self.counts += counts
        self.totals.update(totals, items=len(sizes), tokens=len(ids), unknown=int(counts[UNK_ID]))

    def finish(self) -> dict[str, int]:
        """Put both files in place; returns the totals."""
        self._bin.flush()
        os.fsync(self._bin.fileno())
        os.replace(self._bin.name, self.bin)
        with atomic_write(self.idx, "wb") as index:
            index.write(INDEX_HEADER.pack(INDEX_MAGIC, INDEX_VERSION, _TYPE_CODES[self._dtype], self.totals["items"]))
            for part in (self._sizes, self._offsets):
                part.seek(0)
                shutil.copyfileobj(part, index)
        return dict(self.totals)

    def __enter__(self) -> "DatabinWriter":
        return self

    def __exit__(self, *_) -> None:
        for stream in (self._bin, self._sizes, self._offsets):
            stream.close()
        partial_of(self.bin).unlink(missing_ok=True)
