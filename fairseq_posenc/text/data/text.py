"""Reads documents, as lists of lines, from files of text and of rows, compressed, in archives, or plain.

In text, a document ends at a blank line (or at every line) and at the end of the file; elsewhere every row is one.
"""

import csv
import hashlib
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

from ...base.errors import InputError
from ...base.files import sha256
from . import formats

MAX_LINE_BYTES = 16 << 20
MAX_ROW_BYTES = 512 << 20
PASSAGE_BYTES = 1 << 20
BOM = b"\xef\xbb\xbf"
Line = bytes | None
"""A line of text, or None at the end of a document."""

OnRead: TypeAlias = Callable[[int], object]
OnEnd: TypeAlias = Callable[[str], object]


def ignore(_: object) -> None:
    """Do nothing: the default callback of readers."""


class Passage(NamedTuple):
    """Neighbouring lines of one document: all of it, or a part if it is too long to be held in memory."""

    text: bytes  # UTF-8
    opens_document: bool

    def lines(self) -> list[str]:
        """Return the lines, without their ends."""
        text = self.text.decode("utf-8")
        # U+0085 (next line) is the one white-space character that sentencepiece makes a piece of, and fairseq splits at it.
        return text.replace("\r\n", "\n").replace("\x85", " ").removesuffix("\n").split("\n")


class MeteredFile(io.FileIO):
    """A file that counts and hashes the bytes read from it; for a compressed file, the compressed bytes."""

    def __init__(self, path: str, on_read: OnRead = ignore) -> None:
        super().__init__(path)
        self._on_read = on_read
        self._digest, self._hashed = hashlib.sha256(), 0

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer, as all methods of a buffered reader do."""
        follows = self.tell() == self._hashed
        count = super().readinto(buffer)
        if follows:
            self._digest.update(memoryview(buffer)[:count])
            self._hashed += count
        self._on_read(count)
        return count

    def sha256(self) -> str:
        """Return the SHA-256 of the file, which is read again unless it was read from its beginning to its end."""
        return self._digest.hexdigest() if self._hashed == os.path.getsize(self.name) else sha256(self.name)


class BadText(InputError):
    """A line or row that cannot be read.

    Args:
        source: the name of the file or data set.
        number: of the line or row, from 1.
        problem: the rest of the message.
    """

    def __init__(self, source: str, number: int, problem: str) -> None:
        super().__init__(f"{source}, {problem}")
        self.source, self.number = source, number


def refuse(error: Exception) -> None:
    """End reading at an error, such as that of a bad line."""
    raise error from None


class Skipped:
    """Reports the first bad lines, counts all, each once although text is read more than once, and continues."""

    LIMIT = 20

    def __init__(self) -> None:
        self._last: dict[str, int] = {}  # the number of the last bad line of each source
        self.count = 0

    def __call__(self, error: BadText) -> None:
        """Report and count a line."""
        if error.number <= self._last.get(error.source, 0):
            return
        self._last[error.source] = error.number
        self.count += 1
        if self.count <= self.LIMIT:
            last = "; further lines are skipped without a message" if self.count == self.LIMIT else ""
            print(f"skipped: {error}{last}", file=sys.stderr)


class Layout(NamedTuple):
    """The format of documents in files."""

    text_field: str = "text"  # of each row, with dots for fields of fields
    document_per_line: bool = False  # in text: every line is a document; otherwise a blank line separates them
    on_bad: Callable[[BadText], None] = refuse  # called with the error of every line or row that cannot be read


def read_passages(raw: Any, path: str, layout: Layout) -> Iterator[Passage]:
    """Give the documents of one file in order, in passages of about ``PASSAGE_BYTES`` at most.

    Compression, tables of pyarrow and archives are known by their first bytes; CSV and TSV by the suffix, and JSON lines by the
    suffix or, where the suffix is of no format, by a brace. Line ends are LF or CR LF; a byte order mark is dropped; lines of
    nothing but white space, Unicode's included, are dropped.

    Args:
        raw: the file, open for reading bytes. Parquet, Arrow and zip seek in it.

    Raises:
        InputError: the file is not compressed as its name implies, or ends early, or has other line ends or a line that is too
            long; and what ``layout.on_bad`` raises.
    """
    with formats.damage_named(path):
        stream = formats.unpacked(raw, path)
        beginning, kind = stream.peek(), formats.suffixes(path)[0]
        rows: Iterable[Any] | None = formats.rows_of(stream, beginning, path, layout.text_field)
        if formats.is_archive(beginning):
            name = ""
            for name, member in formats.members_of(stream, beginning):
                yield from read_passages(member, f"{path}:{name}", layout)
            if not name:
                raise InputError(f"{path}: no text in this archive; looked for {', '.join(formats.SUFFIXES)}")
            return
        if rows is None and kind in formats.SEPARATORS:
            rows = _fields(stream, path, formats.SEPARATORS[kind])
        begins_with_brace = beginning.removeprefix(BOM).lstrip().startswith(b"{")
        if rows is not None:
            lines = _parsed(enumerate(rows, start=1), _of_row, path, layout, "row {}: {}")
        elif kind in formats.JSON_SUFFIXES or (kind not in formats.PLAIN and begins_with_brace):
            problem = "line {}: not a row with a text ({}); expected a JSON object per line"
            lines = _parsed(_lines(stream, path, MAX_ROW_BYTES), _of_json, path, layout, problem)
        else:
            lines = _parsed(_lines(stream, path, MAX_LINE_BYTES), _of_line, path, layout, "line {}: {}")
        yield from _grouped(lines)


def _parsed(
    rows: Iterable[tuple[int, Any]], parse: Callable[[Any, Layout], list[Line]], path: str, layout: Layout, problem: str
) -> Iterator[Line]:
    """Yield the lines in numbered rows; where ``parse`` raises an error, call ``layout.on_bad`` with the ``problem``."""
    for number, row in rows:
        try:
            lines = parse(row, layout)
        except (ValueError, RecursionError) as error:
            layout.on_bad(BadText(path, number, problem.format(number, error)))
        else:
            yield from lines


def _grouped(lines: Iterable[Line]) -> Iterator[Passage]:
    """Yield lines as passages; the end of the last document need not be marked."""
    kept: list[bytes] = []
    size, opens_document = 0, True
    for line in chain(lines, [None]):
        if line is not None:
            kept.append(line)
            size += len(line)
        if kept and (line is None or size >= PASSAGE_BYTES):
            yield Passage(b"".join(kept), opens_document)
            kept, size, opens_document = [], 0, False
        if line is None:
            opens_document = True


def _document_lines(text: str) -> list[Line]:
    """Return the lines of a whole document, and its end.

    Raises:
        InputError: the text holds NUL characters, or half of a surrogate pair, which no UTF-8 can hold.
    """
    if "\0" in text:
        raise InputError("it holds a NUL character")
    try:
        return [*(line.encode("utf-8") + b"\n" for line in text.split("\n") if line.strip()), None]
    except UnicodeEncodeError as error:
        raise InputError(f"not UTF-8: {error.reason}") from None


def _lines(stream: Any, path: str, max_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Yield every line with its number; one of nothing but white space is empty."""
    _require_text(stream.peek(4)[:4], path)
    for number, line in enumerate(iter(partial(stream.readline, max_bytes + 1), b""), start=1):
        if number == 1 and b"\r" in line and not line.endswith(b"\n"):
            raise InputError(f"{path}: CR line ends. Convert the file first: tr '\\r' '\\n' < {path}")
        if len(line) > max_bytes:
            raise InputError(
                f"{path}, line {number}: longer than {max_bytes >> 20} MiB. Break the text into lines of a sentence or "
                "paragraph first, or into more rows."
            )
        line = line.removeprefix(BOM) if number == 1 else line
        yield number, b"" if line.decode("utf-8", "replace").isspace() else line


def _require_text(beginning: bytes, path: str) -> None:
    if beginning.startswith((b"7z\xbc\xaf", b"FEA1")):
        raise InputError(f"{path}: a format that is not read, 7z or Feather 1. Convert it first.")
    encoding = json.detect_encoding(beginning).upper()  # by a byte order mark, or by where the NUL bytes of ASCII letters are
    if not encoding.startswith("UTF-8"):
        encoding = re.sub("-([BL]E)", r"\1", encoding)
        raise InputError(f"{path}: {encoding}, not UTF-8. Convert the file first: iconv -f {encoding} -t UTF-8 {path}")


def _of_line(line: bytes, layout: Layout) -> list[Line]:
    if not line:
        return [None]
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"not UTF-8 at byte {error.start + 1} ({error.reason}, 0x{line[error.start]:02x}). Convert the file first, for "
            "instance with: iconv -f WINDOWS-1252 -t UTF-8"
        ) from None
    if b"\0" in line:
        raise InputError("a NUL character. The file is UTF-16 or UTF-32, or not text.")
    return [line, None] if layout.document_per_line else [line]


def _of_json(row: bytes, layout: Layout) -> list[Line]:
    return _of_row(json.loads(row), layout) if row else []


def _fields(stream: Any, path: str, separator: str) -> Iterator[dict[str | None, Any]]:
    """Yield the rows of CSV by the names in its first row."""
    csv.field_size_limit(MAX_ROW_BYTES)
    lines = (line.decode("utf-8", "surrogateescape") for _, line in _lines(stream, path, MAX_ROW_BYTES))
    reader, last = csv.DictReader(lines, delimiter=separator, strict=True), 1
    try:
        for row in reader:
            yield row
            last = reader.line_num
    except csv.Error as error:
        raise InputError(f"{path}, after line {last}: a row with quotes that do not match ({error})") from None


def _of_row(row: object, layout: Layout) -> list[Line]:
    """Return the lines of a row, in whose field ``doc.body`` is that named ``body`` of ``doc`` unless it is a name itself.

    Raises:
        InputError: the row is not an object that has a string in this field.
    """
    field = layout.text_field
    if not isinstance(row, dict):
        raise InputError("not a JSON object")
    if None in row:
        raise InputError("more fields than names in the first row; a field that has the separator is in quotes")
    value: Any = row
    for name in [field] if field in row else field.split("."):
        if not isinstance(value, dict) or name not in value:
            raise InputError(f"no field {field!r} among {', '.join(map(repr, row))}; name another with --text-field")
        value = value[name]
    if not isinstance(value, str):
        raise InputError(f"its {field!r} is not a string")
    return _document_lines(value)
