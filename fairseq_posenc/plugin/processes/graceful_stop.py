"""On SIGUSR1, training saves checkpoint_last.pt after the current update, in all processes, and ends.

With ``FAIRSEQ_POSENC_SAVE_SECONDS=300``, a training of one process also saves it every five minutes, and goes on.
"""

import functools
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ...base.errors import InputError

logger = logging.getLogger(__name__)

SIGNAL = signal.SIGUSR1  # which Slurm can send before the time limit; SIGTERM ends a training at once, as usual
SAVE_SECONDS = "FAIRSEQ_POSENC_SAVE_SECONDS"
STOPPED = 75  # exit status: EX_TEMPFAIL, try again


class Request:
    """Whether the training of this process should stop."""

    here = False  # whether this process got the signal
    everywhere = 0.0  # the number of processes that got it, summed over all processes
    granted = False  # whether the checkpoint has been saved

    def clear(self) -> None:
        """Forget the request, for another training."""
        self.here, self.everywhere, self.granted = False, 0.0, False

    def of(self, trainer: Any) -> bool:
        """Return whether any process got the signal; the answer is the same in all processes after the same update."""
        return self.everywhere > 0 if trainer.data_parallel_world_size > 1 else self.here


request = Request()


def share_request(aggregate: Callable, trainer: Any, logging_outputs: Any, *extra_stats_to_sum: Any, ignore: bool = False) -> Any:
    """Share a request to any process with all of them, by one more number in the sums that fairseq takes at every update."""
    outputs, (*sums, requests) = aggregate(trainer, logging_outputs, *extra_stats_to_sum, float(request.here), ignore=ignore)
    request.everywhere = float(requests)  # fairseq waits for these sums here anyway
    return outputs, sums


def save_and_stop(validate_and_save: Callable) -> Callable:
    """Wrap fairseq's end of an update: if requested, save checkpoint_last.pt and end training, except with ``--no-save``.

    Raises:
        InputError: the variable :data:`SAVE_SECONDS` is no number.
    """
    from fairseq import checkpoint_utils
    from omegaconf import OmegaConf

    try:
        seconds, saved = float(os.environ.get(SAVE_SECONDS, "inf")), time.monotonic()
    except ValueError:
        raise InputError(f"{SAVE_SECONDS}={os.environ[SAVE_SECONDS]}: a number of seconds is needed") from None

    @functools.wraps(validate_and_save)
    def validate_save_and_stop(cfg, trainer, task, epoch_itr, *rest):
        nonlocal saved
        valid_losses, should_stop = validate_and_save(cfg, trainer, task, epoch_itr, *rest)
        asked, alone = request.of(trainer), trainer.data_parallel_world_size == 1
        due = alone and not cfg.checkpoint.no_save and time.monotonic() >= saved + seconds
        if should_stop or not (asked or due):
            return valid_losses, should_stop
        if cfg.checkpoint.no_save:
            logger.warning(f"{SIGNAL.name} is ignored: with --no-save, there is nothing from which training could continue")
            request.clear()
            return valid_losses, False
        if asked:
            logger.warning(f"asked by {SIGNAL.name} to stop, after {trainer.get_num_updates()} updates; saving a checkpoint")
        checkpoint = OmegaConf.merge(cfg.checkpoint, {"no_last_checkpoints": False})
        checkpoint_utils.save_checkpoint(checkpoint, trainer, epoch_itr, valid_losses[0])
        request.granted, saved = asked, time.monotonic()
        return valid_losses, asked

    return validate_save_and_stop


def listening() -> AbstractContextManager[None]:
    """In this context, the signal is a request to this process, as it was while :func:`forward` handled it."""
    return handling(_note, replaces=(signal.SIG_DFL, forward))


@contextmanager
def handling(handler: Callable, replaces: tuple = (signal.SIG_DFL,)) -> Iterator[None]:
    """Handle the signal in this context, unless a handler is installed that is not in ``replaces``."""
    before = signal.getsignal(SIGNAL)
    free = before in replaces and threading.current_thread() is threading.main_thread()
    if free:
        signal.signal(SIGNAL, handler)
        signal.siginterrupt(SIGNAL, False)  # system calls that wait for other processes are resumed
    try:
        yield
    finally:
        if free:
            signal.signal(SIGNAL, before)


def _note(*_: Any) -> None:
    request.here = True


def forward(number: int, *_: Any) -> None:
    """Pass the signal on to the processes that this process has spawned; without any, it will train itself."""
    _note()
    for child in multiprocessing.active_children():
        if child.pid is not None:
            os.kill(child.pid, number)
