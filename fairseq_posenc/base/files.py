"""Files that are either complete or absent."""

import errno
import fcntl
import hashlib
import os
import platform
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from .errors import InputError

LOCK = ".lock"
HOLDER = "process "
"""The beginning of a lock's file, which names the process that holds it."""
MAX_BYTES = 1 << 28
"""Of a file that is read as a whole: a record, a tokenizer or a file of settings."""
DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def real(path: str | os.PathLike) -> Path:
    """Follow links; a link to itself is returned, for which ``Path.resolve`` raises RuntimeError before Python 3.13."""
    return Path(os.path.realpath(path))


def partial_of(path: str | os.PathLike) -> Path:
    """Return the path of a file until it is complete, a name that no other program uses."""
    return Path(f"{os.fspath(path)}.fairseq_posenc.partial")


def create(path: str | os.PathLike, mode: str = "w") -> IO:
    """Open a temporary file for writing, after removing a link or the file of a killed attempt.

    Names of files that are not UTF-8 are written as backslashes and numbers, which is also how JSON represents them.
    """
    Path(path).unlink(missing_ok=True)
    encoding = {} if "b" in mode else {"encoding": "utf-8", "errors": "backslashreplace"}
    return open(path, mode.replace("w", "x"), **encoding)  # type: ignore[call-overload]


def require_regular(path: str | os.PathLike) -> None:
    """Raise an OSError for a pipe, for which opening would wait without end, and for a device or a socket."""
    mode = os.stat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "a pipe, a device or a socket, where a file is needed", os.fspath(path))


def read(path: str | os.PathLike) -> bytes:
    """Return the content of a file of at most :data:`MAX_BYTES`, or raise an OSError."""
    require_regular(path)
    if (size := os.path.getsize(path)) > MAX_BYTES:
        raise OSError(errno.EFBIG, f"{size:,} bytes, more than any such file has", os.fspath(path))
    return Path(path).read_bytes()


def read_text(path: str | os.PathLike) -> str:
    """Return the text of such a file, which is in UTF-8; raises InputError if it is not, or an OSError as :func:`read`."""
    try:
        return read(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{os.fspath(path)} is not UTF-8 ({error.reason} at byte {error.start + 1})") from None


def _open_without_links(path: str, flags: int) -> int:
    """Open a file as the ``opener`` of :func:`open` if it is no link, symbolic or hard, and no pipe; otherwise raises OSError."""
    if os.path.exists(path):
        require_regular(path)
    file = os.open(path, flags | os.O_NOFOLLOW, 0o666)
    if os.fstat(file).st_nlink > 1:
        os.close(file)
        raise OSError(errno.EMLINK, "has another name too (a hard link): remove it", path)
    return file


@contextmanager
def atomic_write(path: str | os.PathLike, mode: str = "w") -> Iterator[IO]:
    """Open ``path`` for writing so that the file appears only when the context ends without an error.

    The content is written to :func:`partial_of` the path, flushed to the disk and renamed. An exception removes it, and the next
    attempt replaces what a kill leaves. A full disk is reported as such.
    """
    partial = partial_of(path)
    try:
        with report_full_disk(path):
            with create(partial, mode) as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def sha256(path: str | os.PathLike) -> str:
    """Return the hexadecimal SHA-256 of a file, which is read in pieces."""
    require_regular(path)
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def require_writable(folder: Path, name: str = "") -> None:
    """Raise an OSError unless ``folder``, which messages call ``name``, can be written to or made."""
    name = name or str(folder)
    existing = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    if not existing.is_dir():
        raise NotADirectoryError(f"{name} cannot be a folder: {existing} is a file. Name another.")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise PermissionError(f"{name} cannot be written: this user has no permission for {existing}. Name another.")


class DiskFull(OSError):
    """The disk is full; the message names the file or folder that was written, and what to do."""


@contextmanager
def report_full_disk(path: str | os.PathLike) -> Iterator[None]:
    """Report a full disk by one OSError, for any error that the library which wrote to ``path`` raises."""
    try:
        yield
    except DiskFull:  # which names the file
        raise
    except Exception as error:
        if not (reason := _disk_full_reason(error)):
            raise
        raise DiskFull(f"{path}: {reason}. When there is room, give the same command again.") from error


def _disk_full_reason(error: BaseException | None) -> str | None:
    """Return the system's message if an error, or its cause, is that of a full disk."""
    while error is not None:
        number = error.errno if isinstance(error, OSError) else None
        if match := re.search(r"\(os error (\d+)\)", str(error)):  # of libraries written in Rust, such as safetensors
            number = int(match[1])
        if number in DISK_FULL_ERRNOS:
            return os.strerror(number)
        error = error.__cause__ or error.__context__
    return None


@contextmanager
def sole_writer(folder: Path, name: str = LOCK, wait: bool = False, lock: Callable[..., None] = fcntl.flock) -> Iterator[int]:
    """Create ``folder`` and hold its lock ``name``, whose file names this process; yields the file descriptor.

    The lock ends with the process, also if that is killed.

    Args:
        wait: whether to wait for another process that holds the lock, instead of raising BlockingIOError.
        lock: ``fcntl.flock``, which child processes that inherit the file descriptor hold as well; or ``fcntl.lockf``, which
            only this process holds, and which other hosts see on NFS.
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
            print(f"{folder}: waiting for another process that writes to it …", file=sys.stderr, flush=True)
            lock(file, fcntl.LOCK_EX)
        file.seek(0)
        if file.read(len(HOLDER)) in ("", HOLDER):  # otherwise another program has made the file
            file.truncate(0)
            since = time.strftime("%Y-%m-%d %H:%M:%S")
            print(f"{HOLDER}{os.getpid()} on {platform.node()}, since {since}", file=file, flush=True)
        yield file.fileno()


def holder(lock: Path) -> str:
    """Return the process that holds, or last held, the lock of :func:`sole_writer` with this file."""
    return lock.read_text("utf-8", "replace").strip() or "just starting"
