"""fairseq's memory-mapped data set, written as a stream, and read.

``PREFIX.bin`` holds the ids of all items one after another, and ``PREFIX.idx`` the place of each (:data:`HEADER`).
``fairseq-preprocess`` writes the same, but its builder keeps every size in memory and takes one item at a time.
"""

import os
import shutil
import struct
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

from ...base.errors import InputError
from ...base.files import atomic_write, create, partial_of
from ..vocabulary import UNK_ID, Dictionary

MAGIC, VERSION, HEADER = b"MMIDIDX\x00\x00", 1, struct.Struct("<9sQBQ")
"""Of the ``.idx`` file: these two, the code of the ids' type, and the number of items. The size of each item in ids (int32) and
its offset in the ``.bin`` file in bytes (int64) follow."""
_TYPES = dict(enumerate(map(np.dtype, ["u1", "i1", "<i2", "<i4", "<i8", "<f8", "<f8", "<u2", "<u4", "<u8"]), 1))
CHECKED_TOGETHER = 1 << 20
"""Ids of a .bin file, or items of an .idx file, that are in memory at once."""
ADVICE = "Prepare the data again, or copy both files again."
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

    def finish(self) -> None:
        """Put both files in place."""
        self._bin.flush()
        os.fsync(self._bin.fileno())
        os.replace(self._bin.name, self.bin)
        with atomic_write(self.idx, "wb") as index:
            code = {dtype: code for code, dtype in _TYPES.items()}[self._dtype]
            index.write(HEADER.pack(MAGIC, VERSION, code, self.totals["items"]))
            for part in (self._sizes, self._offsets):
                part.seek(0)
                shutil.copyfileobj(part, index)

    def __enter__(self) -> "DatabinWriter":
        return self

    def __exit__(self, *_) -> None:
        for stream in (self._bin, self._sizes, self._offsets):
            stream.close()
        partial_of(self.bin).unlink(missing_ok=True)


def read(prefix: str | Path, dictionary: Dictionary | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of all items, one after another, and the byte at which each item begins; both stay on the disk.

    Raises:
        InputError: the two files are damaged, do not belong together or are empty, or an id is not in the dictionary.
    """
    index = f"{prefix}.idx"
    with open(index, "rb") as file:
        beginning = file.read(HEADER.size)
    magic, version, code, items = HEADER.unpack(beginning.ljust(HEADER.size, b"\0"))
    if len(beginning) == HEADER.size and (version, magic) != (VERSION, MAGIC):
        raise InputError(f"{index} is not of version {VERSION} of fairseq's memory-mapped format. {ADVICE}")
    dtype = _TYPES.get(code)
    if dtype is None or os.path.getsize(index) != HEADER.size + 12 * items:
        raise InputError(f"{index} is damaged, or of another program: its length does not fit its number of items. {ADVICE}")
    if dtype.kind not in "iu":
        raise InputError(f"{index} describes ids of the type {dtype}, and ids are whole numbers. {ADVICE}")
    sizes = np.memmap(index, "<i4", "r", HEADER.size, (items,))
    offsets = np.memmap(index, "<i8", "r", HEADER.size + 4 * items, (items,))
    end, intact = 0, True  # of the items so far, in the .bin file
    for start in range(0, items, CHECKED_TOGETHER):
        lengths = sizes[start : start + CHECKED_TOGETHER].astype(np.int64) * dtype.itemsize
        ends = end + np.cumsum(lengths)
        intact &= bool((lengths >= 0).all() and (offsets[start : start + CHECKED_TOGETHER] == ends - lengths).all())
        end = int(ends[-1])
    if not intact:
        raise InputError(f"{index} is damaged: its items do not follow one another. {ADVICE}")
    if not end:
        raise InputError(f"{prefix}.bin and .idx hold nothing: prepare them from some text, or remove them")
    if end != (held := os.path.getsize(f"{prefix}.bin")):
        raise InputError(f"{prefix}.bin has {held:,} bytes, and its .idx describes {end:,}: they do not match. {ADVICE}")
    ids = np.memmap(f"{prefix}.bin", dtype, "r")
    symbols = np.inf if dictionary is None else len(dictionary)
    for start in range(0, len(ids), CHECKED_TOGETHER):
        for number in (int((part := ids[start : start + CHECKED_TOGETHER]).max()), int(part.min())):
            if number < 0:
                raise InputError(f"{prefix}.bin has the id {number:,}, and ids begin at 0. {ADVICE}")
            if number >= symbols:
                raise InputError(
                    f"{prefix}.bin has the id {number:,}, and its dictionary has {symbols:,} symbols: it is damaged, or "
                    "dict.txt is from another vocabulary. Prepare the data again, or copy dict.txt again from where it was "
                    "prepared."
                )
    return ids, offsets
