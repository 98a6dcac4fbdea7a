"""Data directories and their readers."""

import atexit
import os
import queue
import threading
import time
import types
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

import numpy as np

from fairseq_posenc.compat.view import View, wrap
from fairseq_posenc.errors import InputError
from fairseq_posenc.files import INDEX_HEADER

LOOKED_AT = 1 << 24
"""Ids at the beginning of a .bin file that are looked for in the dictionary; all of a corpus would take too long."""
AT_ONCE = 1 << 20
"""Items of an .idx file that are compared at once."""
LAST_BATCH = 10.0
"""Seconds to wait for the batch that is being read when training ends."""


def numpy_names() -> None:
    """Supply ``np.int``, ``np.float`` and ``np.compat.long``, removed by NumPy 1.24 and 2.0, to the modules that use them.

    Without the last, ``--sample-break-mode eos`` and ``translation`` do not run. Can be removed when fairseq says ``int``.
    """
    from fairseq.data import data_utils, language_pair_dataset, token_block_dataset
    from fairseq.modules import dynamic_crf_layer

    view = View(np, int=int, float=float, compat=types.SimpleNamespace(long=int))
    for module in (data_utils, language_pair_dataset, token_block_dataset, dynamic_crf_layer):
        module.np = view


def explain_dictionaries() -> None:
    """Name a dict.txt that is missing or cannot be read, and say what to do.

    fairseq passes on a bare FileNotFoundError, raises Exception and RuntimeError about the encoding and about
    duplicate symbols, and names no file. Can be removed when fairseq says it.
    """
    from fairseq.data import Dictionary

    @wrap(Dictionary, "add_from_file")
    def explained(add_from_file, self, f):
        if not isinstance(f, str):
            return add_from_file(self, f)
        try:
            return add_from_file(self, f)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"There is no dictionary {f}. A fairseq data directory (a data-bin) holds its dictionary beside the .bin "
                "and .idx files: check the DATA argument, or make a data-bin from text with fairseq-posenc prepare (or "
                "fairseq-preprocess)."
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
    """Compare a .bin file with its .idx and with the dictionary when it is opened, and name what does not fit.

    fairseq opens them, and fails at the first item that is not there, hours later, with "buffer is smaller than requested size";
    an id that the dictionary has not is an IndexError, and on a GPU "device-side assert triggered". Can be removed when
    fairseq looks.
    """
    from fairseq.data import indexed_dataset

    @wrap(indexed_dataset, "make_dataset")
    def checked(make_dataset, path, impl, fix_lua_indexing=False, dictionary=None):
        if indexed_dataset.MMapIndexedDataset.exists(path):
            kind = indexed_dataset.infer_dataset_impl(path)
            if kind is None:
                raise InputError(f"{path}.idx is no index of fairseq's: prepare the data again, or copy the file again")
            if kind == "mmap":
                dtype = _require_whole(path)
                if dictionary is not None:
                    _require_known(path, dtype, len(dictionary))
        return make_dataset(path, impl, fix_lua_indexing, dictionary)


def _require_whole(prefix: str) -> np.dtype:
    """The sizes of both files are those of the items; returns the ids' type."""
    from fairseq.data.indexed_dataset import _code_to_dtype

    index = f"{prefix}.idx"
    with open(index, "rb") as file:
        header = file.read(INDEX_HEADER.size)
        _, _, code, items = INDEX_HEADER.unpack(header.ljust(INDEX_HEADER.size, b"\0"))
        if code not in _code_to_dtype or os.path.getsize(index) != INDEX_HEADER.size + 12 * items:
            raise InputError(
                f"{index} is damaged: it is not as long as its items make it. Prepare the data again, or copy it again."
            )
        if not items:
            raise InputError(f"{prefix}.bin and .idx hold nothing: prepare them of some text, or remove them")
    dtype = np.dtype(_code_to_dtype[code])
    wanted = _require_contiguous(index, items, dtype.itemsize)
    found = os.path.getsize(f"{prefix}.bin")
    if wanted != found:
        raise InputError(
            f"{prefix}.bin has {found:,} bytes, and its .idx is of {wanted:,}: one was cut, or they are not of one preparation. "
            "Prepare the data again, or copy both files again."
        )
    return dtype


def _require_contiguous(index: str, items: int, bytes_per_id: int) -> int:
    """Each item begins where the one before it ends; returns where the last one ends."""
    sizes = np.memmap(index, "<i4", "r", INDEX_HEADER.size, (items,))
    offsets = np.memmap(index, "<i8", "r", INDEX_HEADER.size + 4 * items, (items,))
    end = 0
    for first in range(0, items, AT_ONCE):
        size = sizes[first : first + AT_ONCE].astype(np.int64) * bytes_per_id
        ends = end + np.cumsum(size)
        wrong = (offsets[first : first + AT_ONCE] != ends - size) | (size < 0)
        if wrong.any():
            raise InputError(
                f"{index} is damaged: its item {first + int(wrong.argmax()) + 1:,} does not begin where the one before ends. "
                "Prepare the data again, or copy it again."
            )
        end = int(ends[-1])
    return end


def _require_known(prefix: str, dtype: np.dtype, symbols: int) -> None:
    """The first ids are the dictionary's."""
    most = int(np.fromfile(f"{prefix}.bin", dtype, count=LOOKED_AT).max(initial=0))
    if most >= symbols:
        raise InputError(
            f"{prefix}.bin has the id {most:,}, and its dictionary has {symbols:,} symbols: it is damaged, or dict.txt is of "
            "another vocabulary. Prepare the data again, or copy dict.txt again from where it was prepared."
        )


class ClosableQueue(queue.Queue):
    """Once ``closed``, drops what is put in instead of waiting for room."""

    closed = False

    def put(self, item, block=True, timeout=None):
        while not self.closed:
            with suppress(queue.Full):
                return super().put(item, timeout=0.1)


readers: weakref.WeakSet[threading.Thread] = weakref.WeakSet()  # of fairseq's iterators


def readers_that_can_end() -> None:
    """Let the threads that read batches ahead be ended: by :func:`ending_readers`, and at the latest at exit.

    fairseq leaves it to Python, which ends a daemon thread wherever it is: inside PyTorch that is "terminate called without
    an active exception" and status -6, of a training that ended within an epoch and had saved everything. Can be removed when
    fairseq ends them.
    """
    from fairseq.data import iterators

    @wrap(iterators.BufferedIterator, "_create_consumer")
    def create_and_remember(create_consumer, self):
        create_consumer(self)
        readers.add(self._consumer)

    iterators.queue = View(queue, Queue=ClosableQueue)
    atexit.register(lambda: _end(set(readers)))


@contextmanager
def ending_readers() -> Iterator[None]:
    """End the threads that read ahead for iterators which are made while this is open."""
    others = set(readers)
    try:
        yield
    finally:
        _end(set(readers) - others)


def _end(ending: Iterable[threading.Thread]) -> None:
    for reader in ending:
        reader._max_len = 0  # it stops after the batch that it is at
        reader._queue.closed = True
    for reader in ending:
        reader.join(LAST_BATCH)


def log_waiting_for_data() -> None:
    """Log ``data_wait`` with the training's statistics: the share of the time that it waits for its next batches.

    Where it is not near 0, more ``--num-workers`` help, and a faster model does not. Can be removed when fairseq logs it.
    """
    from fairseq.data import iterators
    from fairseq.logging import metrics

    class TimedIterator(iterators.GroupedIterator):
        def __next__(self):
            start = time.perf_counter()
            batches = super().__next__()
            with metrics.aggregate("train_inner"):  # beside "train", which is open
                metrics.log_speed("data_wait", time.perf_counter() - start, priority=850, round=3)
            return batches

    iterators.GroupedIterator = TimedIterator


PATCHES = (numpy_names, explain_dictionaries, refuse_damaged_data, readers_that_can_end, log_waiting_for_data)
