"""Files that are either whole or not there."""

import fcntl
import hashlib
import os
import sys
from collections.abc import Iterator
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
def sole_writer(folder: Path, name: str = ".lock", wait: bool = False) -> Iterator[int]:
    """Create ``folder`` and hold its lock ``name`` for this process.

    The lock goes with the process, so a kill leaves none behind. Its file descriptor is given; a child process that
    inherits it holds the lock as well.

    Args:
        wait: for another process that holds the lock, instead of BlockingIOError.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise NotADirectoryError(f"{folder} cannot be a folder: {error.filename} is a file. Name another.") from None
    with open(folder / name, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                raise BlockingIOError(f"another process is writing to {folder}. Wait for it, or name another folder.") from None
            print(f"{folder}: waiting for another process that works there …", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()
