"""Chooses documents for validation, a shard for each document, and the lines on which the tokenizer is trained.

The choices are random, but functions of the seed and the document's position alone: neither the number of processes nor an
interruption changes them.
"""

import math
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice, repeat

from ...base.errors import InputError
from .text import OnRead, Passage, ignore
from .text_sources import VALID, Source, estimated_text

AssignedPassage = tuple[str, Passage]
"""A passage with the name of where it goes: a shard's, or ``VALID``."""

MIN_FILES = 16
"""Of a group: fewer files may all be of one kind of text, and each shard should have every kind."""
MAX_DOCUMENT_BYTES = 1 << 30
"""A longer text is not one document, but text whose documents are not separated."""
ENOUGH_VALID_BYTES = 100_000
"""Bytes of text that make about 25,000 tokens: several thousand at least, however much the documents' lengths differ."""
PARTS = 64
"""In which large text is read for the vocabulary, each of one size and from the file that a mark hits."""
SAMPLED_PIECE = re.compile(r".{1,4096}(?!\S)|.{1,4096}", re.DOTALL)
"""A part of a line for the vocabulary, as long as it may be and before white space, if there is any. The time that sentencepiece
takes grows faster than the length of what a line repeats."""


def default_fraction(text_bytes: int | None) -> float:
    """Return the default share to hold out: a hundredth; of little text as much as is enough, at most a tenth."""
    return 1 / (100 if text_bytes is None else max(10, min(100, text_bytes // ENOUGH_VALID_BYTES)))


def held_out(fraction: float, seed: int) -> Iterator[bool]:
    """Yield for each document in turn whether it is held out: one of every ``1 / fraction`` documents, at random."""
    chance = random.Random(f"held out {seed}")
    start = 0
    for stratum in count(1):
        stop = math.ceil(stratum / fraction)
        chosen = chance.randrange(start, stop)
        yield from (document == chosen for document in range(start, stop))
        start = stop


def deal(shards: Sequence[str], seed: int, file: int) -> Iterator[str]:
    """Yield for each document of a file in turn its shard: each round of ``len(shards)`` documents gives every shard one."""
    if len(shards) == 1:
        yield from repeat(shards[0])
    chance = random.Random(f"deal {seed} {file}")
    while True:
        yield from chance.sample(shards, len(shards))


class Split:
    """Where the documents of the training text go.

    Files and shards are divided into groups, so that a shard can be made without reading all files: group ``g`` of ``G`` has
    files and shards ``g``, ``g + G``, …, and the documents of its files are dealt to its shards. Held-out documents are those
    of the first group, whose first shard has the validation text; ``fraction`` is their share, or 0.
    """

    def __init__(self, shards: Sequence[str], fraction: float, seed: int, files: int) -> None:
        self.shards, self.fraction, self.seed = shards, fraction, seed
        number = len(shards)
        self.groups = max(n for n in range(1, number + 1) if number % n == 0 and (n == 1 or n * MIN_FILES <= files))

    def destinations(self, file: int) -> list[str]:
        """Return the names of all places where documents of a file may go."""
        group = file % self.groups
        return [*self.shards[group :: self.groups], *([VALID] if self.fraction and group == 0 else [])]

    def route(self, passages: Iterable[Passage], file: int) -> Iterator[AssignedPassage]:
        """Yield each passage of a file with its destination; documents stay whole.

        The i-th file of a group begins i documents later in the sequence of ``held_out``, so that of files with a single
        document one of every ``1 / fraction`` is held out too.
        """
        group, index = file % self.groups, file // self.groups
        dealt = deal(self.shards[group :: self.groups], self.seed, file)
        held: Iterator[bool] = repeat(False)
        if self.fraction and group == 0:
            held = islice(held_out(self.fraction, self.seed), index % math.ceil(1 / self.fraction), None)
        where = ""
        for passage in passages:
            if passage.opens_document:
                shard = next(dealt)
                where = VALID if next(held) else shard
            yield where, passage


def training_lines(sources: Sequence[Source], split: Split, enough: int, on_read: OnRead = ignore) -> Iterator[str]:
    """Yield lines that are not held out, the long ones in pieces, of about ``enough`` bytes: from the beginnings of sources.

    Reading continues until every shard, and the validation text if it is held out, is known to get a document.

    Raises:
        InputError: one would get none; the message names what to change.
    """
    lacking = {*split.shards, *([VALID] if split.fraction else [])}
    documents = [0] * len(sources)
    read, owed = 0, 0.0  # what a file is too short for, others make up
    for index, share in _shares(sources, split.seed, enough):
        here, owed = split.destinations(index), owed + share
        if owed <= 0 and lacking.isdisjoint(here):
            continue
        for destination, passage in split.route(sources[index].passages(on_read), index):
            lacking.discard(destination)
            documents[index] += passage.opens_document
            read += len(passage.text)
            if destination != VALID:
                if owed > 0:
                    yield from (piece for line in passage.lines() for piece in SAMPLED_PIECE.findall(line))
                owed -= len(passage.text)
            if owed <= 0 and lacking.isdisjoint(here):
                break
            if lacking and sum(documents) == 1 and read > MAX_DOCUMENT_BYTES:
                raise _lack(lacking, documents, sources, split)
    if lacking:
        raise _lack(lacking, documents, sources, split)


def _shares(sources: Sequence[Source], seed: int, enough: int) -> Iterator[tuple[int, float]]:
    """Yield each source, in random order, with the bytes to read of it: without an end if all have no more than ``enough``.

    Otherwise the sources, laid end to end, are marked at :data:`PARTS` equal distances, and each mark reads a part of the source
    that it hits (systematic sampling): the bytes are proportional to the sizes, and few sources of many are opened.
    """
    chance = random.Random(f"vocabulary {seed}")
    order = chance.sample(range(len(sources)), len(sources))
    total = estimated_text(sources)
    weights = [1 if total is None else estimated_text([source]) or 0 for source in sources]
    whole, offset = max(1, sum(weights)), chance.random()
    marks = passed = 0
    for index in order:
        passed += weights[index]
        before, marks = marks, math.ceil(passed / whole * PARTS - offset)
        yield index, (marks - before) * enough / PARTS if total is None or total > enough else math.inf


def _lack(lacking: set[str], documents: Sequence[int], sources: Sequence[Source], split: Split) -> InputError:
    name = VALID if VALID in lacking else min(lacking)
    files = [index for index in range(len(sources)) if name in split.destinations(index)]
    number = sum(documents[index] for index in files)
    named = ", ".join(sources[index].name for index in files[:3]) + (", …" if len(files) > 3 else "")
    if not number:
        return InputError(f"no text for train in {named}: nothing but blank lines.")
    reason = f"dealt to {len(split.shards) // split.groups} shards. Ask for fewer --shards"
    if name == VALID:
        share = f"--valid-fraction {split.fraction} holds out one of every {1 / split.fraction:,.3g}"
        reason = f"and {share}. Change it, give --valid FILES"
    advice = "separate the documents by blank lines, or give --document-per-line."
    return InputError(f"no document for {name}: {named} has {number:,}, {reason}, {advice}")


def sample_lines(lines: Iterable[str], max_characters: int, seed: int) -> list[str]:
    """Return a uniform sample of the lines, in order, of at most ``max_characters``, in one pass and bounded memory.

    Each line draws a number. Whenever the kept lines exceed the limit, the threshold is halved and the lines above it are
    dropped. All lines are kept if they fit.
    """
    chance = random.Random(f"sample {seed}")
    threshold, size = 1.0, 0
    kept: list[tuple[float, str]] = []
    for line in lines:
        draw = chance.random()
        if draw >= threshold:
            continue
        kept.append((draw, line))
        size += len(line)
        while size > max_characters:
            threshold /= 2
            kept = [item for item in kept if item[0] < threshold]
            size = sum(len(line) for _, line in kept)
    return [line for _, line in kept]
