"""Files that are either complete or absent."""

import errno
import fcntl
import hashlib
import os
import platform
import re
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

LOCK = ".lock"
HOLDER = "process "
"""How a lock's file begins, which says whose it is."""
INDEX_MAGIC, INDEX_VERSION, INDEX_HEADER = b"MMIDIDX\x00\x00", 1, struct.Struct("<9sQBQ")
"""Of the ``.idx`` file of fairseq's memory-mapped data set: these two, the code of the ids' type (8: uint16, 9: uint32), and
the number of items. The size of each item in ids (int32) and its offset in the ``.bin`` file in bytes (int64) follow."""
DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def real(path: str | os.PathLike) -> Path:
    """Return the file or folder that a path names, after following links.

    A link to itself is returned unchanged; ``Path.resolve`` raises RuntimeError for it before Python 3.13.
    """
    return Path(os.path.realpath(path))


def partial_of(path: str | os.PathLike) -> Path:
    """Where a file is written until it is complete. The name marks it as ours, so that it is no other program's."""
    return Path(f"{os.fspath(path)}.fairseq_posenc.partial")


def create(path: str | os.PathLike, mode: str = "w") -> IO:
    """Open a temporary file for writing. What a killed attempt left is removed first; a link is removed and not followed."""
    Path(path).unlink(missing_ok=True)
    return open(path, mode.replace("w", "x"), encoding=None if "b" in mode else "utf-8")


def _open_without_links(path: str, flags: int) -> int:
    """The ``opener`` of :func:`open` for a file that may exist, but not be a link, symbolic or hard.

    Raises:
        OSError: it is.
    """
    file = os.open(path, flags | os.O_NOFOLLOW, 0o666)
    if os.fstat(file).st_nlink > 1:
        os.close(file)
        raise OSError(errno.EMLINK, "has another name too (a hard link): remove it", path)
    return file


@contextmanager
def atomic_write(path: str | os.PathLike, mode: str = "w") -> Iterator[IO]:
    """Open ``path`` for writing so that it appears under its name only when the block has ended without an error.

    The content goes to :func:`partial_of` in the same folder, is flushed to the disk, and takes the name by ``os.replace``; an
    exception removes it, and what a kill leaves behind is replaced by the next attempt.
    """
    partial = partial_of(path)
    try:
        with create(partial, mode) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def sha256(path: str | os.PathLike) -> str:
    """Hexadecimal SHA-256 of a file's bytes, read in pieces."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def require_writable(folder: Path, called: str = "") -> None:
    """Check that ``folder`` can be written to, or can be made; ``called`` is its name in messages.

    Raises:
        NotADirectoryError, PermissionError: what stands in the way.
    """
    called = called or str(folder)
    there = next(place for place in (folder, *folder.absolute().parents) if os.path.lexists(place))
    if not there.is_dir():
        raise NotADirectoryError(f"{called} cannot be a folder: {there} is a file. Name another.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(f"{called} cannot be written: {there} does not let this user. Name another.")


@contextmanager
def full_disk_named(place: str | os.PathLike) -> Iterator[None]:
    """Report in one sentence that there is no room for ``place``, however the library that wrote to it reports it.

    Raises:
        OSError: that sentence.
    """
    try:
        yield
    except Exception as error:
        if not (reason := _disk_full_reason(error)):
            raise
        raise OSError(
            f"{place}: {reason}. Nothing that was there before is lost; when there is room, give the same command again."
        ) from error


def _disk_full_reason(error: BaseException | None) -> str | None:
    """The system's message if an error, or one that caused it, is that of a full disk."""
    while error is not None:
        number = error.errno if isinstance(error, OSError) else None
        if found := re.search(r"\(os error (\d+)\)", str(error)):  # of libraries written in Rust, such as safetensors
            number = int(found[1])
        if number in DISK_FULL_ERRNOS:
            return os.strerror(number)
        error = error.__cause__ or error.__context__
    return None


@contextmanager
def sole_writer(folder: Path, name: str = LOCK, wait: bool = False, lock: Callable[..., None] = fcntl.flock) -> Iterator[int]:
    """Create ``folder`` and hold its lock ``name`` for this process.

    The lock goes with the process, so a kill leaves none behind. Its file descriptor is given, and the file says whose it is.

    Args:
        wait: for another process that holds the lock, instead of BlockingIOError.
        lock: ``fcntl.flock``, which a child process that inherits the file descriptor holds as well; or ``fcntl.lockf``, which
            is this process's alone, and which NFS makes known to other hosts.
    """
    require_writable(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / name, "a+", encoding="utf-8", errors="replace", opener=_open_without_links) as file:
        try:
            lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                raise BlockingIOError(
                    f"another process is writing to {folder} ({holder(folder / name)}). Wait for it, or name another folder."
                ) from None
            print(f"{folder}: waiting for another process that works there …", file=sys.stderr, flush=True)
            lock(file, fcntl.LOCK_EX)
        file.seek(0)
        if file.read(len(HOLDER)) in ("", HOLDER):  # else the file is somebody else's
            file.truncate(0)
            since = time.strftime("%Y-%m-%d %H:%M:%S")
            print(f"{HOLDER}{os.getpid()} on {platform.node()}, since {since}", file=file, flush=True)
        yield file.fileno()


def holder(lock: Path) -> str:
    """Who holds, or last held, the lock of :func:`sole_writer` with this file. Not for the process that holds it."""
    return lock.read_text("utf-8", "replace").strip() or "just starting"
