"""fairseq's memory-mapped data set, written as a stream.

``PREFIX.bin`` holds the ids of all items in a row, and ``PREFIX.idx`` says where each is (:mod:`..mmap_index`).
This is what ``fairseq-preprocess`` writes; fairseq's own builder keeps every size in memory and takes one item at a
time.
"""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Annotated

import numpy as np
from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from fairseq_posenc import mmap_index
from fairseq_posenc.errors import InputError
from fairseq_posenc.files import atomic_write
from fairseq_posenc.vocabulary import EOS_ID, UNK_ID

_TYPE_CODES = {np.dtype(np.uint16): 8, np.dtype(np.uint32): 9}
_BLOCK = 1 << 16

Count = Annotated[int, Field(ge=0, lt=1 << 63)]


class Totals(TypedDict):
    """What a writer counts: see ``DatabinWriter.saved``."""

    __pydantic_config__ = ConfigDict(extra="allow")
    items: Count
    tokens: Count
    documents: Count
    text_bytes: Count


TOTALS = tuple(Totals.__annotations__)


class FinalTotals(Totals):
    """And what it knows in the end: see ``DatabinWriter.finish``."""

    unknown: Count
    bytes: Count


FINAL_TOTALS = tuple(FinalTotals.__annotations__)


def is_whole(prefix: Path, totals: dict[str, int]) -> bool:
    """Whether both files have the sizes that they had when ``finish`` gave these totals."""
    expected = {".bin": totals.get("bytes"), ".idx": mmap_index.length(totals["items"])}
    paths = [Path(f"{prefix}{suffix}") for suffix in expected]
    return [path.stat().st_size for path in paths if path.exists()] == list(expected.values())


class DatabinWriter:
    """Writes ``PREFIX.bin`` and ``PREFIX.idx`` in constant memory.

    They take their names in ``finish``. Leaving the ``with`` block without it leaves nothing behind, unless ``saved``
    was called: then the unfinished files stay, for a writer that resumes from there.

    Args:
        prefix: path without the suffix.
        dtype: uint16 or uint32.
        symbols: size of the dictionary.
        saved: what ``saved`` of an earlier writer gave; what it wrote after that is cut off.

    Raises:
        InputError: the unfinished files lack some of what they held when ``saved`` was called.
    """

    def __init__(self, prefix: Path, dtype: np.dtype, symbols: int, saved: dict[str, int] | None = None) -> None:
        self.bin, self.idx = Path(f"{prefix}.bin"), Path(f"{prefix}.idx")
        self.counts = np.zeros(symbols, dtype=np.int64)
        self.totals: Counter[str] = Counter({**dict.fromkeys(TOTALS, 0), **(saved or {})})
        self._dtype = dtype
        self._kept = saved is not None
        self._unfinished = Path(f"{prefix}.bin.partial"), Path(f"{prefix}.sizes.partial")
        if saved is None:
            self._bin, self._sizes = (open(path, "wb") for path in self._unfinished)  # noqa: SIM115 (closed by __exit__)
        else:
            self._reopen()

    def add(self, ids: np.ndarray, sizes: np.ndarray) -> None:
        """Append ``len(sizes)`` items, whose ids lie in a row."""
        self._bin.write(ids.astype(self._dtype, copy=False).tobytes())
        self._sizes.write(sizes.astype(np.int32, copy=False).tobytes())
        self.counts += np.bincount(ids, minlength=len(self.counts))
        self.totals.update(items=len(sizes), tokens=len(ids))

    def add_documents(self, ids: np.ndarray, sizes: np.ndarray, documents: int, text_bytes: int) -> None:
        """Append items in which every document starts with a single ``</s>``; the very first one is dropped."""
        if documents and not self.totals["documents"]:
            ids, sizes = ids[1:], sizes[1:]
        self.add(ids, sizes)
        self.totals.update(documents=documents, text_bytes=text_bytes)

    def add_file(self, prefix: Path, totals: dict[str, int]) -> None:
        """Append all documents of a finished pair of files, which hold ``totals``."""
        if not totals["documents"]:
            return
        if self.totals["documents"]:
            self.add(np.array([EOS_ID]), np.array([1]))
        with open(f"{prefix}.idx", "rb") as index, open(f"{prefix}.bin", "rb") as data:
            items = mmap_index.HEADER.unpack(index.read(mmap_index.HEADER.size))[3]
            for sizes in _blocks(index, np.dtype(np.int32), items):
                self.add(np.fromfile(data, self._dtype, int(sizes.sum())), sizes)
        self.totals.update({key: totals[key] for key in ("documents", "text_bytes")})

    def saved(self) -> dict[str, int]:
        """Put everything so far on the disk; returns what a writer needs to go on from here."""
        self._kept = True
        self._flush()
        return dict(self.totals)

    def finish(self) -> dict[str, int]:
        """Put both files in place; returns what they hold."""
        self._flush()
        os.replace(self._bin.name, self.bin)
        with atomic_write(self.idx, "wb") as index:
            self._write_index(index)
        return {**self.totals, "unknown": int(self.counts[UNK_ID]), "bytes": self.bin.stat().st_size}

    def _flush(self) -> None:
        for stream in (self._bin, self._sizes):
            stream.flush()
            os.fsync(stream.fileno())

    def _reopen(self) -> None:
        data, sizes = self._unfinished
        if self.bin.exists() and not data.exists():  # an earlier writer ended in the middle of finish()
            os.replace(self.bin, data)
        lengths = {data: self.totals["tokens"] * self._dtype.itemsize, sizes: self.totals["items"] * 4}
        for path, length in lengths.items():
            if not path.exists() or path.stat().st_size < length:
                raise InputError(f"{path} is missing or cut short, so nothing can resume from there.")
            os.truncate(path, length)
        with open(data, "rb") as stream:
            for ids in _blocks(stream, self._dtype, self.totals["tokens"]):
                self.counts += np.bincount(ids, minlength=len(self.counts))
        self._bin, self._sizes = (open(path, "ab") for path in self._unfinished)  # noqa: SIM115

    def _write_index(self, index: IO[bytes]) -> None:
        items = self.totals["items"]
        index.write(mmap_index.HEADER.pack(mmap_index.MAGIC, mmap_index.VERSION, _TYPE_CODES[self._dtype], items))
        with open(self._sizes.name, "rb") as stream:
            for sizes in _blocks(stream, np.dtype(np.int32), items):
                index.write(sizes.tobytes())
            stream.seek(0)
            offset = 0
            for sizes in _blocks(stream, np.dtype(np.int32), items):
                ends = offset + np.cumsum(sizes.astype(np.int64) * self._dtype.itemsize)
                index.write(np.concatenate(([offset], ends[:-1])).astype(np.int64).tobytes())
                offset = int(ends[-1])

    def __enter__(self) -> "DatabinWriter":
        return self

    def __exit__(self, *_) -> None:
        for stream in (self._bin, self._sizes):
            stream.close()
        if not self._kept:
            self.discard()

    def discard(self) -> None:
        """Remove the unfinished files."""
        for path in self._unfinished:
            path.unlink(missing_ok=True)


def _blocks(stream: IO[bytes], dtype: np.dtype, number: int) -> Iterator[np.ndarray]:
    """The next ``number`` values of a file, in blocks."""
    while number:
        block = np.fromfile(stream, dtype, min(number, _BLOCK))
        if not len(block):
            raise InputError(f"{stream.name} is cut short by {number * dtype.itemsize} bytes")
        yield block
        number -= len(block)
