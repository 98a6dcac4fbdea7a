"""What surrounds a training: a fresh state, a locked folder, and an end with its launcher or on request."""

import errno
import fcntl
import functools
import logging
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from fairseq_posenc.compat import launchers, leaving, sentences, using
from fairseq_posenc.compat.exits import REFUSED, leave_together
from fairseq_posenc.compat.view import replaced
from fairseq_posenc.errors import Refused
from fairseq_posenc.files import holder, sole_writer

logger = logging.getLogger(__name__)

TRAINERS: dict[str, Callable] = {}
"""What takes the place of fairseq's trainer with optimizers that it does not get on with, by their names."""

LOCK = ".training.lock"  # in --save-dir
LOCK_WAIT_SECONDS = 20.0  # seconds that a training which is about to end, its launcher killed, may still write to --save-dir
NO_LOCK_ERRNOS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


def surround_trainings() -> None:
    """Put :func:`training` around every training that fairseq's commands start, and report how its processes ended.

    fairseq expects one training per process, and no other in ``--save-dir``. Can go when fairseq keeps no state of a
    training in its modules, refuses a folder in use, ends with its launcher, and saves on a signal.
    """
    from fairseq.distributed import utils

    call_main = utils.call_main

    @functools.wraps(call_main)
    def call_main_around(cfg, main, **kwargs):
        start = _train_as_program if sentences.is_program() else _train
        main = functools.partial(start if _is_training(main) else using.use, main)
        with leaving.handling(leaving.pass_on):
            try:
                call_main(cfg, main, **kwargs)
            except torch.multiprocessing.ProcessExitedException as error:
                if error.exit_code in (REFUSED, leaving.LEFT_OFF):  # the process has said why
                    sys.exit(error.exit_code)
                raise

    utils.call_main = call_main_around


def _is_training(main: Callable) -> bool:
    """Whether it is the ``main`` of fairseq_cli.train, or of a program made like it; others validate or generate."""
    return {"validate_and_save", "should_stop_early", "train"} <= getattr(main, "__globals__", {}).keys()


def _train(main: Callable, cfg: Any, **kwargs: Any) -> None:
    """``main``, in one process of the run."""
    try:
        with training(main, cfg) as request:
            main(cfg, **kwargs)
    except Refused as error:
        if cfg.distributed_training.distributed_rank == 0:
            print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr, flush=True)
        leave_together(REFUSED)
    if request.granted:
        leave_together(leaving.LEFT_OFF)


def _train_as_program(main: Callable, cfg: Any, **kwargs: Any) -> None:
    """:func:`_train` of fairseq-train; other commands that train show errors themselves."""
    with sentences.in_sentences(main.__globals__, local_rank=cfg.distributed_training.device_id):
        _train(main, cfg, **kwargs)


@contextmanager
def training(main: Callable, cfg: Any) -> Iterator[leaving.Request]:
    """What surrounds ``main``, fairseq's training, in one process of a run; gives the request to stop.

    Raises:
        Refused: another training writes to ``--save-dir``; in all processes alike.
    """
    module = main.__globals__
    trainer = TRAINERS.get(getattr(cfg.optimizer, "_name", None))
    own = {} if trainer is None else {"Trainer": trainer}
    _forget(module)
    with (
        launchers.ending_with_its_launcher(),
        _save_dir_to_itself(cfg),
        _nothing_left_behind(module),
        leaving.listening() as request,
        replaced(module, train=_train_unless_done(module["train"]), **own),
        replaced(module, validate_and_save=leaving.save_and_leave(module["validate_and_save"])),
    ):
        yield request


@contextmanager
def _save_dir_to_itself(cfg: Any) -> Iterator[None]:
    """The lock of ``--save-dir``, held by the first process, which writes there."""
    with ExitStack() as held:
        refusals = [None]
        if cfg.distributed_training.distributed_rank == 0 and not cfg.checkpoint.no_save:
            refusals = [_lock(held, Path(cfg.checkpoint.save_dir))]
        if distributed.is_initialized():
            distributed.broadcast_object_list(refusals, src=0)
        if refusals[0] is not None:
            raise Refused(refusals[0])
        yield


def _lock(held: ExitStack, save_dir: Path) -> str | None:
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


def _forget(module: dict[str, Any]) -> None:
    """fairseq keeps the best score so far in attributes of functions, where the training before would leave it."""
    from fairseq import checkpoint_utils

    for function in (checkpoint_utils.save_checkpoint, module["should_stop_early"]):
        for name in ("best", "num_runs"):
            vars(function).pop(name, None)


@contextmanager
def _nothing_left_behind(module: dict[str, Any]) -> Iterator[None]:
    """Close what fairseq opens once per process, to which the next training would write.

    These are the writers of TensorBoard, the runs of wandb and Aim, and the handlers of ``--log-file``.
    """
    from fairseq.logging import progress_bar

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


def _train_unless_done(train: Callable) -> Callable:
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


PATCHES = (leaving.tell_all_processes, surround_trainings)
