"""Which documents are held out for validation, and which lines the tokenizer learns from: by chance, but repeatably."""

import math
import random
from collections.abc import Iterable, Iterator
from itertools import count

from fairseq_posenc.data.text import Passage


def held_out(fraction: float, seed: int) -> Iterator[bool]:
    """For each document in turn whether it is held out: one, by chance, of every ``1 / fraction`` documents.

    That many documents are therefore enough for one to be held out.
    """
    chance = random.Random(f"held out {seed}")
    start = 0
    for stratum in count(1):
        stop = math.ceil(stratum / fraction)
        chosen = chance.randrange(start, stop)
        yield from (document == chosen for document in range(start, stop))
        start = stop


def assign_splits(passages: Iterable[Passage], fraction: float, seed: int) -> Iterator[tuple[str, Passage]]:
    """Each passage with the name of its split, ``train`` or ``valid``; documents stay whole."""
    held = held_out(fraction, seed) if fraction else None
    split = "train"
    for passage in passages:
        if held and passage.opens_document:
            split = "valid" if next(held) else "train"
        yield split, passage


def sample_lines(lines: Iterable[str], max_bytes: int, seed: int) -> list[str]:
    """A uniform sample of the lines, in order, of at most ``max_bytes`` characters, in one pass and in bounded memory.

    Every line draws a number; whenever those kept outgrow the bound, the threshold is halved and those above it go. All
    lines are kept where they fit.
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
        while size > max_bytes:
            threshold /= 2
            kept = [item for item in kept if item[0] < threshold]
            size = sum(len(line) for _, line in kept)
    return [line for _, line in kept]
