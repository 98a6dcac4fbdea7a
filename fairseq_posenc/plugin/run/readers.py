"""The threads that read batches ahead, and their end."""

import queue
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

MAX_WAIT_SECONDS = 10.0
"""How long the end of training waits for the batch that is being read."""


class ClosableQueue(queue.Queue):
    """A queue that, once ``closed``, drops what is put in instead of waiting for room."""

    closed = False

    def put(self, item, block=True, timeout=None):
        while not self.closed:
            with suppress(queue.Full):
                return super().put(item, timeout=0.1)


started: weakref.WeakSet[threading.Thread] = weakref.WeakSet()  # of fairseq's iterators


@contextmanager
def end_readers(run: Any = None) -> Iterator[None]:
    """On exit, end the threads that read batches ahead for iterators made in this context."""
    others = set(started)
    try:
        yield
    finally:
        end(set(started) - others)


def end(readers: Iterable[Any]) -> None:
    """End these threads after the batch that each is reading."""
    for reader in readers:
        reader._max_len = 0  # it stops after the current batch
        reader._queue.closed = True
    for reader in readers:
        reader.join(MAX_WAIT_SECONDS)
