"""The formats of files: what a file is by its first bytes or its name, the rows of tables, and the members of archives.

Parquet and Arrow are read by pyarrow, which is an extra, a batch of rows at a time.
"""

import bz2
import gzip
import io
import lzma
import os
import re
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any

from backports import zstd

from ...base.errors import InputError, first_line

PACKINGS: dict[str, tuple[bytes, Callable[..., Any]]] = {
    ".gz": (b"\x1f\x8b", gzip.open),
    ".xz": (b"\xfd7zXZ", lzma.open),
    ".zst": (b"\x28\xb5\x2f\xfd", zstd.open),
    ".bz2": (b"BZh", bz2.open),
}
"""The first bytes of a compressed file, and the function that opens it, by the usual suffix."""
JSON_SUFFIXES = (".jsonl", ".json", ".ndjson")
SEPARATORS = {".csv": ",", ".tsv": "\t"}
PLAIN = (".txt", ".text")
TABLES = (".parquet", ".arrow", ".feather")
SUFFIXES = (*PLAIN, *JSON_SUFFIXES, *SEPARATORS, *TABLES, ".tar", ".tgz", ".zip")
"""What folders and archives are searched for, compressed or not."""
NO_TEXT = re.compile(r"(dataset_info|dataset_dict|state)\.json|cache-.*\.arrow")
"""Files beside those with the rows in a folder of datasets' ``save_to_disk``."""
ARROW_FILE, ARROW_STREAM, PARQUET, ZIP = b"ARROW1", b"\xff\xff\xff\xff", b"PAR1", b"PK\3\4"
TAR, TAR_AT = b"ustar", 257
BUFFER, ROWS = 1 << 20, 1000
"""Bytes that are read, and rows that become Python's objects, at once."""
DAMAGED = (EOFError, lzma.LZMAError, zlib.error, zstd.ZstdError, tarfile.TarError, zipfile.BadZipFile)


def suffixes(path: str) -> tuple[str, str]:
    """Return the suffixes of a file's format and of its compression: ``(".jsonl", ".gz")`` of ``c4.jsonl.gz``."""
    stem, suffix = os.path.splitext(path.lower())
    return (os.path.splitext(stem)[1], suffix) if suffix in PACKINGS else (suffix, "")


def is_text(name: str) -> bool:
    """Return whether a file of a folder or an archive has text, by its name there; one with a hidden part has none."""
    parts = PurePosixPath(name).parts
    hidden = any(part.startswith(".") for part in parts)
    return suffixes(name)[0] in SUFFIXES and not hidden and not NO_TEXT.fullmatch(parts[-1])


@contextmanager
def damage_named(path: str) -> Iterator[None]:
    """Turn the errors of libraries about a file's content into an InputError that names the file."""
    try:
        yield
    except InputError:
        raise
    except (*DAMAGED, OSError, ValueError, RuntimeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise InputError(f"{path}: cannot be unpacked ({first_line(error)}): it is damaged, cut short or encrypted.") from error


def unpacked(raw: Any, path: str) -> io.BufferedReader:
    """Return a file's content, unpacked if its first bytes are those of a compressed file."""
    stream = io.BufferedReader(raw, BUFFER)
    beginning, packing = stream.peek(), suffixes(path)[1]
    for magic, unpack in PACKINGS.values():
        if beginning.startswith(magic):
            return io.BufferedReader(unpack(stream), BUFFER)
    if packing:
        raise InputError(f"{path}: cannot be unpacked: it does not begin as a {packing} file does. Copy it again.")
    return stream


def rows_of(stream: io.BufferedReader, beginning: bytes, path: str, field: str) -> Iterator[dict[str, Any]] | None:
    """Return the rows of a Parquet or Arrow file, with the column that has the field if there is one; None for other files."""
    batches: Iterable[Any]
    if beginning.startswith(PARQUET):
        from pyarrow import parquet

        file = parquet.ParquetFile(stream, buffer_size=BUFFER, pre_buffer=False)
        column = _column(file.schema_arrow.names, path, field)
        batches = file.iter_batches(ROWS, columns=column and [field], use_threads=False)
    elif beginning.startswith((ARROW_FILE, ARROW_STREAM)):
        from pyarrow import ipc

        whole = beginning.startswith(ARROW_FILE)
        reader = (ipc.open_file if whole else ipc.open_stream)(stream)
        column = _column(reader.schema.names, path, field)
        read = map(reader.get_batch, range(reader.num_record_batches)) if whole else reader
        batches = (batch.select([column]) if column else batch for batch in read)
    else:
        return None
    parts = (batch.slice(start, ROWS) for batch in batches for start in range(0, batch.num_rows, ROWS))
    return (row for part in parts for row in part.to_pylist())


def _column(names: list[str], path: str, field: str) -> str | None:
    column = next((name for name in (field, field.partition(".")[0]) if name in names), None)
    if column is not None and names.count(column) > 1:
        raise InputError(f"{path}: {names.count(column)} columns have the name {column!r}")
    return column


def is_archive(beginning: bytes) -> bool:
    """Return whether a file is a zip or tar archive."""
    return beginning.startswith(ZIP) or beginning[TAR_AT:].startswith(TAR)


def members_of(stream: io.BufferedReader, beginning: bytes) -> Iterator[tuple[str, Any]]:
    """Yield the names and files with text in an archive, each to be read before the next."""
    if beginning.startswith(ZIP):
        with zipfile.ZipFile(stream) as archive:
            yield from ((member.filename, archive.open(member)) for member in archive.infolist() if is_text(member.filename))
    else:
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member) as tar:
            yield from ((member.name, _file(tar, member)) for member in tar if member.isfile() and is_text(member.name))


class _Member(tarfile.TarInfo):
    """A member of a tar archive, after whose damaged header tarfile does not end the archive without an error."""

    @classmethod
    def frombuf(cls, buf: Any, encoding: str, errors: str) -> Any:
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:  # of zeros alone at the end of an archive
            raise tarfile.ReadError(str(error)) if not buf or any(buf) else error from None


def _file(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Any:
    """Return a member of a tar archive; a copy of it if it is a table, in which pyarrow seeks."""
    file: Any = archive.extractfile(member)
    if suffixes(member.name)[0] in TABLES or file.peek().startswith((ARROW_FILE, PARQUET)):
        shutil.copyfileobj(file, copy := tempfile.TemporaryFile(), BUFFER)  # noqa: SIM115 - its reader drops it
        copy.seek(0)
        return copy
    return file
