"""Encoding: each shard is written by one process, and recorded once it is complete.

A shard's files are renamed once all of it is written, ``dict.txt`` last, without which fairseq does not read the folder. An
interrupted shard is written again from its beginning. Several processes may turn text into ids: chunks are sent and received in
order, only a few at a time.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
from tqdm import tqdm

from ...base.errors import InputError
from ...base.files import atomic_write
from ..vocabulary import DICTIONARY, UNKNOWN, LineEncoder
from .databin import DatabinWriter
from .folder import Folder
from .split import AssignedPassage, Split
from .text import Passage
from .text_sources import VALID, Source, Sources, progress_bar

MAX_AT_ONCE = 100
"""Shards that are written in one pass over their text, each to three open files."""

Job = tuple[str, int, Source]
"""The role of a source, its number among those of this role, and the source."""
Written = tuple[dict[str, dict[str, Any]], dict[tuple[str, int], str]]
"""The shards that one pass has completed, by name, as the manifest records them; SHA-256 of what it read, by role and number."""
Items = tuple[np.ndarray, np.ndarray, dict[str, int]]
"""The items of one destination: their ids one after another, the size of each, and totals of :data:`.databin.COUNTS`.

A document starts with an item that is a single ``</s>``."""
Encode = Callable[[Iterable[AssignedPassage]], Iterator[dict[str, Items]]]
"""From passages to the items of each destination, in the same order and a chunk at a time."""


def write_shards(
    folder: Folder, names: Collection[str], sources: Sources, split: Split, encoder: LineEncoder, workers: int
) -> Iterator[Written]:
    """Write the shards of these names, those of a group together; each is locked until the next ones are requested.

    Raises:
        InputError, OSError: what is wrong with the text, or another process is writing one of these shards.
    """
    jobs = {role: [(role, index, source) for index, source in enumerate(of_role)] for role, of_role in sources.items()}
    with encoding(encoder, workers) as encode:
        for group in range(split.groups):
            wanted = [name for name in split.shards[group :: split.groups] if name in names]
            for start in range(0, len(wanted), MAX_AT_ONCE):
                together = wanted[start : start + MAX_AT_ONCE]
                texts = [*jobs["train"][group :: split.groups], *(jobs[VALID] if split.shards[0] in together else [])]
                yield from _one_pass(folder, together, texts, split, encoder, encode)


def _one_pass(
    folder: Folder, names: Sequence[str], jobs: Sequence[Job], split: Split, encoder: LineEncoder, encode: Encode
) -> Iterator[Written]:
    hashes: dict[tuple[str, int], str] = {}
    with ExitStack() as stack:
        writers = {}
        for name in names:
            stack.enter_context(folder.lock_shard(name))
            for destination, prefix in folder.prefixes(name).items():
                prefix.parent.mkdir(exist_ok=True)
                writers[destination] = stack.enter_context(DatabinWriter(prefix, encoder.dtype, len(encoder.symbols)))
        bar = stack.enter_context(progress_bar("encoding", [source for _, _, source in jobs]))
        for items in encode(_passages(jobs, split, writers, hashes, bar)):
            for destination, (ids, sizes, totals) in items.items():
                writers[destination].add(ids, sizes, **totals)
        for destination, writer in writers.items():
            if writer.totals["items"] < writer.totals["documents"]:
                raise InputError(f"no text for {destination}: the vocabulary has no token for any of its lines. Name other text.")
            writer.finish()
        yield {name: _complete(folder, name, writers, encoder) for name in names}, hashes


def _passages(
    jobs: Sequence[Job], split: Split, destinations: Collection[str], hashes: dict[tuple[str, int], str], bar: tqdm
) -> Iterator[AssignedPassage]:
    for role, index, source in jobs:
        passages = source.passages(bar.update, partial(hashes.__setitem__, (role, index)))
        routed = split.route(passages, index) if role == "train" else ((VALID, passage) for passage in passages)
        yield from (item for item in routed if item[0] in destinations)


def _complete(folder: Folder, name: str, writers: dict[str, DatabinWriter], encoder: LineEncoder) -> dict[str, Any]:
    """Write the tokenizer and the dictionary of a shard; returns its entry in the manifest."""
    place = folder.shards[name]
    contents = {} if place == folder.out else dict(encoder.files)
    contents[DICTIONARY] = encoder.dictionary.text(writers[name].counts.tolist()).encode("utf-8")
    for file, content in contents.items():
        with atomic_write(place / file, "wb") as stream:
            stream.write(content)
    texts = {prefix.name: writers[destination] for destination, prefix in folder.prefixes(name).items()}
    files = [place / DICTIONARY, *(path for writer in texts.values() for path in (writer.bin, writer.idx))]
    return {
        "totals": {text: dict(writer.totals) for text, writer in texts.items()},
        "files": {str(path.relative_to(folder.out)): path.stat().st_size for path in files},
    }


CHUNK_BYTES = 1 << 20


@contextmanager
def encoding(encoder: LineEncoder, workers: int) -> Iterator[Encode]:
    """Yield the function that encodes, in ``workers`` processes or, with 1, in this one."""
    if workers == 1:
        _encode_with(encoder)
        yield lambda passages: map(_encode, in_chunks(passages))
        return
    executor = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start_worker, (encoder.files,))
    try:
        yield lambda passages: _in_order(executor, in_chunks(passages), 2 * workers)
    except BrokenProcessPool:
        raise OSError("an encoding process was ended, perhaps because memory ran out. Try fewer --workers.") from None
    finally:
        executor.shutdown(cancel_futures=True)


def _in_order(executor: Executor, chunks: Iterable[list[AssignedPassage]], max_pending: int) -> Iterator[dict[str, Items]]:
    """Yield results in order; chunks are read a few at a time, where ``Executor.map`` would read all of them first."""
    pending: deque = deque()
    for chunk in chunks:
        pending.append(executor.submit(_encode, chunk))
        if len(pending) >= max_pending:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


def in_chunks(passages: Iterable[AssignedPassage]) -> Iterator[list[AssignedPassage]]:
    """Yield lists of neighbouring passages, about ``CHUNK_BYTES`` each."""
    chunk: list[AssignedPassage] = []
    size = 0
    for routed in passages:
        chunk.append(routed)
        size += len(routed[1].text)
        if size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    yield chunk


_encoder: LineEncoder  # of a worker, or of this process if it encodes


def _encode(chunk: list[AssignedPassage]) -> dict[str, Items]:
    passages: dict[str, list[Passage]] = {}
    for destination, passage in chunk:
        passages.setdefault(destination, []).append(passage)
    items = {}
    for destination, at_destination in passages.items():
        lines = [line for passage in at_destination for line in (*[""] * passage.opens_document, *passage.lines())]
        ids, sizes = _encoder.encode(lines)
        # The tokenizer drops some characters; a line of such alone would be an empty item, which ends a document.
        lost = (sizes == 1) & np.array(lines, bool)
        ids, sizes = np.delete(ids, sizes.cumsum()[lost] - 1), sizes[~lost]
        totals = {
            "documents": sum(passage.opens_document for passage in at_destination),
            "text_bytes": sum(len(passage.text) for passage in at_destination),
            "spelled": sum(passage.text.count(UNKNOWN.encode()) for passage in at_destination),
        }
        items[destination] = ids, sizes, totals
    return items


def _encode_with(encoder: LineEncoder) -> None:
    global _encoder
    _encoder = encoder
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # --workers sets the number of processes


def _start_worker(files: Mapping[str, bytes]) -> None:
    _encode_with(LineEncoder(files))
    parent: Any = multiprocessing.parent_process()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent ends the others

    def end_with_parent() -> None:  # without it, this process would wait for work forever
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
