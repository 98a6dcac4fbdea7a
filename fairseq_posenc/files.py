"""Files that are either whole or not there."""

import fcntl
import hashlib
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def atomic_write(path: str | os.PathLike, mode: str = "w") -> Iterator[IO]:
    """Open ``path`` for writing so that it appears under its name only when the block has ended without an error.

    The content goes to ``path.partial`` beside it, is flushed to the disk, and takes the name by ``os.replace``; an
    exception removes it, and what a kill leaves behind is overwritten by the next attempt.
    """
    partial = Path(f"{os.fspath(path)}.partial")
    try:
        with open(partial, mode, encoding=None if "b" in mode else "utf-8") as stream:
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


@contextmanager
def sole_writer(folder: Path, name: str = ".lock", wait: bool = False, lock: Callable[..., None] = fcntl.flock) -> Iterator[int]:
    """Create ``folder`` and hold its lock ``name`` for this process.

    The lock goes with the process, so a kill leaves none behind. Its file descriptor is given, and the file says whose it is.

    Args:
        wait: for another process that holds the lock, instead of BlockingIOError.
        lock: ``fcntl.flock``, which a child process that inherits the file descriptor holds as well; or ``fcntl.lockf``, which
            is this process's alone, and which NFS makes known to other hosts.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise NotADirectoryError(f"{folder} cannot be a folder: {error.filename} is a file. Name another.") from None
    with open(folder / name, "a+", encoding="utf-8") as file:
        try:
            lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                raise BlockingIOError(
                    f"another process is writing to {folder} ({holder(folder / name)}). Wait for it, or name another folder."
                ) from None
            print(f"{folder}: waiting for another process that works there …", file=sys.stderr, flush=True)
            lock(file, fcntl.LOCK_EX)
        file.truncate(0)
        print(f"process {os.getpid()} on {platform.node()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}", file=file, flush=True)
        yield file.fileno()


def holder(lock: Path) -> str:
    """Who holds, or held last, the lock of :func:`sole_writer` whose file this is. Not for the process that holds it."""
    return lock.read_text(encoding="utf-8").strip() or "just starting"
