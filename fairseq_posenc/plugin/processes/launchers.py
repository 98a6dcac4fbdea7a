"""The processes that started this one, and its end when one of them has ended."""

import logging
import multiprocessing
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

logger = logging.getLogger(__name__)

NAMES = {"torchrun", "torch.distributed.run", "torch.distributed.launch", "deepspeed", "deepspeed.launcher.launch",
         "fairseq-posenc", "fairseq_posenc.cli"}  # fmt: skip
POLL_SECONDS = 1.0
STARTED = getattr(sys.modules.get("_fairseq_posenc_hook"), "STARTED", (os.getpid(), os.getppid()))  # this process, its parent

_watcher = threading.Thread()


def watch() -> None:
    """From now on, end this process as soon as a launcher that started it ends, or at once if it has ended already.

    When torchrun, ``deepspeed``, a grid of ``fairseq-posenc`` or the parent of spawned processes is killed by ``kill -9``, its
    processes would keep their GPUs and write into the folder where a restart trains.
    """
    global _watcher
    pids = launchers()
    if pids and not _watcher.is_alive():
        _watcher = threading.Thread(target=_watch, args=(pids,), name="launchers", daemon=True)
        _watcher.start()


def launchers() -> list[int]:
    """Return the process ids of the parent, if it is a launcher, of its parent, if that is one too, and so on."""
    pids, pid = [], STARTED[1] if STARTED[0] == os.getpid() else os.getppid()  # the latter in a process that was forked
    if multiprocessing.parent_process() is not None or "TORCHELASTIC_RUN_ID" in os.environ:
        pids, pid = [pid], _parent(pid)
    while pid and _is_launcher(pid):
        pids, pid = [*pids, pid], _parent(pid)
    return pids


def _watch(pids: list[int]) -> None:
    while not have_ended(pids):
        time.sleep(POLL_SECONDS)
    os._exit(1)  # not sys.exit: the main thread may be waiting for a process that will never answer


def have_ended(pids: list[int]) -> bool:
    """Return whether any of these launchers has ended, which is logged: its child then has another parent."""
    parents = [os.getppid(), *map(_parent, pids[:-1])] if pids else []
    ended = [before for before, now in zip(pids, parents, strict=True) if before != now]
    if ended:
        with suppress(Exception):  # whoever read the log may be gone as well
            logger.error(
                f"the launcher of this process (process {ended[0]}) has ended, so this process ends too. The same command "
                "continues from the last checkpoint."
            )
    return bool(ended)


def _of_process(pid: int, file: str) -> str:
    """Return the content of a file about a process; empty if the process has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/{file}").read_text(encoding="utf-8", errors="replace")
    return ""


def _parent(pid: int) -> int | None:
    status = _of_process(pid, "stat")
    return int(status.rpartition(")")[2].split()[1]) if status else None


def _is_launcher(pid: int) -> bool:
    names = [Path(argument).name for argument in _of_process(pid, "cmdline").split("\0")[:5]]
    return not NAMES.isdisjoint(names[:1] if not names[0].startswith("python") else names)
