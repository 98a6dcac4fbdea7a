"""Which batches of an epoch are read, after a resume as well."""

import logging
from collections.abc import Callable
from typing import Any

from fairseq.data.iterators import CountingIterator, EpochBatchIterator

from ...base.patching import replaced

logger = logging.getLogger(__name__)


def all_but_the_last(
    get_iterator: Callable, epochs: EpochBatchIterator, *arguments: Any, offset: int = 0, **options: Any
) -> CountingIterator | None:
    """Return the rest of an epoch without its last batch, for ``--skip-remainder-batch``."""
    if not (offset and epochs.skip_remainder_batch):
        return get_iterator(epochs, *arguments, offset=offset, **options)
    with replaced(vars(epochs), skip_remainder_batch=False):
        batches = get_iterator(epochs, *arguments, offset=offset, **options)
    return None if batches is None else batches.take(len(batches) - 1)


def with_new_workers(
    next_epoch: Callable, epochs: EpochBatchIterator, *arguments: Any, set_dataset_epoch: bool = True, **options: Any
) -> CountingIterator:
    """Begin an epoch with new processes that read its batches, since the old ones have the data of the epoch before."""
    if set_dataset_epoch and epochs.next_epoch_idx != epochs.epoch:
        epochs.dataloader = None
    return next_epoch(epochs, *arguments, set_dataset_epoch=set_dataset_epoch, **options)


def state_dict(save: Callable, epochs: EpochBatchIterator) -> dict[str, Any]:
    """Return the place in the data, with the numbers of processes and of the batches of all of them."""
    return {**save(epochs), "processes": epochs.num_shards, "batches_of_all": len(epochs.frozen_batches)}


def load_state_dict(load: Callable, epochs: EpochBatchIterator, state: dict[str, Any]) -> None:
    """Continue after the same share of an epoch's batches."""
    if (read := state.get("iterations_in_epoch", 0)) and (before := state.get("batches_of_all")):
        place = read * state["processes"] * len(epochs.frozen_batches) // (before * epochs.num_shards)
        place = min(place, max(0, len(epochs) - 1 - epochs.skip_remainder_batch))  # fairseq's train needs one at least
        if place != read:
            logger.info(f"continuing after {place} of {len(epochs)} batches of the epoch, the same share as in the checkpoint")
        state = {**state, "iterations_in_epoch": place}
    load(epochs, state)
