"""Steps, and figures in logs and in TensorBoard."""

import functools
import time

from fairseq import trainer
from fairseq.criterions import masked_lm
from fairseq.logging import meters, metrics, progress_bar
from fairseq.tasks import FairseqTask

from ...base.patching import ModuleProxy, wrap
from ..batches.masked_lm import CORRECT, correct
from ..processes import graceful_stop


def logs_after_a_resume() -> None:
    """After a resume, log the wall time of the whole training, and let TensorBoard drop what was logged after the checkpoint.

    fairseq does not start the stopwatch that it reads from the checkpoint. Can be removed when it does so and passes
    ``purge_step``.
    """
    summary_writer = progress_bar.SummaryWriter

    @wrap(trainer.Trainer, "get_train_iterator")
    def restore_wall_time(get_train_iterator, self, *args, **kwargs):  # after loading, before anything is logged
        wall = metrics.get_meter("default", "wall")
        if wall is not None:  # which a checkpoint may lack
            wall.start_time = time.perf_counter() - float(self._local_cumulative_training_time())  # of processes, a tensor
        if summary_writer is not None and not progress_bar._tensorboard_writers:
            updates = self.get_num_updates()
            progress_bar.SummaryWriter = functools.partial(summary_writer, purge_step=updates + 1 if updates else None)
        return get_train_iterator(self, *args, **kwargs)


def no_speed_of_nothing() -> None:
    """Leave speeds out of logs where nothing was counted: fairseq-validate logs 0. Can be removed when fairseq does so."""

    @wrap(meters.MetersDict, "get_smoothed_values")
    def counted(get_smoothed_values, self):
        idle = {name for name, meter in self.items() if isinstance(meter, meters.TimeMeter) and not meter.i}
        return {name: value for name, value in get_smoothed_values(self).items() if name not in idle}


def share_requests_to_stop() -> None:
    """Sum the requests of all processes to stop along with logging outputs. Can be removed when fairseq stops on a signal."""
    wrap(trainer.Trainer, "_aggregate_logging_outputs")(graceful_stop.share_request)


def empty_batches_of_validation() -> None:
    """Skip the empty batches that fairseq-validate gives to processes among which the batches do not divide evenly.

    Can be removed when fairseq skips them.
    """

    @wrap(FairseqTask, "valid_step")
    def valid_step(step, task, sample, *args, **kwargs):
        return step(task, sample, *args, **kwargs) if sample else (0, 0, {})


def parameters_that_are_shared() -> None:
    """Report parameters that modules share. fairseq takes those that are None, such as biases that are left out, for one.

    Can be removed when fairseq does not.
    """

    @wrap(trainer, "_catalog_shared_params")
    def without_those_left_out(catalog, module, *args):
        shared = catalog(module, *args)  # None where it calls itself
        return shared and [paths for paths in shared if trainer._get_module_by_path(module, paths[0]) is not None]


def accuracy_of_masked_words() -> None:
    """Log the share of masked tokens that a model predicts, in per cent. Can be removed when fairseq's ``masked_lm`` does."""
    loss_of, criterion = masked_lm.modules.cross_entropy, masked_lm.MaskedLmLoss
    reduce_metrics, counted = criterion.reduce_metrics, []

    def cross_entropy(logits, targets, ignore_index, **options):
        counted.append(correct(logits, targets, ignore_index))
        return loss_of(logits, targets, ignore_index=ignore_index, **options)

    masked_lm.modules = ModuleProxy(masked_lm.modules, cross_entropy=cross_entropy)

    @wrap(criterion, "forward")
    def forward(forward, *args, **kwargs):
        loss, size, logged = forward(*args, **kwargs)
        return loss, size, {**logged, CORRECT: counted.pop()}

    def reduce(logging_outputs):
        reduce_metrics(logging_outputs)
        logs = [log for log in logging_outputs if log]  # of processes whose last batch of validation is not empty
        if logs and all(CORRECT in log for log in logs):
            right, size = (sum(log[name] for log in logs) for name in (CORRECT, "sample_size"))
            metrics.log_scalar("accuracy", 100.0 * right / size, size, round=1)

    criterion.reduce_metrics = staticmethod(reduce)
