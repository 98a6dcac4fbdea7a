"""Steps, and figures in logs and in TensorBoard."""

import functools
import time

from ...base.patching import wrap
from ..processes import graceful_stop


def logs_after_a_resume() -> None:
    """After a resume, log the wall time of the whole training, and let TensorBoard drop what was logged after the checkpoint.

    fairseq does not start the stopwatch that it reads from the checkpoint. Can be removed when it does so and passes
    ``purge_step``.
    """
    from fairseq.logging import metrics, progress_bar
    from fairseq.trainer import Trainer

    summary_writer = progress_bar.SummaryWriter

    @wrap(Trainer, "get_train_iterator")
    def restore_wall_time(get_train_iterator, self, *args, **kwargs):  # after loading, before anything is logged
        wall = metrics.get_meter("default", "wall")
        if wall is not None:  # which a checkpoint may lack
            wall.start_time = time.perf_counter() - float(self._local_cumulative_training_time())  # of processes, a tensor
        if summary_writer is not None and not progress_bar._tensorboard_writers:
            updates = self.get_num_updates()
            progress_bar.SummaryWriter = functools.partial(summary_writer, purge_step=updates + 1 if updates else None)
        return get_train_iterator(self, *args, **kwargs)


def share_requests_to_stop() -> None:
    """Sum the requests of all processes to stop along with logging outputs. Can be removed when fairseq stops on a signal."""
    from fairseq.trainer import Trainer

    wrap(Trainer, "_aggregate_logging_outputs")(graceful_stop.share_request)


def empty_batches_of_validation() -> None:
    """Skip the empty batches that fairseq-validate gives to processes among which the batches do not divide evenly.

    Can be removed when fairseq skips them.
    """
    from fairseq.tasks import FairseqTask

    @wrap(FairseqTask, "valid_step")
    def valid_step(step, task, sample, *args, **kwargs):
        return step(task, sample, *args, **kwargs) if sample else (0, 0, {})


PATCHES = (logs_after_a_resume, share_requests_to_stop, empty_batches_of_validation)
