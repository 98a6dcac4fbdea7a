"""Folders that a command may write to.

The record of an output folder, ``fairseq_posenc.json``, names the command that made the folder. A command writes to a folder that
is new, empty or made by itself, replaces there the files that have the names of its own, and leaves all others.
"""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import InputError
from .files import LOCK, atomic_write, partial_of, read, real, report_full_disk, require_writable, sole_writer

RECORD = "fairseq_posenc.json"

Inputs = Iterable[tuple[str, Path]]
"""The flags of a command's inputs, and the files or folders."""


def made_by(folder: Path) -> str | None:
    """Return the command that made a folder; None if the folder has no valid record."""
    try:
        content = json.loads(read(folder / RECORD))
    except (OSError, ValueError, RecursionError):
        return None
    return content["made_by"] if isinstance(content, dict) and isinstance(content.get("made_by"), str) else None


def require_own(folder: Path, by: str, flag: str = "") -> None:
    """Raise InputError or OSError unless a folder can be written, and is new, empty, or made by the command ``by``."""
    name = f"{flag} {folder}".lstrip()
    require_writable(folder, name)
    maker = made_by(folder)
    if maker is None and folder.is_dir() and (others := sorted(filter(_is_content, os.listdir(folder)))):
        raise InputError(f"{name} is not empty, and {by} has not made it ({others[0]} is there): name another folder")
    if maker not in (None, by):
        raise InputError(f"{name} was made by {maker}, not by {by}: name another folder")


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
        with atomic_write(folder / RECORD) as stream:
            stream.write(json.dumps({"made_by": by}) + "\n")


def is_empty(folder: Path) -> bool:
    """Return whether a folder is missing, or has nothing but a record, a lock or a cache of Python."""
    return not folder.is_dir() or not any(map(_is_content, os.listdir(folder)))


@contextmanager
def output(out: Path, by: str, inputs: Inputs = ()) -> Iterator[int]:
    """Check ``--out``, then lock and claim it for one command; yields the lock's file descriptor.

    A full disk is reported as such.

    Raises:
        InputError, OSError: as :func:`require_apart`, :func:`require_own` and :func:`.files.sole_writer`.
    """
    require_apart(out, inputs)
    require_own(out, by, "--out")
    with report_full_disk(out), sole_writer(out) as lock:
        claim(out, by)
        yield lock


def _is_content(name: str) -> bool:
    """Return whether a file in a folder is not a record, a lock or a cache of Python."""
    return name not in (RECORD, partial_of(RECORD).name, "__pycache__") and not name.startswith(LOCK)


def _lies_in(path: Path, folder: Path) -> bool:
    """Return whether ``path`` is the folder or below it, by its name or by the target of a link."""
    return any(_same(above, folder) for p in (real(path.parent) / path.name, real(path)) for above in (p, *p.parents))


def _same(a: Path, b: Path) -> bool:
    try:
        return os.path.samefile(a, b)
    except OSError:  # one of them does not exist
        return real(a) == real(b)
