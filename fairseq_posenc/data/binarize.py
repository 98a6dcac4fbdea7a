"""Text to ids by several processes: chunks go out and come back in order, with only a few in flight at a time."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from ..vocabulary import LineEncoder
from .split import Routed
from .text import Passage

CHUNK_BYTES = 1 << 20


class Items(NamedTuple):
    """What goes to one destination: the ids of all items in a row, and the size of each.

    A document starts with an item that is a single ``</s>``.
    """

    ids: np.ndarray
    sizes: np.ndarray
    documents: int
    text_bytes: int


Encode = Callable[[Iterable[Routed]], Iterator[dict[str, Items]]]
"""From passages to the items of each destination, in the same order and a chunk at a time."""


@contextmanager
def encoding(encoder: LineEncoder, workers: int) -> Iterator[Encode]:
    """Give the function that encodes.

    Args:
        encoder: rebuilt by each process from its files.
        workers: processes that encode; 1 encodes in this one.
    """
    if workers == 1:
        _encode_with(encoder)
        yield lambda passages: map(_encode, in_chunks(passages))
        return
    executor = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start_worker, (encoder.files,))
    try:
        yield lambda passages: _in_order(executor, in_chunks(passages), 2 * workers)
    except BrokenProcessPool:
        raise OSError(
            "an encoding process ended unexpectedly, as the system ends one when memory runs out. Try fewer --workers."
        ) from None
    finally:
        executor.shutdown(cancel_futures=True)


def _in_order(executor: Executor, chunks: Iterable[list[Routed]], most: int) -> Iterator[dict[str, Items]]:
    """Chunks are taken a few at a time, where ``Executor.map`` would take all at once."""
    pending: deque = deque()
    for chunk in chunks:
        pending.append(executor.submit(_encode, chunk))
        if len(pending) >= most:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


def in_chunks(passages: Iterable[Routed]) -> Iterator[list[Routed]]:
    """Neighbouring passages, about ``CHUNK_BYTES`` together."""
    chunk: list[Routed] = []
    size = 0
    for routed in passages:
        chunk.append(routed)
        size += len(routed[1].text)
        if size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    yield chunk


_encoder: LineEncoder  # of a worker, or of this process if it encodes


def _encode(chunk: list[Routed]) -> dict[str, Items]:
    passages: dict[str, list[Passage]] = {}
    for destination, passage in chunk:
        passages.setdefault(destination, []).append(passage)
    items = {}
    for destination, at_destination in passages.items():
        lines = [line for passage in at_destination for line in (*[""] * passage.opens_document, *passage.lines())]
        documents = sum(passage.opens_document for passage in at_destination)
        items[destination] = Items(*_encoder.encode(lines), documents, sum(len(passage.text) for passage in at_destination))
    return items


def _encode_with(encoder: LineEncoder) -> None:
    global _encoder
    _encoder = encoder
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # there are as many workers as were asked for


def _start_worker(files: Mapping[str, bytes]) -> None:
    _encode_with(LineEncoder(files))
    parent = multiprocessing.parent_process()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent ends the others
    # A worker whose parent was killed would wait for work forever.
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
