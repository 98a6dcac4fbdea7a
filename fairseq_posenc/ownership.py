"""Who made a folder, and what may therefore be removed.

A command removes only a folder with a record that it made it, and never one that holds one of its inputs.

The record is ``fairseq_posenc.json``. It is the first thing in a folder and the last to go, so that what a kill leaves behind
carries it too. A finished folder's record lists what is in it: everything else there is somebody else's.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import InputError
from .files import LOCK, atomic_write, full_disk_named, partial_of, real, require_writable, sole_writer

RECORD = "fairseq_posenc.json"
FORMAT = 1

Inputs = Iterable[tuple[str, Path]]
"""What a command reads: the flag, and the file or folder."""
Earlier = Callable[[Path], bool]
"""Whether a folder without a record is one that an earlier release of the command made, by what that left in it."""


def _never(folder: Path) -> bool:
    return False


def made_by(folder: Path) -> str | None:
    """The command that made a folder; None where it has no record."""
    return _record(folder).get("made_by")


def has_keys(path: Path, *keys: str) -> bool:
    """Whether a file is a JSON object with these keys, as a record of an earlier release is."""
    return set(keys) <= _read(path).keys()


def left(pattern: str, *keys: str) -> Earlier:
    """Folders in which an earlier release left a JSON object with these keys; where, ``pattern`` says as for ``glob``."""
    return lambda folder: any(has_keys(path, *keys) for path in folder.glob(pattern))


def require_own(folder: Path, by: str, earlier: Earlier = _never, flag: str = "") -> None:
    """Check that there is no such folder, that it is empty, or that ``by`` made everything in it.

    Raises:
        InputError, OSError: it holds something else, is a file, or cannot be written.
    """
    called = f"{flag} {folder}".lstrip()
    require_writable(folder, called)
    if not folder.is_dir():
        return
    found = sorted(_contents(folder))
    owner = made_by(folder)
    if found and owner is None and not earlier(folder):
        raise InputError(f"{called} is not empty, and {by} has not made it ({found[0]} is there): name another folder")
    if owner not in (None, by):
        raise InputError(f"{called} was made by {owner}, not by {by}: name another folder")
    known = _record(folder).get("contents", found)
    others = [name for name in found if name not in known]
    if others:
        raise InputError(f"{folder / others[0]} was not made by {by}: move it away, or name another folder")


def require_apart(folder: Path, inputs: Inputs, flag: str = "--out") -> None:
    """Check that no input is ``folder``, in it or around it, whatever links lead there.

    Raises:
        InputError: one is; names it.
    """
    for other, path in inputs:
        if _lies_in(path, folder):
            raise InputError(f"{other} {path} lies in {flag} {folder}, which is written over: name a place elsewhere")
        if path.is_dir() and _lies_in(folder, path):
            raise InputError(f"{flag} {folder} lies in {other} {path}, which is read: name a place elsewhere")


def require_free(path: Path, flag: str, overwrite: bool = False, inputs: Inputs = ()) -> None:
    """Check that a command may write the file that ``flag`` names.

    Raises:
        InputError, OSError: it is a folder, cannot be written, is an input, or is there and ``overwrite`` is false.
    """
    if path.is_dir():
        raise IsADirectoryError(f"{flag} {path} is a folder: name a file")
    require_writable(path.parent, f"{path.parent}, of {flag} {path},")
    for other, read in inputs:
        if _same(path, read):
            raise InputError(f"{flag} {path} is {other} {read} itself: name another file")
    if os.path.lexists(path) and not overwrite:
        raise FileExistsError(f"{flag} {path} exists: name another file, or add --overwrite to replace it")


def claim(folder: Path, by: str, earlier: Earlier = _never) -> None:
    """Make a folder for ``by`` to write to, or take one that is empty or that it made before.

    Raises:
        InputError, OSError: as :func:`require_own`.
    """
    require_own(folder, by, earlier)
    folder.mkdir(parents=True, exist_ok=True)
    if made_by(folder) is None:
        _write(folder, by)


def finish(folder: Path, by: str) -> None:
    """Mark the folder as finished: whatever is added from now on is somebody else's."""
    _write(folder, by, contents=sorted(_contents(folder)))


def remove(folder: Path, by: str, inputs: Inputs = (), earlier: Earlier = _never) -> None:
    """Remove a folder that ``by`` made, if it is there. Links are unlinked and never followed.

    Raises:
        InputError: it has no record of that, or holds something else, or an input.
    """
    if not os.path.lexists(folder):
        return
    require_apart(folder, inputs, "the folder")
    claim(folder, by, earlier)  # a folder of an earlier release gets its record, in case of a kill during the removal
    if folder.is_symlink():
        folder.unlink()
        return
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != RECORD:
            entry.unlink(missing_ok=True)
    (folder / RECORD).unlink()
    folder.rmdir()


def renew(folder: Path, by: str, inputs: Inputs = (), earlier: Earlier = _never) -> None:
    """:func:`remove` and :func:`claim`: an empty folder in place of what ``by`` made before."""
    remove(folder, by, inputs, earlier)
    claim(folder, by)


@contextmanager
def output(out: Path, by: str, inputs: Inputs = (), earlier: Earlier = _never) -> Iterator[int]:
    """Hold ``--out`` for one command: checked before anything is written, then locked and claimed.

    Gives the lock's file descriptor. A full disk is reported as such.

    Raises:
        InputError, OSError: as :func:`require_apart`, :func:`require_own` and :func:`.files.sole_writer`.
    """
    require_apart(out, inputs)
    require_own(out, by, earlier, "--out")
    with full_disk_named(out), sole_writer(out) as lock:
        claim(out, by, earlier)
        yield lock


def _write(folder: Path, by: str, **more: Any) -> None:
    with atomic_write(folder / RECORD) as stream:
        json.dump({"made_by": by, "format": FORMAT, **more}, stream, indent=1)
        stream.write("\n")


def _record(folder: Path) -> dict[str, Any]:
    """Our record, if it is valid; anything else counts as none."""
    match _read(folder / RECORD):
        case {"made_by": str(), "format": int(number), **rest} as record if number == FORMAT:
            return record if isinstance(rest.get("contents", []), list) else {}
    return {}


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _contents(folder: Path) -> list[str]:
    """Names in a folder, without what stands there before or beside the record, or what Python leaves."""
    return [name for name in os.listdir(folder) if name not in (RECORD, partial_of(RECORD).name, LOCK, "__pycache__")]


def _lies_in(path: Path, folder: Path) -> bool:
    """Whether ``path`` is the folder or below it, by its name or by what a link stands for."""
    places = (real(path.parent) / path.name, real(path))
    return any(_same(above, folder) for place in places for above in (place, *place.parents))


def _same(a: Path, b: Path) -> bool:
    try:
        return os.path.samefile(a, b)
    except OSError:  # one of them is not there
        return real(a) == real(b)
