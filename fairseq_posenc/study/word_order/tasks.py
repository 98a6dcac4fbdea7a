"""The data of ``fairseq-posenc tasks``: random sequences whose targets depend on word order.

A task draws symbols x, (B, n), and targets y, (B, m), both counted from 0. They become tokens in one of two layouts: in place,
m = n, and the target of each token is predicted where the token is, -1 marking tokens without a target; or m tokens :data:`BLANK`
follow x, and the targets are predicted there, all at once (Ruoss et al. 2023, section 3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

START, BLANK, FIRST = 0, 3, 4
"""Token ids; symbol s is the token ``FIRST + s``. 1 is padding, and 2 does not occur."""
SYMBOLS = 20
INDEXED, READS = 16, 8  # positions that an index can name, and indices in a sequence
IGNORED = -100  # the target of a token at which nothing is predicted; what PyTorch's cross_entropy ignores

Sample = Callable[..., tuple[Tensor, Tensor]]
"""(generator, B, n) -> x and y. That of an indexed task also takes ``positions``, how many an index can name."""


@dataclass(frozen=True)
class Task:
    """A task.

    Attributes:
        sample: draws symbols and targets.
        in_place: whether the targets are predicted at the tokens of x, rather than after them.
        shortest: the least length that has a target.
        symbols: the number of symbols that a model knows, those of all tasks unless given.
        indexed: whether there are symbols that each name a position.
    """

    sample: Sample
    in_place: bool = False
    shortest: int = 1
    symbols: int = SYMBOLS + INDEXED
    indexed: bool = False

    def trained_on(self, longest: int) -> Task:
        """Return the task without symbols that name a position beyond the longest length in training, which are untrained."""
        return replace(self, sample=partial(self.sample, positions=longest)) if self.indexed else self

    def batch(self, generator: Generator, rows: int, length: int) -> tuple[Tensor, Tensor]:
        """Draw tokens (rows, N) and the target of each, (rows, N); N is greater than ``length``."""
        x, y = self.sample(generator, rows, length)
        tokens, targets = x + FIRST, torch.where(y < 0, IGNORED, y + FIRST)
        if not self.in_place:
            tokens, targets = F.pad(tokens, (0, y.shape[1]), value=BLANK), F.pad(targets, (x.shape[1], 0), value=IGNORED)
        return F.pad(tokens, (1, 0), value=START), F.pad(targets, (1, 0), value=IGNORED)


def _draw(generator: Generator, rows: int, length: int, symbols: int = SYMBOLS) -> Tensor:
    return torch.randint(symbols, (rows, length), generator=generator)


def offset(generator: Generator, rows: int, length: int, k: int) -> tuple[Tensor, Tensor]:
    """Name the token k places to the left: y_i = x_{i-k}."""
    x = _draw(generator, rows, length)
    return x, torch.cat((torch.full((rows, k), -1), x[:, :-k]), 1)


def copy(generator: Generator, rows: int, length: int) -> tuple[Tensor, Tensor]:
    """Repeat the sequence: y = x, (B, n) each."""
    x = _draw(generator, rows, length)
    return x, x


def reverse(generator: Generator, rows: int, length: int) -> tuple[Tensor, Tensor]:
    """Repeat the sequence backwards: y_i = x_{n-1-i}, (B, n) each."""
    x = _draw(generator, rows, length)
    return x, x.flip(1)


def indirect_indexing(generator: Generator, rows: int, length: int, positions: int = INDEXED) -> tuple[Tensor, Tensor]:
    """After the symbols come indices, tokens that each name one of the first positions; y is the symbol there."""
    symbols = _draw(generator, rows, length)
    indices = _draw(generator, rows, READS, min(length, positions, INDEXED))
    return torch.cat((symbols, SYMBOLS + indices), 1), torch.cat((torch.full_like(symbols, -1), symbols.gather(1, indices)), 1)


def flip_flop(generator: Generator, rows: int, length: int) -> tuple[Tensor, Tensor]:
    """Pairs of an instruction, write (2), read (3) or ignore (4), and a bit; y is, at each read, the bit last written.

    The bit of a read is hidden (5). The first instruction is a write, and the last a read (Liu et al. 2023, "Exposing attention
    glitches with flip-flop language modeling", section 3; there a decoder predicts, and most instructions are ignore).
    """
    pairs = max(2, length // 2)
    instructions, bits = 2 + _draw(generator, rows, pairs, 3), _draw(generator, rows, pairs, 2)
    instructions[:, 0], instructions[:, -1] = 2, 3
    last_write = torch.where(instructions == 2, torch.arange(pairs), 0).cummax(1).values
    reads = instructions == 3
    x = torch.stack((instructions, torch.where(reads, 5, bits)), 2).flatten(1)
    y = torch.where(reads, bits.gather(1, last_write), -1)
    return x, torch.stack((torch.full_like(y, -1), y), 2).flatten(1)


TASKS = {
    "offset_2": Task(partial(offset, k=2), in_place=True, shortest=3),
    "offset_5": Task(partial(offset, k=5), in_place=True, shortest=6),
    "copy": Task(copy),
    "reverse": Task(reverse),
    "indirect_indexing": Task(indirect_indexing, in_place=True, indexed=True),
    "flip_flop": Task(flip_flop, in_place=True, shortest=4),
    "order": Task(partial(offset, k=2), in_place=True, shortest=3, symbols=SYMBOLS),
}
"""``order`` is ``offset_2`` with the model and the learning rate of the papers, for FIDELITY.md. At that learning rate, scores of
symbols that do not occur would delay learning, so that it has none."""
