"""Figures in logs and in TensorBoard, and in flags."""

import functools
import time

from fairseq_posenc.compat.view import wrap


def logs_after_a_resume() -> None:
    """Log the wall time of the whole training after a resume, and let TensorBoard forget what was logged beyond the checkpoint.

    fairseq logs ``wall`` 0, since the stopwatch that it reads from the checkpoint is not started, and TensorBoard shows the
    updates after the checkpoint twice. Can be removed when fairseq starts the stopwatch and gives ``purge_step``.
    """
    from fairseq.logging import metrics, progress_bar
    from fairseq.trainer import Trainer

    summary_writer = progress_bar.SummaryWriter

    @wrap(Trainer, "get_train_iterator")
    def go_on(get_train_iterator, self, *args, **kwargs):  # called once the checkpoint is loaded, and before anything is logged
        wall = metrics.get_meter("default", "wall")
        if wall is not None:  # which a checkpoint may lack
            wall.start_time = time.perf_counter() - float(self._local_cumulative_training_time())  # of processes, a tensor
        if summary_writer is not None and not progress_bar._tensorboard_writers:
            updates = self.get_num_updates()
            progress_bar.SummaryWriter = functools.partial(summary_writer, purge_step=updates + 1 if updates else None)
        return get_train_iterator(self, *args, **kwargs)


def no_speed_of_nothing() -> None:
    """Leave out ``wps`` where it is 0 because nothing was counted since it was first asked for, as in ``fairseq-validate``.

    Can be removed when fairseq does.
    """
    from fairseq.logging.meters import MetersDict, TimeMeter

    @wrap(MetersDict, "get_smoothed_values")
    def get_counted(get_smoothed_values, self):
        idle = {key for key, meter in self.items() if isinstance(meter, TimeMeter) and not meter.i}
        return {key: value for key, value in get_smoothed_values(self).items() if key not in idle}


def numbers_in_lists() -> None:
    """Report a list of numbers that cannot be read, as ``--update-freq '${env:HOME}'``, as every flag with a wrong value.

    Can be removed when fairseq raises ValueError.
    """
    from fairseq.dataclass import utils

    @wrap(utils, "eval_str_list")
    def eval_or_refuse(eval_str_list, x, x_type=float):
        try:
            return eval_str_list(x, x_type)
        except SyntaxError:
            raise ValueError(x) from None


PATCHES = (logs_after_a_resume, no_speed_of_nothing, numbers_in_lists)
