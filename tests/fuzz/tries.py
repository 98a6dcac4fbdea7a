"""One try: a command in a process of its own, bounded in time and memory, and what is wrong with how it ended.

The process is forked from this one, which has imported what is slow to import, so that a try takes a fraction of a second.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

GB = 1 << 30
SENTINEL = "PWNED"
"""A file of this name, wherever, is what hostile inputs try to make."""
REFUSED = 2
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Outcome:
    """How a try ended.

    Attributes:
        status: the exit status; minus the signal's number where one ended it.
        output: what it wrote to either stream.
        seconds: how long it took; None where it was ended for taking too long.
    """

    status: int
    output: str
    seconds: float | None


def run(action: Callable[[], int], folder: Path, limit: float, memory: int = 6 * GB, kill_after: float | None = None) -> Outcome:
    """Do ``action`` in a process of its own, in ``folder``.

    Args:
        action: returns the exit status; an exception is status 1 and a traceback in the output.
        limit: seconds, after which it has no end.
        memory: bytes of address space that the process may take beyond what this one has.
        kill_after: seconds, after which the process is killed on purpose.
    """
    log = folder.with_name(f"{folder.name}.log")
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        _be_the_child(action, folder, log, memory)
    deadline = start + (limit if kill_after is None else kill_after)
    status = None
    while status is None and time.monotonic() < deadline:
        ended, found = os.waitpid(child, os.WNOHANG)
        status = os.waitstatus_to_exitcode(found) if ended else None
        time.sleep(0.005)
    seconds = time.monotonic() - start
    endless = status is None
    if endless:
        os.killpg(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    output = log.read_text("utf-8", errors="replace")
    log.unlink()
    return Outcome(status, output, None if endless else seconds)


def _be_the_child(action: Callable[[], int], folder: Path, log: Path, memory: int) -> None:
    status = 1
    try:
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        stream = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        null = os.open(os.devnull, os.O_RDONLY)
        for number, to in ((null, 0), (stream, 1), (stream, 2)):
            os.dup2(number, to)
        sys.stdout, sys.stderr = (open(to, "w", buffering=1, encoding="utf-8", closefd=False) for to in (1, 2))  # noqa: SIM115
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + memory, taken + memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.chdir(folder)
        status = action()
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:  # whatever it is, the other process is to see it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def snapshot(paths: Iterable[Path]) -> dict[Path, str]:
    """What files there are and what is in them; of folders, all below."""
    found = {}
    for top in paths:
        for path in [top, *top.rglob("*")] if top.is_dir() and not top.is_symlink() else [top]:
            if path.is_symlink():
                found[path] = f"a link to {os.readlink(path)}"
            elif path.is_file():
                readable = os.access(path, os.R_OK)
                found[path] = hashlib.sha256(path.read_bytes()).hexdigest() if readable else "cannot be read"
    return found


def faults(outcome: Outcome, folder: Path, before: dict[Path, str], after: dict[Path, str]) -> list[str]:
    """What a command must never do, in words; nothing where it ended as it should.

    Args:
        folder: where the try has happened.
        before, after: snapshots of what is the user's.
    """
    found = []
    if outcome.seconds is None:
        found.append("it did not end")
    elif outcome.status < 0:
        found.append(f"it was ended by {signal.Signals(-outcome.status).name}")
    elif outcome.status not in (0, REFUSED):
        found.append(f"its exit status is {outcome.status}")
    elif outcome.status and not outcome.output.strip():
        found.append("it refused without a word")
    if "Traceback (most recent call last)" in outcome.output:
        found.append("it showed a traceback")
    if any(folder.rglob(SENTINEL)):
        found.append("it ran code from a file")
    lost = [path for path in before if path not in after]
    changed = [path for path in before if path in after and after[path] != before[path]]
    found += [f"it removed the user's {path.relative_to(folder)}" for path in lost]
    found += [f"it changed the user's {path.relative_to(folder)}" for path in changed]
    return found
