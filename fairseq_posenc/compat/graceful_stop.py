"""A training that gets SIGUSR1 saves a checkpoint after the current update, in all processes, and ends."""

import functools
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

logger = logging.getLogger(__name__)

SIGNAL = signal.SIGUSR1  # which Slurm can send before the time limit; SIGTERM ends a training at once, as usual
STOPPED = 75  # exit status: EX_TEMPFAIL, try again


class Request:
    """Whether the training of this process should stop."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Start over, for another training."""
        self.here = False  # asked of this process
        self.everywhere = 0.0  # number of processes asked, known to all of them
        self.granted = False  # the checkpoint has been saved

    def of(self, trainer: Any) -> bool:
        """Whether any process was asked; all give the same answer after the same update."""
        return self.everywhere > 0 if trainer.data_parallel_world_size > 1 else self.here


request = Request()


def share_request(aggregate: Callable, trainer: Any, logging_outputs: Any, *extra_stats_to_sum: Any, ignore: bool = False) -> Any:
    """Let every process know of a request to any, through one more number in the sums that fairseq takes at every update."""
    outputs, sums = aggregate(trainer, logging_outputs, *extra_stats_to_sum, float(request.here), ignore=ignore)
    *sums, asked = sums
    request.everywhere = float(asked)  # here, where fairseq waits for these sums itself, and not once more in each update
    return outputs, sums


def save_and_stop(validate_and_save: Callable) -> Callable:
    """fairseq's end of an update; then, if requested, an extra checkpoint and the end of training."""
    from fairseq import checkpoint_utils

    @functools.wraps(validate_and_save)
    def validate_save_and_stop(cfg, trainer, task, epoch_itr, *rest):
        valid_losses, should_stop = validate_and_save(cfg, trainer, task, epoch_itr, *rest)
        if not should_stop and request.of(trainer):
            logger.warning(f"asked by {SIGNAL.name} to stop, after {trainer.get_num_updates()} updates; saving a checkpoint")
            checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, epoch_itr, valid_losses[0])
            request.granted = should_stop = True
        return valid_losses, should_stop

    return validate_save_and_stop


@contextmanager
def listening() -> Iterator[None]:
    """While this is open, the signal is a request to this process."""
    request.clear()
    with handling(_note, instead_of=(signal.SIG_DFL, pass_on)):
        yield


@contextmanager
def handling(handler: Callable, instead_of: tuple = (signal.SIG_DFL,)) -> Iterator[None]:
    """Handle the signal, unless another handler than those in ``instead_of`` is installed."""
    before = signal.getsignal(SIGNAL)
    free = before in instead_of and threading.current_thread() is threading.main_thread()
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


def pass_on(number: int, *_: Any) -> None:
    """A handler for the parent of spawned processes: they get the signal."""
    for child in multiprocessing.active_children():
        os.kill(child.pid, number)
