"""One training at a time in a folder and in a process: fairseq expects no other in either, and keeps state of the last one."""

import errno
import fcntl
import functools
import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from torch import distributed

from ..errors import Refused
from ..files import holder, sole_writer

logger = logging.getLogger(__name__)

LOCK = ".training.lock"  # in --save-dir
LOCK_WAIT_SECONDS = 20.0  # seconds that a training which is about to end, its launcher killed, may still write to --save-dir
NO_LOCK_ERRNOS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


@contextmanager
def locked(cfg: Any) -> Iterator[None]:
    """Hold the lock of ``--save-dir`` in the first process, which writes there.

    Raises:
        Refused: another training writes there, or the folder cannot be written; in all processes alike.
    """
    with ExitStack() as held:
        refusals = [None]
        if cfg.distributed_training.distributed_rank == 0 and not cfg.checkpoint.no_save:
            refusals = [take_lock(held, Path(cfg.checkpoint.save_dir))]
        if distributed.is_initialized():
            distributed.broadcast_object_list(refusals, src=0)
        if refusals[0] is not None:
            raise Refused(refusals[0])
        yield


def take_lock(held: ExitStack, save_dir: Path) -> str | None:
    """Take the lock, until ``held`` is closed; returns why it cannot be had."""
    give_up = time.monotonic() + LOCK_WAIT_SECONDS
    while True:
        try:
            # Not flock, which the workers that load data would hold as well, a moment longer than a training that was killed.
            held.enter_context(sole_writer(save_dir, LOCK, lock=fcntl.lockf))
            return None
        except BlockingIOError:
            if time.monotonic() > give_up:
                return f"another training ({holder(save_dir / LOCK)}) writes to --save-dir {save_dir}; name another"
        except OSError as error:
            if error.errno not in NO_LOCK_ERRNOS:
                return f"--save-dir {save_dir} cannot be written: {error.strerror or error}"
            logger.warning(f"the file system of --save-dir {save_dir} has no locks: make sure that nothing else trains there")
            return None
        time.sleep(0.2)


@contextmanager
def fresh(module: dict[str, Any]) -> Iterator[None]:
    """Forget the training before, and close what fairseq opens once per process, to which the next training would write.

    The best score so far is in attributes of functions. What is closed are the writers of TensorBoard, the runs of wandb and
    Aim, and the handlers of ``--log-file``.

    Args:
        module: the globals of fairseq_cli.train.
    """
    from fairseq import checkpoint_utils
    from fairseq.logging import progress_bar

    for function in (checkpoint_utils.save_checkpoint, module["should_stop_early"]):
        for name in ("best", "num_runs"):
            vars(function).pop(name, None)
    loggers = (module["logger"], progress_bar.logger)
    handlers = [each.handlers[:] for each in loggers]
    wandb = progress_bar.wandb if progress_bar.wandb is None or progress_bar.wandb.run is None else None
    try:
        yield
    finally:
        for each, before in zip(loggers, handlers, strict=True):
            for handler in set(each.handlers) - set(before):
                handler.close()
            each.handlers = before
        progress_bar._close_writers()
        progress_bar._tensorboard_writers.clear()
        if wandb is not None:
            wandb.finish()
        if progress_bar.get_aim_run is not None:
            progress_bar.get_aim_run.cache_clear()


def unless_done(train: Callable) -> Callable:
    """Let a training that has reached ``--max-update`` end unchanged when it is started again.

    fairseq checks only after an update whether it was the last, and so would do one more each time.
    """

    @functools.wraps(train)
    def train_unless_done(cfg, trainer, task, epoch_itr):
        updates = trainer.get_num_updates()
        if updates < (cfg.optimization.max_update or math.inf):
            return train(cfg, trainer, task, epoch_itr)
        logger.info(f"nothing is left to train after {updates} updates: --max-update is {cfg.optimization.max_update}")
        return [None], True

    return train_unless_done
