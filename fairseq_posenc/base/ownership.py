"""Records of the files that a command may overwrite or remove.

The record of an output folder, ``fairseq_posenc.json``, names the command that made the folder and every file that it wrote,
relative to the folder. A file is listed before it is written, and only if no file of that name exists, so that the record
contains the files of a killed command and never those of others. Only listed files are removed, none of them through a link, and
a folder is removed only when it is empty. The :func:`.files.partial_of` a listed file counts as listed.
"""

import fcntl
import json
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from .errors import InputError
from .files import LOCK, atomic_write, partial_of, read, real, report_full_disk, require_writable, sole_writer

RECORD = "fairseq_posenc.json"
FORMAT = 2

Inputs = Iterable[tuple[str, Path]]
"""The flags of a command's inputs, and the files or folders."""


class Record(NamedTuple):
    """The content of a record."""

    made_by: str  # the command
    files: list[str]  # relative to the folder


def made_by(folder: Path) -> str | None:
    """Return the command that made a folder; None if the folder has no valid record."""
    record = _read(folder)
    return record and record.made_by


def require_own(folder: Path, by: str, flag: str = "") -> None:
    """Raise InputError or OSError unless a folder can be written, and is new, empty, or made by the command ``by``."""
    name = f"{flag} {folder}".lstrip()
    require_writable(folder, name)
    record = _read(folder)
    if record is None and folder.is_dir() and (others := sorted(filter(_is_content, os.listdir(folder)))):
        raise InputError(f"{name} is not empty, and {by} has not made it ({others[0]} is there): name another folder")
    if record is not None and record.made_by != by:
        raise InputError(f"{name} was made by {record.made_by}, not by {by}: name another folder")


def require_apart(folder: Path, inputs: Inputs) -> None:
    """Raise InputError if an input is ``folder``, lies in it or contains it, links followed."""
    for input_flag, path in inputs:
        if _lies_in(path, folder):
            raise InputError(f"{input_flag} {path} lies in --out {folder}, which is written over: name another folder")
        if path.is_dir() and _lies_in(folder, path):
            raise InputError(f"--out {folder} lies in {input_flag} {path}, which is read: name another folder")


def require_free(path: Path, flag: str, overwrite: bool = False, inputs: Inputs = ()) -> None:
    """Check that a command may write the single file that ``flag`` names.

    Raises:
        InputError, OSError: it is a folder, cannot be written, is an input, or exists and ``overwrite`` is false.
    """
    if path.is_dir():
        raise IsADirectoryError(f"{flag} {path} is a folder: name a file")
    require_writable(path.parent, f"{path.parent}, of {flag} {path},")
    for input_flag, source in inputs:
        if _same(path, source):
            raise InputError(f"{flag} {path} is {input_flag} {source} itself: name another file")
    if os.path.lexists(path) and not overwrite:
        raise FileExistsError(f"{flag} {path} exists: name another file, or add --overwrite to replace it")


def claim(folder: Path, by: str) -> None:
    """Make a folder with a record, unless ``by`` has made it; raises what :func:`require_own` raises."""
    require_own(folder, by)
    folder.mkdir(parents=True, exist_ok=True)
    if made_by(folder) is None:
        _write(folder, Record(by, []))


def own(*paths: Path) -> Path:
    """Before files are written, list them in the record of the nearest folder above that has one; returns the first path.

    Raises:
        InputError: a file exists that is not listed, or a link leads to its folder.
    """
    with _record_of(paths[0].parent) as (root, record):
        listed = dict.fromkeys(record.files)
        for path in paths:
            if not _is_direct(path, root):
                raise InputError(f"{path.parent}, to which {record.made_by} writes, is or follows a link: name another folder")
            name = str(path.relative_to(root))
            if name not in listed and os.path.lexists(path):
                raise InputError(f"{path} was not made by {record.made_by}: move it away, or name another folder")
            listed[name] = None
        if len(listed) > len(record.files):
            _write(root, record._replace(files=list(listed)))
    return paths[0]


def remove(path: Path, keep: Collection[Path] = ()) -> None:
    """Unlink the listed files in a folder, except ``keep``, or one listed file; remove the folders that are then empty.

    The record is that of the nearest folder, this one or above it, that has one; it is removed with the last file in its folder.

    Raises:
        OSError: a file cannot be removed.
    """
    with _record_of(path) as (root, record):
        # In the order in which they were listed: a command may list first the file without which the others are not used.
        removed = [name for name in record.files if (root / name).is_relative_to(path) and root / name not in keep]
        folders = set()
        for file in (root / name for name in removed):
            if _is_direct(file, root):
                for existing in (file, partial_of(file)):
                    with suppress(IsADirectoryError, NotADirectoryError):
                        existing.unlink(missing_ok=True)
                folders |= {folder for folder in file.parents if folder.is_relative_to(path) and folder != root}
        for folder in sorted(folders, reverse=True):  # the deepest first
            _remove_if_empty(folder)
        rest = [name for name in record.files if name not in set(removed)]
        if removed:
            _write(root, record._replace(files=rest))
        if path == root and not rest and not any(map(_is_content, os.listdir(root))):
            for name in (RECORD, LOCK):
                (root / name).unlink(missing_ok=True)
            _remove_if_empty(root)


def is_empty(folder: Path) -> bool:
    """Return whether a folder is missing, or has nothing but a record, a lock or a cache of Python."""
    return not folder.is_dir() or not any(map(_is_content, os.listdir(folder)))


@contextmanager
def output(out: Path, by: str, inputs: Inputs = ()) -> Iterator[int]:
    """Check ``--out``, then lock and claim it for one command; yields the lock's file descriptor.

    A full disk is reported as such. On exit, files that do not exist are removed from the record.

    Raises:
        InputError, OSError: as :func:`require_apart`, :func:`require_own` and :func:`.files.sole_writer`.
    """
    require_apart(out, inputs)
    require_own(out, by, "--out")
    with report_full_disk(out), sole_writer(out) as lock:
        claim(out, by)
        try:
            yield lock
        finally:
            finish(out)


def finish(folder: Path) -> None:
    """Remove files that were not written from the record of a folder, since others may make them later."""
    record = _read(folder)
    if record is not None:
        exist = [name for name in record.files if any(map(os.path.lexists, (folder / name, partial_of(folder / name))))]
        if exist != record.files:
            _write(folder, record._replace(files=exist))


def _write(folder: Path, record: Record) -> None:
    with atomic_write(folder / RECORD) as stream:
        json.dump({"made_by": record.made_by, "format": FORMAT, "files": record.files}, stream, indent=1)
        stream.write("\n")


def _read(folder: Path) -> Record | None:
    """Return the record of a folder; None if it has none in this format."""
    try:
        content = json.loads(read(folder / RECORD))
    except (OSError, ValueError, RecursionError):
        return None
    match content:
        case {"made_by": str(by), "format": int(number), "files": list(files)} if number == FORMAT:
            if all(isinstance(name, str) and not {"/", ".."} & {*Path(name).parts} for name in files):
                return Record(by, files)
    return None


@contextmanager
def _record_of(path: Path) -> Iterator[tuple[Path, Record]]:
    """Find the nearest folder, this one or above it, that has a record, and lock the record."""
    root = next((folder for folder in (path, *path.parents) if _read(folder) is not None), None)
    if root is None:
        raise LookupError(f"{path} lies in no folder with a record ({RECORD})")
    descriptor = os.open(root, os.O_RDONLY)
    try:
        with suppress(OSError):  # a network file system without such locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        record = _read(root)
        assert record is not None
        yield root, record
    finally:
        os.close(descriptor)


def _is_content(name: str) -> bool:
    """Return whether a file in a folder is not a record, a lock or a cache of Python."""
    return name not in (RECORD, partial_of(RECORD).name, "__pycache__") and not name.startswith(LOCK)


def _is_direct(path: Path, root: Path) -> bool:
    """Return whether no link lies between a folder and the folder of a file below it."""
    return real(path.parent) == real(root) / path.parent.relative_to(root)


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def _lies_in(path: Path, folder: Path) -> bool:
    """Return whether ``path`` is the folder or below it, by its name or by the target of a link."""
    return any(_same(above, folder) for p in (real(path.parent) / path.name, real(path)) for above in (p, *p.parents))


def _same(a: Path, b: Path) -> bool:
    try:
        return os.path.samefile(a, b)
    except OSError:  # one of them does not exist
        return real(a) == real(b)
