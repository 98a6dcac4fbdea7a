"""Data-bins and the threads that read them."""

import atexit
import logging
import os
import queue
import threading
import time
import types
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from ..errors import InputError
from ..files import INDEX_HEADER, require_regular
from .patching import ModuleProxy, replaced, wrap

logger = logging.getLogger(__name__)

CHECKED_IDS = 1 << 24
"""Ids at the beginning of a .bin file that are compared with the dictionary; all ids of a corpus would take too long."""
CHECKED_TOGETHER = 1 << 20
"""Items of an .idx file that are in memory at once."""
MAX_WAIT_SECONDS = 10.0
"""How long the end of training waits for the batch that is being read."""


def numpy_names() -> None:
    """Supply ``np.int``, ``np.float`` and ``np.compat.long``, removed by NumPy 1.24 and 2.0, to the modules that use them.

    Can be removed when fairseq uses ``int`` and ``float``.
    """
    from fairseq.data import data_utils, language_pair_dataset, token_block_dataset
    from fairseq.modules import dynamic_crf_layer

    view = ModuleProxy(np, int=int, float=float, compat=types.SimpleNamespace(long=int))
    for module in (data_utils, language_pair_dataset, token_block_dataset, dynamic_crf_layer):
        module.np = view


def explain_dictionaries() -> None:
    """Report a dict.txt that is missing or cannot be read by its name, with what to do.

    fairseq raises a FileNotFoundError without advice, and errors about the encoding and duplicate symbols that name no file. Can
    be removed when fairseq reports them.
    """
    from fairseq.data import Dictionary

    @wrap(Dictionary, "add_from_file")
    def explained(add_from_file, self, f):
        if not isinstance(f, str):
            return add_from_file(self, f)
        try:
            require_regular(f)
            return add_from_file(self, f)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"There is no dictionary {f}. A fairseq data directory (a data-bin) holds its dictionary next to the .bin and "
                ".idx files: check the DATA argument, or make a data-bin from text with fairseq-posenc prepare."
            ) from error
        except OSError:
            raise
        except Exception as error:  # fairseq raises nothing narrower
            reason = " ".join(str(error).split(". ")[0].split())
            raise InputError(
                f"{f} cannot be read as a dictionary: {reason}. It is UTF-8, each line holds a symbol, a space and a count, and "
                "each symbol appears once: copy the file again from where the data was prepared."
            ) from error


def refuse_damaged_data() -> None:
    """Compare a .bin file with its .idx file and with the dictionary when it is opened.

    fairseq fails hours later, at the first item that is missing, with "buffer is smaller than requested size"; an id that the
    dictionary lacks is an IndexError, and on a GPU "device-side assert triggered". Can be removed when fairseq compares them.
    """
    from fairseq.data import indexed_dataset

    for name in ("index_file_path", "data_file_path"):

        @wrap(indexed_dataset, name)
        def path_of_file(path_of, prefix):
            if os.path.exists(path := path_of(prefix)):
                require_regular(path)
            return path

    @wrap(indexed_dataset, "make_dataset")
    def checked(make_dataset, path, impl, fix_lua_indexing=False, dictionary=None):
        if indexed_dataset.MMapIndexedDataset.exists(path):
            kind = indexed_dataset.infer_dataset_impl(path)
            if kind is None:
                raise InputError(f"{path}.idx is no index of fairseq's: prepare the data again, or copy the file again")
            if kind == "mmap":
                _require_intact(path, None if dictionary is None else len(dictionary))
        return make_dataset(path, impl, fix_lua_indexing, dictionary)


def _require_intact(prefix: str, symbols: int | None) -> None:
    """Check that the items follow one another and fill both files, and that the first ids are below ``symbols``."""
    from fairseq.data.indexed_dataset import _code_to_dtype

    index, header_size = f"{prefix}.idx", INDEX_HEADER.size
    advice = "Prepare the data again, or copy both files again."
    with open(index, "rb") as file:
        _, _, code, items = INDEX_HEADER.unpack(file.read(header_size).ljust(header_size, b"\0"))
    if code not in _code_to_dtype or os.path.getsize(index) != header_size + 12 * items:
        raise InputError(f"{index} is damaged: its length does not fit its number of items. {advice}")
    if not items:
        raise InputError(f"{prefix}.bin and .idx hold nothing: prepare them from some text, or remove them")
    dtype = np.dtype(_code_to_dtype[code])
    sizes = np.memmap(index, "<i4", "r", header_size, (items,))
    offsets = np.memmap(index, "<i8", "r", header_size + 4 * items, (items,))
    end = 0  # of the items so far, in the .bin file
    for start in range(0, items, CHECKED_TOGETHER):
        lengths = sizes[start : start + CHECKED_TOGETHER].astype(np.int64) * dtype.itemsize
        ends = end + np.cumsum(lengths)
        if (lengths < 0).any() or (offsets[start : start + CHECKED_TOGETHER] != ends - lengths).any():
            raise InputError(f"{index} is damaged: its items do not follow one another. {advice}")
        end = int(ends[-1])
    if end != (size := os.path.getsize(f"{prefix}.bin")):
        raise InputError(f"{prefix}.bin has {size:,} bytes, and its .idx describes {end:,}: they do not match. {advice}")
    largest = int(np.fromfile(f"{prefix}.bin", dtype, count=CHECKED_IDS).max(initial=0))
    if symbols is not None and largest >= symbols:
        raise InputError(
            f"{prefix}.bin has the id {largest:,}, and its dictionary has {symbols:,} symbols: it is damaged, or dict.txt is "
            "from another vocabulary. Prepare the data again, or copy dict.txt again from where it was prepared."
        )


class ClosableQueue(queue.Queue):
    """A queue that, once ``closed``, drops what is put in instead of waiting for room."""

    closed = False

    def put(self, item, block=True, timeout=None):
        while not self.closed:
            with suppress(queue.Full):
                return super().put(item, timeout=0.1)


_readers: weakref.WeakSet[threading.Thread] = weakref.WeakSet()  # of fairseq's iterators


def readers_that_can_end() -> None:
    """Let :func:`end_readers` end the threads that read batches ahead, and end all of them at exit.

    fairseq leaves them to Python, which ends a daemon thread wherever it is. Inside PyTorch, that aborts the process with status
    -6, although training has ended and saved everything. Can be removed when fairseq ends them.
    """
    from fairseq.data import iterators

    @wrap(iterators.BufferedIterator, "_create_consumer")
    def create_and_remember(create_consumer, self):
        create_consumer(self)
        _readers.add(self._consumer)

    iterators.queue = ModuleProxy(queue, Queue=ClosableQueue)
    atexit.register(lambda: _end(set(_readers)))


@contextmanager
def end_readers(run: Any = None) -> Iterator[None]:
    """On exit, end the threads that read batches ahead for iterators made in this context."""
    others = set(_readers)
    try:
        yield
    finally:
        _end(set(_readers) - others)


def _end(readers: Iterable[Any]) -> None:
    for reader in readers:
        reader._max_len = 0  # it stops after the current batch
        reader._queue.closed = True
    for reader in readers:
        reader.join(MAX_WAIT_SECONDS)


def skip_only_the_last_batch() -> None:
    """Leave out the last batch of an epoch (``--skip-remainder-batch``) after a resume within the epoch, too, and no others.

    fairseq takes the number of batches that are left for that of the whole epoch: the epoch loses as many as were read before the
    resume, and it is over, with an error in ``train``, if fewer are left. Can be removed when fairseq adds the two.
    """
    from fairseq.data import iterators

    @wrap(iterators.EpochBatchIterator, "_get_iterator_for_epoch")
    def all_but_the_last(get_iterator, self, *arguments, offset=0, **options):
        if not (offset and self.skip_remainder_batch):
            return get_iterator(self, *arguments, offset=offset, **options)
        with replaced(vars(self), skip_remainder_batch=False):
            batches = get_iterator(self, *arguments, offset=offset, **options)
        return None if batches is None else batches.take(len(batches) - 1)


def log_waiting_for_data() -> None:
    """Log ``data_wait``, the share of the time that training waits for its next batches.

    Where it is not near 0, more ``--num-workers`` help, and a faster model does not. Can be removed when fairseq logs it.
    """
    from fairseq.data import iterators
    from fairseq.logging import metrics

    class TimedIterator(iterators.GroupedIterator):
        def __next__(self):
            start = time.perf_counter()
            batches = super().__next__()
            with metrics.aggregate("train_inner"):  # "train" is already open
                metrics.log_speed("data_wait", time.perf_counter() - start, priority=850, round=3)
            return batches

    iterators.GroupedIterator = TimedIterator


def workers_of_one_epoch() -> None:
    """Start the processes that read training batches (``--num-workers``) again in every epoch.

    fairseq keeps them, and ``set_epoch`` does not reach their copies of the data. So the masks of a masked language model, which
    depend on the epoch, were those of the first epoch in all epochs, and others after a resume. Can be removed when fairseq
    tells its workers.
    """
    from fairseq.data import iterators

    @wrap(iterators.EpochBatchIterator, "next_epoch_itr")
    def next_epoch_itr(next_epoch_itr, self, *arguments, set_dataset_epoch=True, **options):
        if set_dataset_epoch and self.next_epoch_idx != self.epoch:
            self.dataloader = None
        return next_epoch_itr(self, *arguments, set_dataset_epoch=set_dataset_epoch, **options)


def workers_leave_inherited_iterators() -> None:
    """Leave alone, in a forked process that reads data, the iterators that it has inherited: only their own process ends them.

    Python may delete one there, as it is part of a cycle; PyTorch then prints a traceback of an AssertionError ("can only test a
    child process"), which changes nothing. Can be removed when PyTorch does the same.
    """
    from torch.utils.data import dataloader

    @wrap(dataloader._MultiProcessingDataLoaderIter, "__del__")
    def delete(delete, self):
        if all(worker._parent_pid == os.getpid() for worker in getattr(self, "_workers", ())):
            delete(self)


def resume_at_the_same_place() -> None:
    """Resume within an epoch after the same share of its batches, by another number of processes, or with other batches.

    fairseq counts the batches of one process, so that some samples of the epoch would be read twice, or not at all. Can be
    removed when fairseq counts those of all.
    """
    from fairseq.data import iterators

    @wrap(iterators.EpochBatchIterator, "state_dict")
    def state_dict(state_dict, self):
        return {**state_dict(self), "processes": self.num_shards, "batches_of_all": len(self.frozen_batches)}

    @wrap(iterators.EpochBatchIterator, "load_state_dict")
    def load_state_dict(load_state_dict, self, state):
        if (read := state.get("iterations_in_epoch", 0)) and (before := state.get("batches_of_all")):
            now = len(self.frozen_batches)
            place = read * state["processes"] * now // (before * self.num_shards)
            if place != read:
                logger.info(f"continuing after {place} of {len(self)} batches of the epoch, the same share as in the checkpoint")
            state = {**state, "iterations_in_epoch": place}
        load_state_dict(self, state)


PATCHES = (
    numpy_names, explain_dictionaries, refuse_damaged_data, readers_that_can_end, skip_only_the_last_batch, log_waiting_for_data,
    workers_of_one_epoch, workers_leave_inherited_iterators, resume_at_the_same_place,
)  # fmt: skip
