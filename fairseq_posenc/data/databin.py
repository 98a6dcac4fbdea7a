"""fairseq's memory-mapped data set, written as a stream.

``PREFIX.bin`` holds the ids of all items in a row; ``PREFIX.idx`` the size of each and where it begins:

    ========== =============== ====================================================
    bytes      type            content
    ========== =============== ====================================================
    9          bytes           ``MMIDIDX\\0\\0``
    8          little uint64   version, 1
    1          uint8           code of the ids' type: 8 for uint16, 9 for uint32
    8          little uint64   number of items, N
    4 N        int32           size of each item, in ids
    8 N        int64           offset of each item in ``PREFIX.bin``, in bytes
    ========== =============== ====================================================

This is what ``fairseq-preprocess`` writes; fairseq's own builder keeps every size in memory and takes one item at a
time.
"""

import os
import struct
from collections import Counter
from pathlib import Path
from typing import IO

import numpy as np

from fairseq_posenc.data.tokenizer import UNK_ID
from fairseq_posenc.files import atomic_write

_TYPE_CODES = {np.dtype(np.uint16): 8, np.dtype(np.uint32): 9}
_BLOCK = 1 << 20


class DatabinWriter:
    """Writes ``PREFIX.bin`` and ``PREFIX.idx`` in constant memory.

    They take their names in ``finish``; leaving the ``with`` block without it leaves nothing behind.

    Args:
        prefix: path without the suffix.
        dtype: uint16 or uint32.
        symbols: size of the dictionary.
    """

    def __init__(self, prefix: Path, dtype: np.dtype, symbols: int) -> None:
        self.bin, self.idx = Path(f"{prefix}.bin"), Path(f"{prefix}.idx")
        self.counts = np.zeros(symbols, dtype=np.int64)
        self.totals: Counter[str] = Counter()
        self._dtype = dtype
        self._bin: IO[bytes] = open(f"{prefix}.bin.partial", "wb")  # noqa: SIM115 (closed by __exit__)
        self._sizes: IO[bytes] = open(f"{prefix}.sizes.partial", "wb")  # noqa: SIM115

    def add(self, ids: np.ndarray, sizes: np.ndarray) -> None:
        """Append ``len(sizes)`` items, whose ids lie in a row."""
        self._bin.write(ids.astype(self._dtype, copy=False).tobytes())
        self._sizes.write(sizes.astype(np.int32, copy=False).tobytes())
        self.counts += np.bincount(ids, minlength=len(self.counts))
        self.totals.update(items=len(sizes), tokens=len(ids))

    def finish(self) -> dict[str, int]:
        """Put both files in place; returns what they hold."""
        for stream in (self._bin, self._sizes):
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(self._bin.name, self.bin)
        with atomic_write(self.idx, "wb") as index:
            self._write_index(index)
        return {**self.totals, "unknown": int(self.counts[UNK_ID]), "bytes": self.bin.stat().st_size}

    def _write_index(self, index: IO[bytes]) -> None:
        index.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQ", 1, _TYPE_CODES[self._dtype], self.totals["items"]))
        with open(self._sizes.name, "rb") as stream:
            while block := stream.read(_BLOCK):
                index.write(block)
            stream.seek(0)
            offset = 0
            while block := stream.read(_BLOCK):
                ends = offset + np.cumsum(np.frombuffer(block, np.int32).astype(np.int64) * self._dtype.itemsize)
                index.write(np.concatenate(([offset], ends[:-1])).astype(np.int64).tobytes())
                offset = int(ends[-1])

    def __enter__(self) -> "DatabinWriter":
        return self

    def __exit__(self, *_) -> None:
        for stream in (self._bin, self._sizes):
            stream.close()
            Path(stream.name).unlink(missing_ok=True)
