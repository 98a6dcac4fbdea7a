"""The batches of an update: how many there are, also after a resume, and while they grow (``--batch-warmup-updates``)."""

import functools
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

from fairseq.data.iterators import CountingIterator, GroupedIterator
from fairseq.logging import metrics

from ...base.patching import ModuleProxy, replaced

OPTION = "batch_warmup_updates"
HELP = "updates over which the micro-batches per update grow from 1 to --update-freq, each number for equally many updates"


def micro_batches(update_freq: int, warmup: int, update: int) -> int:
    """Return the micro-batches of an update (from 0 on): 1 + ⌊F u / W⌋ of F for u below the W updates of the warm-up, then F."""
    return min(update_freq, 1 + update_freq * update // warmup) if warmup else update_freq


class Groups(GroupedIterator):
    """The micro-batches of an epoch, grouped by update. They log ``data_wait``, the share of the time spent on waiting for them.

    fairseq's groups end the epoch without its last batches after a resume at a place that no group ends at, and the epoch begins
    again. Here the groups may also grow with the number of updates.

    Args:
        batches: micro-batches of an epoch, of which some may have been consumed.
        update_freq: the size of groups after the warm-up.
        skip_remainder_batch: leave out the last group of the epoch if it is not full.
        warmup: updates of the warm-up, in which groups grow; 0 if there is none.
        updates: updates before the first group.
    """

    def __init__(
        self, batches: CountingIterator, update_freq: int, skip_remainder_batch: bool = False, *, warmup: int, updates: int
    ) -> None:
        left, sizes = len(batches) - batches.n, list[int]()
        while left > 0:
            size = micro_batches(update_freq, warmup, updates + len(sizes))
            if skip_remainder_batch and size > left and sizes:  # fairseq's train needs one at least
                batches.take(len(batches) - left)  # as fairseq does, so that the epoch ends with the last group
                break
            sizes.append(size)
            left -= size
        done, before = 0, batches.n  # groups of the epoch before a resume, and their micro-batches
        while before > 0 and done < updates:
            done += 1
            before -= micro_batches(update_freq, warmup, updates - done)
        groups = ([*islice(batches, size)] for size in sizes)
        CountingIterator.__init__(self, groups, start=done, total=done + len(sizes))  # not GroupedIterator's equal groups

    def __next__(self) -> list[Any]:
        start = time.perf_counter()
        batches = super().__next__()
        with metrics.aggregate("train_inner"):  # "train" is already open
            metrics.log_speed("data_wait", time.perf_counter() - start, priority=850, round=3)
        return batches


def in_groups(module: dict[str, Any], train: Callable) -> Callable:
    """Wrap fairseq's ``train`` of an epoch, whose module has these globals, so that it reads :class:`Groups`."""

    @functools.wraps(train)
    def train_in_groups(cfg: Any, trainer: Any, task: Any, epoch_itr: Any) -> Any:
        warmup, updates = getattr(cfg.optimization, OPTION, 0), trainer.get_num_updates()
        groups = functools.partial(Groups, warmup=warmup, updates=updates)
        with replaced(module, iterators=ModuleProxy(module["iterators"], GroupedIterator=groups)):
            return train(cfg, trainer, task, epoch_itr)

    return train_in_groups
