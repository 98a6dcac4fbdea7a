"""Reading text: UTF-8, one sentence or paragraph a line, a blank line between documents, packed or not."""

import gzip
import hashlib
import io
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

READERS: dict[str, Callable[[BinaryIO], BinaryIO]] = {".gz": gzip.open, ".xz": lzma.open}
"""What unpacks a file, by the end of its name; every other file is read as it is."""

MAX_LINE_BYTES = 16 << 20
PASSAGE_BYTES = 1 << 20
BOM = b"\xef\xbb\xbf"


class Passage(NamedTuple):
    """Neighbouring lines of one document: all of it, or a stretch of one that is too long to be held whole."""

    path: str
    line: int
    """Number of the first line in the file, from 1."""
    text: bytes
    opens_document: bool

    def lines(self) -> list[str]:
        """The decoded lines, without their ends.

        U+0085 (next line) reads as a space: it is the one white-space character that sentencepiece makes a piece of,
        and fairseq splits at it.

        Raises:
            ValueError: naming file, line and byte of what is not UTF-8.
        """
        try:
            text = self.text.decode("utf-8")
        except UnicodeDecodeError as error:
            before = self.text[: error.start]
            line = self.line + before.count(b"\n")
            byte = error.start - (before.rfind(b"\n") + 1) + 1
            raise ValueError(
                f"{self.path}, line {line}, byte {byte}: not UTF-8 ({error.reason}, 0x{self.text[error.start]:02x}). "
                f"Convert the file first, for instance with: iconv -f WINDOWS-1252 -t UTF-8 {self.path}"
            ) from None
        return text.replace("\r\n", "\n").replace("\x85", " ").removesuffix("\n").split("\n")


class MeteredFile(io.RawIOBase):
    """A file that counts and hashes the bytes read from it, which are the packed ones of a packed file."""

    def __init__(self, path: str, on_read: Callable[[int], object] = lambda count: None) -> None:
        super().__init__()
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 (closed with the object)
        self._on_read = on_read
        self._digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        count = self._file.readinto(buffer)
        self._digest.update(memoryview(buffer)[:count])
        self._on_read(count)
        return count

    def close(self) -> None:
        self._file.close()
        super().close()

    def sha256(self) -> str:
        """Of the bytes read so far."""
        return self._digest.hexdigest()


def read_passages(raw: MeteredFile, path: str) -> Iterator[Passage]:
    """The documents of one file in order, in passages of about ``PASSAGE_BYTES`` at most.

    Line ends are LF or CR LF; a byte order mark is dropped; lines of nothing but white space part documents, as the
    ends of files do.

    Raises:
        ValueError: the file is not what its name says it is packed with, or ends early, or a line is absurdly long.
    """
    unpack = READERS.get(os.path.splitext(path)[1], lambda stream: stream)
    stream = io.BufferedReader(unpack(io.BufferedReader(raw, 1 << 20)), 1 << 20)
    lines: list[bytes] = []
    size = number = first = 0
    opens_document = True
    try:
        while line := stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            if number == 1:
                line = line.removeprefix(BOM)
            if len(line) > MAX_LINE_BYTES:
                raise ValueError(
                    f"{path}, line {number}: longer than {MAX_LINE_BYTES >> 20} MiB. One sentence or paragraph a line "
                    "is expected; break the text into lines first."
                )
            if line.isspace() or not line:
                if lines:
                    yield Passage(path, first, b"".join(lines), opens_document)
                lines, size, opens_document = [], 0, True
                continue
            if not lines:
                first = number
            lines.append(line)
            size += len(line)
            if size >= PASSAGE_BYTES:
                yield Passage(path, first, b"".join(lines), opens_document)
                lines, size, opens_document = [], 0, False
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise ValueError(
            f"{path}: cannot be unpacked after line {number} ({error}). The file is damaged or cut short."
        ) from error
    if lines:
        yield Passage(path, first, b"".join(lines), opens_document)
