"""``--batch-warmup-updates``: batches that grow at the beginning of a training."""

import functools
from collections.abc import Callable
from itertools import islice
from typing import Any

from fairseq.data.iterators import CountingIterator

from ...base.patching import ModuleProxy, replaced
from .epochs import TimedIterator

OPTION = "batch_warmup_updates"
HELP = "updates over which the micro-batches per update grow from 1 to --update-freq, each number for equally many updates"


def micro_batches(update_freq: int, warmup: int, update: int) -> int:
    """Return the micro-batches of an update (from 0 on): 1 + ⌊F u / W⌋ of F for u below the W updates of the warm-up, then F."""
    return min(update_freq, 1 + update_freq * update // warmup)


class GrowingGroups(TimedIterator):
    """fairseq's ``GroupedIterator`` with groups that grow with the number of updates, so that training resumes where it was.

    Args:
        batches: micro-batches of an epoch, of which some may have been consumed.
        update_freq: the size of groups after the warm-up.
        skip_remainder_batch: leave out the last group of the epoch if it is not full.
        warmup: updates of the warm-up.
        updates: updates before the first group.
    """

    def __init__(
        self, batches: CountingIterator, update_freq: int, skip_remainder_batch: bool = False, *, warmup: int, updates: int
    ) -> None:
        left, sizes = len(batches) - batches.n, list[int]()
        while left > 0:
            size = micro_batches(update_freq, warmup, updates + len(sizes))
            if skip_remainder_batch and size > left:
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


def with_growing_batches(module: dict[str, Any], train: Callable) -> Callable:
    """Wrap fairseq's ``train`` of an epoch, whose module has these globals, so that it applies the option."""

    @functools.wraps(train)
    def train_with_growing_batches(cfg: Any, trainer: Any, task: Any, epoch_itr: Any) -> Any:
        if not (warmup := getattr(cfg.optimization, OPTION, 0)):
            return train(cfg, trainer, task, epoch_itr)
        groups = functools.partial(GrowingGroups, warmup=warmup, updates=trainer.get_num_updates())
        with replaced(module, iterators=ModuleProxy(module["iterators"], GroupedIterator=groups)):
            return train(cfg, trainer, task, epoch_itr)

    return train_with_growing_batches
