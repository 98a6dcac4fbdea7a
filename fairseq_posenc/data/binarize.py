"""Text to ids over processes: chunks go out in order, come back in order, and only a few are under way at a time."""

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import numpy as np

from fairseq_posenc.data.databin import DatabinWriter
from fairseq_posenc.data.text import Passage
from fairseq_posenc.data.tokenizer import Tokenizer

CHUNK_BYTES = 1 << 20
Item, Result = TypeVar("Item"), TypeVar("Result")


class Chunk(NamedTuple):
    split: str
    passages: list[Passage]
    opens_split: bool
    """Whether no document of its split comes before it."""


class Encoded(NamedTuple):
    split: str
    ids: np.ndarray
    sizes: np.ndarray
    documents: int
    text_bytes: int


def binarize(passages: Iterable[tuple[str, Passage]], model: bytes, writers: dict[str, DatabinWriter], workers: int) -> None:
    """Encode every passage into its split's writer, in order.

    A line is one item, closed by ``</s>``; between two documents of a split lies an item of a lone ``</s>``, which
    ``--sample-break-mode complete_doc`` looks for.

    Args:
        passages: pairs of a split's name and a passage.
        model: the sentencepiece model.
        writers: by the split's name.
        workers: processes that encode; 1 encodes in this one.
    """
    with _encoders(model, workers) as executor:
        for encoded in _ordered_map(executor, _encode, chunks(passages), window=2 * workers):
            writer = writers[encoded.split]
            writer.add(encoded.ids, encoded.sizes)
            writer.totals.update(documents=encoded.documents, text_bytes=encoded.text_bytes)


def chunks(passages: Iterable[tuple[str, Passage]]) -> Iterator[Chunk]:
    """Neighbouring passages of a split, about ``CHUNK_BYTES`` together."""
    waiting: dict[str, list[Passage]] = {}
    sizes: dict[str, int] = {}
    begun: set[str] = set()

    def release(split: str) -> Chunk:
        chunk = Chunk(split, waiting.pop(split), opens_split=split not in begun)
        begun.add(split)
        return chunk

    for split, passage in passages:
        waiting.setdefault(split, []).append(passage)
        sizes[split] = sizes.get(split, 0) + len(passage.text)
        if sizes[split] >= CHUNK_BYTES:
            sizes[split] = 0
            yield release(split)
    for split in list(waiting):
        yield release(split)


_tokenizer: Tokenizer  # of a worker, or of this process where there is only one


def _encode(chunk: Chunk) -> Encoded:
    lines: list[str] = []
    for index, passage in enumerate(chunk.passages):
        if passage.opens_document and not (index == 0 and chunk.opens_split):
            lines.append("")
        lines += passage.lines()
    ids, sizes = _tokenizer.encode(lines)
    documents = sum(passage.opens_document for passage in chunk.passages)
    return Encoded(chunk.split, ids, sizes, documents, sum(len(passage.text) for passage in chunk.passages))


def _start_worker(model: bytes) -> None:
    global _tokenizer
    _tokenizer = Tokenizer(model)
    parent = multiprocessing.parent_process()
    if parent is not None:  # a worker whose parent was killed would wait for work for ever
        threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()


@contextmanager
def _encoders(model: bytes, workers: int) -> Iterator[Executor | None]:
    if workers == 1:
        _start_worker(model)
        yield None
        return
    executor = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start_worker, (model,))
    try:
        yield executor
    except BrokenProcessPool:
        raise OSError(
            "an encoding process ended unexpectedly, as the system ends one when memory runs out. Try fewer --workers."
        ) from None
    finally:
        executor.shutdown(cancel_futures=True)


def _ordered_map(
    executor: Executor | None, function: Callable[[Item], Result], items: Iterable[Item], window: int
) -> Iterator[Result]:
    """As ``executor.map``, which however takes all its items at once; here at most ``window`` are under way."""
    if executor is None:
        yield from map(function, items)
        return
    under_way: deque = deque()
    for item in items:
        under_way.append(executor.submit(function, item))
        if len(under_way) >= window:
            yield under_way.popleft().result()
    while under_way:
        yield under_way.popleft().result()
