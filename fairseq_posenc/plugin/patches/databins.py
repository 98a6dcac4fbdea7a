"""Data-bins and the threads that read them."""

import atexit
import logging
import os
import queue
import struct
import threading
import time
import types
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from ...base.errors import InputError
from ...base.files import INDEX_HEADER, INDEX_MAGIC, INDEX_VERSION, require_regular
from .patching import ModuleProxy, replaced, wrap

logger = logging.getLogger(__name__)

CHECKED_TOGETHER = 1 << 20
"""Ids of a .bin file, or items of an .idx file, that are in memory at once."""
OLDER_HEADER = struct.Struct("<8sQQQQQ")
"""Of the .idx file of ``--dataset-impl lazy`` and ``cached``: its magic and version, the code of the ids' type and its bytes, and
the numbers of items and of their dimensions. Three tables of int64 follow: for each item and the end, its first dimension and its
first id; and the dimensions, one for each item, which are the sizes."""
ADVICE = "Prepare the data again, or copy both files again."
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
    """Compare a .bin file with its .idx file and all of its ids with the dictionary when it is opened.

    fairseq fails hours later, at the first item that is missing, with "buffer is smaller than requested size"; an id that the
    dictionary lacks is an IndexError, and on a GPU "device-side assert triggered". Fractions are cut off without a word. Can be
    removed when fairseq compares them.
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
        if not indexed_dataset.MMapIndexedDataset.exists(path) or (kind := indexed_dataset.infer_dataset_impl(path)) == "raw":
            return make_dataset(path, impl, fix_lua_indexing, dictionary)
        if kind is None:
            raise InputError(f"{path}.idx is no index of fairseq's: prepare the data again, or copy the file again")
        if impl != kind and (impl, kind) != ("lazy", "cached"):
            raise InputError(f"{path}.idx is of --dataset-impl {kind}, not {impl}: correct the flag, or leave it out")
        if kind != "huffman":
            dtype = _require_intact(path, kind == "cached")
            _require_ids(path, dtype, int(kind == "cached" and fix_lua_indexing), dictionary)
        try:
            return make_dataset(path, impl, fix_lua_indexing, dictionary)
        except (AssertionError, ValueError, LookupError, AttributeError, struct.error) as error:
            raise InputError(
                f"{path}.idx and .bin cannot be read ({type(error).__name__}: {error}): prepare the data again"
            ) from error


def _require_intact(prefix: str, older: bool) -> np.dtype:
    """Check that the items follow one another and fill both files; returns the type of the ids."""
    from fairseq.data.indexed_dataset import _code_to_dtype

    index, header = f"{prefix}.idx", OLDER_HEADER if older else INDEX_HEADER
    with open(index, "rb") as file:
        beginning = file.read(header.size)
    magic, version, code, *counts = header.unpack(beginning.ljust(header.size, b"\0"))
    if len(beginning) == header.size and (version != INDEX_VERSION or (not older and magic != INDEX_MAGIC)):
        raise InputError(f"{index} has version {version} of its format, and fairseq reads version {INDEX_VERSION}. {ADVICE}")
    dtype = np.dtype(_code_to_dtype.get(code, "V"))
    unit, items = (counts[0], counts[1]) if older else (1, counts[0])
    whole = unit in (1, dtype.itemsize) and counts[2:] == [items] * older
    if not dtype.itemsize or not whole or os.path.getsize(index) != header.size + (24 * items + 16 if older else 12 * items):
        raise InputError(f"{index} is damaged, or of another program: its length does not fit its number of items. {ADVICE}")
    if dtype.kind not in "iu":
        raise InputError(f"{index} describes ids of the type {dtype}, and ids are whole numbers. {ADVICE}")
    if not items:
        raise InputError(f"{prefix}.bin and .idx hold nothing: prepare them from some text, or remove them")
    sizes_at, offsets_at = (16 * items + 16, 8 * items + 8) if older else (0, 4 * items)
    sizes = np.memmap(index, "<i8" if older else "<i4", "r", header.size + sizes_at, (items,))
    offsets = np.memmap(index, "<i8", "r", header.size + offsets_at, (items + older,))
    end, intact = 0, True  # of the items so far, in the .bin file
    if older:
        intact = np.array_equal(np.memmap(index, "<i8", "r", header.size, (items + 1,)), np.arange(items + 1))
    for start in range(0, items, CHECKED_TOGETHER):
        tables = np.stack([table[start : start + CHECKED_TOGETHER].astype(np.int64) for table in (sizes, offsets[:items])])
        lengths, begins = tables * [[dtype.itemsize], [unit]]
        ends = end + np.cumsum(lengths)
        in_file = tables.min() >= 0 and tables.max() < 1 << 48  # so that the products do not overflow
        intact &= bool(in_file and (begins == ends - lengths).all())
        end = int(ends[-1])
    if not intact or (older and int(offsets[-1]) * unit != end):
        raise InputError(f"{index} is damaged: its items do not follow one another. {ADVICE}")
    if end != (held := os.path.getsize(f"{prefix}.bin")):
        raise InputError(f"{prefix}.bin has {held:,} bytes, and its .idx describes {end:,}: they do not match. {ADVICE}")
    return dtype


def _require_ids(prefix: str, dtype: np.dtype, first: int, dictionary: Any) -> None:
    """Check that all ids, of which ``first`` is written for 0, are those of a dictionary, if there is one."""
    symbols = np.inf if dictionary is None else len(dictionary)
    with open(f"{prefix}.bin", "rb") as file:
        while len(ids := np.fromfile(file, dtype, CHECKED_TOGETHER)):
            for number in (int(ids.max()) - first, int(ids.min()) - first):
                if number < 0:
                    raise InputError(f"{prefix}.bin has the id {number:,}, and ids begin at 0. {ADVICE}")
                if number >= symbols:
                    raise InputError(
                        f"{prefix}.bin has the id {number:,}, and its dictionary has {symbols:,} symbols: it is damaged, or "
                        "dict.txt is from another vocabulary. Prepare the data again, or copy dict.txt again from where it was "
                        "prepared."
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
