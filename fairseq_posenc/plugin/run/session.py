"""Allows one training at a time in a folder and in a process: fairseq assumes this, and keeps state of the last one."""

import errno
import fcntl
import functools
import logging
import math
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from ...base.errors import InputError
from ...base.files import holder, sha256, sole_writer
from ...base.version import __version__
from ..processes.group import from_first_process, gather

log = logging.getLogger(__name__)

LOCK = ".training.lock"  # in --save-dir
LOCK_WAIT_SECONDS = 20.0  # a training whose launcher was killed may write to --save-dir a little longer
NO_LOCK_ERRNOS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


@contextmanager
def lock_save_dir(run: Any) -> Iterator[None]:
    """Let no other training write to ``--save-dir``; the first process, which writes there, holds the lock.

    Raises:
        InputError: another training writes there, or the folder cannot be written; in all processes alike.
    """
    checkpoint = run.cfg.checkpoint
    with ExitStack() as held:
        refusal = None
        if run.cfg.distributed_training.distributed_rank == 0 and not checkpoint.no_save:
            refusal = take_lock(held, Path(checkpoint.save_dir))
        if (refusal := from_first_process(refusal)) is not None:
            raise InputError(refusal)
        yield


def take_lock(held: ExitStack, save_dir: Path) -> str | None:
    """Take the lock, until ``held`` is closed; returns the reason if this fails."""
    give_up = time.monotonic() + LOCK_WAIT_SECONDS
    while True:
        try:
            # Not flock: workers that load data would hold it a moment longer than a training that was killed.
            held.enter_context(sole_writer(save_dir, LOCK, lock=fcntl.lockf))
            return None
        except BlockingIOError:
            if time.monotonic() > give_up:
                return f"another training ({holder(save_dir / LOCK)}) writes to --save-dir {save_dir}; name another"
        except OSError as error:
            if error.errno not in NO_LOCK_ERRNOS:
                return f"--save-dir {save_dir} cannot be written: {error.strerror or error}"
            log.warning(f"the file system of --save-dir {save_dir} has no locks: make sure that nothing else trains there")
            return None
        time.sleep(0.2)


@contextmanager
def require_one_data(run: Any) -> Iterator[None]:
    """Train with the same software on the same data in all processes, which would mix vocabularies or wait without end otherwise.

    Raises:
        InputError: a version, dict.txt, or the number of samples or their lengths, is not the same in all of them.
    """
    task, dataset = run.cfg.task, run.cfg.dataset
    splits = (dataset.train_subset, *str("" if dataset.disable_validation else dataset.valid_subset).split(","))
    data = getattr(task, "data", None)
    if data and distributed.is_initialized() and distributed.get_world_size() > 1:
        versions = {"Python": platform.python_version(), "PyTorch": torch.__version__, "fairseq_posenc": __version__}
        digests = _digests([Path(folder) for folder in str(data).split(":")], tuple(filter(None, splits)))
        first, *others = gather({**versions, **digests})
        for rank, found in enumerate(others, start=1):
            if different := sorted(name for name in first.keys() | found.keys() if first.get(name) != found.get(name)):
                raise InputError(
                    f"the processes have different software or data: {different[0]} is not the same, or missing, in "
                    f"process {rank}. Copy the environment and the data of the first, process 0, to all hosts."
                )
    yield


def _digests(folders: list[Path], splits: tuple[str, ...]) -> dict[str, str]:
    """Return the digests of data-bins' dictionaries and of their indices: the numbers of samples, and the length of each."""
    return {
        f"{path.relative_to(folder)} of folder {number}": sha256(path)
        for number, folder in enumerate(folders, start=1)
        for pattern in ("dict*.txt", "*/dict*.txt", "*.idx", "*/*.idx")
        for path in folder.glob(pattern)
        if path.suffix == ".txt" or path.name.startswith(splits)
    }


@contextmanager
def forget_last_training(run: Any) -> Iterator[None]:
    """Reset what fairseq keeps per process, so that a training starts as in a new process.

    fairseq keeps the best score in attributes of functions. Writers of TensorBoard, runs of wandb and Aim, and handlers of
    ``--log-file`` are closed, since the next training would write to them.
    """
    from fairseq import checkpoint_utils
    from fairseq.logging import progress_bar

    module = run.module
    for function in (checkpoint_utils.save_checkpoint, module["should_stop_early"]):
        for name in ("best", "num_runs"):
            vars(function).pop(name, None)
    loggers = (module["logger"], progress_bar.logger)
    handlers = [logger.handlers[:] for logger in loggers]
    wandb = progress_bar.wandb if progress_bar.wandb is None or progress_bar.wandb.run is None else None
    try:
        yield
    finally:
        for logger, before in zip(loggers, handlers, strict=True):
            for handler in set(logger.handlers) - set(before):
                handler.close()
            logger.handlers = before
        progress_bar._close_writers()
        progress_bar._tensorboard_writers.clear()
        if wandb is not None:
            wandb.finish()
        if progress_bar.get_aim_run is not None:
            progress_bar.get_aim_run.cache_clear()


def unless_done(train: Callable) -> Callable:
    """Skip a training that has reached ``--max-update`` already: fairseq checks this only after one more update."""

    @functools.wraps(train)
    def train_unless_done(cfg, trainer, task, epoch_itr):
        updates = trainer.get_num_updates()
        if updates < (cfg.optimization.max_update or math.inf):
            return train(cfg, trainer, task, epoch_itr)
        log.info(f"nothing is left to train after {updates} updates: --max-update is {cfg.optimization.max_update}")
        return [None], True

    return train_unless_done
