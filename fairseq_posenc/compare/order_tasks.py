"""The data of ``fairseq-posenc tasks``: random sequences whose targets depend on word order.

A task draws symbols x, (B, n), and targets y, (B, m), both counted from 0. They become tokens in one of three layouts:

- :data:`IN_PLACE`: m = n, and the target of each token is predicted where the token is; -1 marks tokens without a target;
- :data:`AFTER`: m tokens :data:`BLANK` follow x, and the targets are predicted there, all at once (Ruoss et al. 2023, section 3);
- :data:`CAUSAL`: y follows x and one :data:`BLANK`, and a decoder predicts each token of y, and the end, from those before it.

Nine of the fifteen tasks of Ruoss et al. 2023 (appendix A.1) are here: even pairs, modular arithmetic without brackets, parity
check, cycle navigation, reverse string, duplicate string, missing duplicate, odds first and bucket sort. The others (stack
manipulation, modular arithmetic with brackets, solve equation, binary addition and multiplication, square root) are not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Generator, Tensor

START, PADDING, END, BLANK, FIRST = range(5)
"""Token ids; symbol s is the token ``FIRST + s``."""
SYMBOLS = 20  # of the tasks that are not Ruoss et al.'s, whose own alphabets are small
INDEXED, READS = 16, 8  # positions that an index can name, and indices in a sequence
IGNORED = -100  # the target of a token at which nothing is predicted; what PyTorch's cross_entropy ignores
IN_PLACE, AFTER, CAUSAL = "in place", "after", "causal"

Sample = Callable[..., tuple[Tensor, Tensor]]
"""(generator, B, n) -> x and y. That of an indexed task also takes ``positions``, how many an index can name."""


@dataclass(frozen=True)
class Task:
    """A task.

    Attributes:
        sample: draws symbols and targets.
        layout: where the targets are predicted.
        shortest: the least length that has a target.
        symbols: the number of symbols that a model knows, those of all tasks unless given.
        indexed: whether there are symbols that each name a position.
    """

    sample: Sample
    layout: str = AFTER
    shortest: int = 1
    symbols: int = SYMBOLS + INDEXED
    indexed: bool = False

    def trained_on(self, longest: int) -> Task:
        """Return the task without symbols that name a position beyond the longest length in training, which are untrained."""
        return replace(self, sample=partial(self.sample, positions=longest)) if self.indexed else self

    def batch(self, generator: Generator, rows: int, length: int) -> tuple[Tensor, Tensor]:
        """Draw tokens (rows, N) and the target of each, (rows, N); N is greater than ``length``."""
        x, y = self.sample(generator, rows, length)
        inputs, outputs = x + FIRST, torch.where(y < 0, IGNORED, y + FIRST)

        def repeated(token: int, count: int) -> Tensor:
            return torch.full((rows, count), token)

        parts = [(repeated(START, 1), repeated(IGNORED, 1))]
        if self.layout == IN_PLACE:
            parts += [(inputs, outputs)]
        else:
            parts += [(inputs, repeated(IGNORED, x.shape[1]))]
        if self.layout == AFTER:
            parts += [(repeated(BLANK, y.shape[1]), outputs)]
        elif self.layout == CAUSAL:
            parts += [(repeated(BLANK, 1), outputs[:, :1]), (outputs, torch.cat((outputs[:, 1:], repeated(END, 1)), 1))]
        tokens, targets = (torch.cat(column, 1) for column in zip(*parts, strict=True))
        return tokens, targets


def _draw(generator: Generator, rows: int, length: int, symbols: int = SYMBOLS) -> Tensor:
    return torch.randint(symbols, (rows, length), generator=generator)


def offset(generator: Generator, rows: int, length: int, k: int) -> tuple[Tensor, Tensor]:
    """Name the token k places to the left: y_i = x_{i-k}."""
    x = _draw(generator, rows, length)
    return x, torch.cat((torch.full((rows, k), -1), x[:, :-k]), 1)


def copy(generator: Generator, rows: int, length: int, symbols: int = SYMBOLS, times: int = 1) -> tuple[Tensor, Tensor]:
    """y = x, ``times`` times in a row; twice is Ruoss et al.'s "duplicate string"."""
    x = _draw(generator, rows, length, symbols)
    return x, x.repeat(1, times)


def reverse(generator: Generator, rows: int, length: int, symbols: int = SYMBOLS) -> tuple[Tensor, Tensor]:
    """y = x backwards; with two symbols Ruoss et al.'s "reverse string"."""
    x = _draw(generator, rows, length, symbols)
    return x, x.flip(1)


def odds_first(generator: Generator, rows: int, length: int) -> tuple[Tensor, Tensor]:
    """y = x_1 x_3 x_5 … x_2 x_4 x_6 …; two symbols. Ruoss et al.'s code has the even places first, their text the odd."""
    x = _draw(generator, rows, length, 2)
    return x, torch.cat((x[:, ::2], x[:, 1::2]), 1)


def bucket_sort(generator: Generator, rows: int, length: int) -> tuple[Tensor, Tensor]:
    """y = x in ascending order; five symbols."""
    x = _draw(generator, rows, length, 5)
    return x, x.sort(1).values


def missing_duplicate(generator: Generator, rows: int, length: int) -> tuple[Tensor, Tensor]:
    """x is a string twice, of two symbols, with one token replaced by 2, which y names; 3 fills an odd length."""
    half = _draw(generator, rows, length // 2, 2)
    x = torch.cat((half, half, torch.full((rows, length % 2), 3)), 1)
    missing = _draw(generator, rows, 1, length // 2 * 2)
    return x.scatter(1, missing, 2), x.gather(1, missing)


def even_pairs(generator: Generator, rows: int, length: int) -> tuple[Tensor, Tensor]:
    """y is the parity of the number of neighbours in x that differ; two symbols."""
    x = _draw(generator, rows, length, 2)
    return x, (x[:, 1:] != x[:, :-1]).sum(1, keepdim=True) % 2


def parity_check(generator: Generator, rows: int, length: int) -> tuple[Tensor, Tensor]:
    """y is the parity of the number of ones. It does not depend on the order."""
    x = _draw(generator, rows, length, 2)
    return x, x.sum(1, keepdim=True) % 2


def cycle_navigation(generator: Generator, rows: int, length: int) -> tuple[Tensor, Tensor]:
    """y is the position on a cycle of five after the steps x - 1 of -1, 0 or 1 from 0. It does not depend on the order."""
    x = _draw(generator, rows, length, 3)
    return x, (x - 1).sum(1, keepdim=True) % 5


def modular_arithmetic(generator: Generator, rows: int, length: int) -> tuple[Tensor, Tensor]:
    """y is the value modulo 5 of digits joined by + (5), - (6) and * (7), which goes first; an even length loses a token."""
    operators = (length - 1) // 2
    digits, signs = _draw(generator, rows, operators + 1, 5), _draw(generator, rows, operators, 3)
    total, term = torch.zeros(rows, dtype=torch.long), digits[:, 0]
    for sign, digit in zip(signs.T, digits.T[1:], strict=True):
        total = torch.where(sign == 2, total, total + term) % 5
        term = torch.where(sign == 2, term * digit, torch.where(sign == 1, -digit, digit)) % 5
    x = torch.empty(rows, 2 * operators + 1, dtype=torch.long)
    x[:, ::2], x[:, 1::2] = digits, signs + 5
    return x, ((total + term) % 5)[:, None]


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


def addition(generator: Generator, rows: int, length: int) -> tuple[Tensor, Tensor]:
    """x is two decimal numbers of ⌈n/2⌉ digits, joined by 10, the most significant digit first; y is their sum."""
    digits = (length + 1) // 2
    a, b = _draw(generator, rows, digits, 10), _draw(generator, rows, digits, 10)
    y, carry = torch.empty(rows, digits + 1, dtype=torch.long), torch.zeros(rows, dtype=torch.long)
    for i in reversed(range(digits)):
        total = a[:, i] + b[:, i] + carry
        y[:, i + 1], carry = total % 10, total // 10
    y[:, 0] = carry
    return torch.cat((a, torch.full((rows, 1), 10), b), 1), y


TASKS = {
    **{f"offset_{k}": Task(partial(offset, k=k), IN_PLACE, k + 1) for k in (1, 2, 5, 20)},
    "copy": Task(copy),
    "reverse": Task(reverse),
    "reverse_string": Task(partial(reverse, symbols=2)),
    "duplicate_string": Task(partial(copy, symbols=2, times=2)),
    "odds_first": Task(odds_first),
    "bucket_sort": Task(bucket_sort),
    "missing_duplicate": Task(missing_duplicate, shortest=2),
    "even_pairs": Task(even_pairs),
    "parity_check": Task(parity_check),
    "cycle_navigation": Task(cycle_navigation),
    "modular_arithmetic": Task(modular_arithmetic),
    "indirect_indexing": Task(indirect_indexing, IN_PLACE, indexed=True),
    "flip_flop": Task(flip_flop, IN_PLACE, 4),
    "decoder_copy": Task(copy, CAUSAL),
    "decoder_reverse": Task(reverse, CAUSAL),
    "decoder_addition": Task(addition, CAUSAL),
    "order": Task(partial(offset, k=2), IN_PLACE, 3, SYMBOLS),
}
"""``order`` is ``offset_2`` with the model and the learning rate of the papers, for FIDELITY.md. At that learning rate, scores of
symbols that do not occur would delay learning, so that it has none."""
