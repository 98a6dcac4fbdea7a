"""Positions that are drawn anew for each batch of training, so that a model meets more of them than its sequences have."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ...base.errors import MAX_POSITIONS, FieldError
from ..terms import Window, is_captured

FORMS_OF_SAMPLING = "random:L, shift:K, cape, cape:Δ:ε:λ or uniform:L"
CAPE = (5.0, 0.5, 1.03)  # the authors' values for text
EVEN = "even"
PLAIN = "plain"


@dataclass(frozen=True)
class PositionSampling:
    """How positions are drawn in training: once for all sequences of a batch, and the same for all schemes.

    - ``random:L``: n of the L whole numbers below L, in order, without replacement (Ruoss et al. 2023, section 3).
    - ``shift:K``: ``i + k`` with k uniform among 0 … K (SHAPE: Kiyono et al. 2021, section 3).
    - ``cape:Δ:ε:λ``: ``λ' (i + δ + ε_i)`` with δ uniform in ±Δ, ε_i in ±ε and ln λ' in ±ln λ (CAPE: Likhomanenko et al. 2021,
      section 3.1).
    - ``uniform:L``: n real numbers below L, in order.

    In evaluation, the i-th of n tokens is at ``⌊i L / n⌋`` (``i L / n`` for ``uniform``) under the rule ``even``, the default for
    ``random`` and ``uniform``, and at i under the rule ``plain``. n counts the tokens of the token's own sequence or document, in
    training as well.

    Attributes:
        kind: the first word.
        numbers: those that follow it.
        evaluation: the rule.
    """

    kind: str
    numbers: tuple[float, ...]
    evaluation: str

    @classmethod
    def parse(cls, text: str | None, evaluation: str | None) -> PositionSampling | None:
        """Read the values of two options; None if positions are not sampled.

        Raises:
            FieldError: one of them has no meaning, or not with the other.
        """
        if text is None:
            if evaluation is not None:
                raise FieldError(f"`position_evaluation` {evaluation} means nothing without `position_sampling`")
            return None
        kind, *rest = text.split(":")
        counts = {"random": 1, "shift": 1, "cape": 3, "uniform": 1}
        try:
            numbers = tuple(map(float, rest)) or (CAPE if kind == "cape" else ())
        except ValueError:
            numbers = ()
        spread = kind in ("random", "uniform")
        if kind not in counts or len(numbers) != counts[kind] or not all(0 <= number <= MAX_POSITIONS for number in numbers):
            raise FieldError(f"`position_sampling` {text}: give {FORMS_OF_SAMPLING}, numbers from 0 to {MAX_POSITIONS:,}")
        if spread and not numbers[0]:
            raise FieldError(f"`position_sampling` {text}: L must be above 0")
        if kind in ("random", "shift") and not all(number.is_integer() for number in numbers):
            raise FieldError(f"`position_sampling` {text}: {kind} takes a whole number")
        if kind == "cape" and (numbers[1] > 0.5 or numbers[2] < 1):
            raise FieldError(f"`position_sampling` {text}: ε is at most 0.5, which keeps the order, and λ at least 1")
        if evaluation == EVEN and not spread:
            raise FieldError(f"`position_evaluation` {EVEN} means nothing to `position_sampling` {text}")
        return cls(kind, numbers, evaluation or (EVEN if spread else PLAIN))

    def span(self, n: int) -> int | None:
        """The number that positions of n tokens are below in training, where they are whole."""
        return {"random": int(self.numbers[0]), "shift": n + int(self.numbers[0])}.get(self.kind)

    @property
    def extremes(self) -> Window:
        """Two tokens at the least and the largest position that two have in training, or at 0 and 1 where they are not whole."""
        span = self.span(2)
        positions = torch.tensor([[0.0, 1.0]]) if span is None else torch.tensor([[0, span - 1]])
        return Window(2, positions=positions, span=span)

    @property
    def max_length(self) -> int | None:
        """The number of tokens of the longest sequence that can be evaluated; None: any."""
        return int(self.numbers[0]) if self.kind == "random" and self.evaluation == EVEN else None

    def draw(self, in_document: Tensor, padding: Tensor | None, generator: torch.Generator) -> Tensor:
        """(B or 1, n) the positions of a batch in training.

        As many are drawn as a row has tokens. A sequence or document of m tokens has the first m that were drawn, in order, so
        that they are spread alike whatever else is in its row.

        Args:
            in_document: (B or 1, n) each token's place in its sequence or document.
            padding: (B, n) bool, True at padding, which is on the right and has the last position; None: there is none.
            generator: of the numbers.

        Raises:
            FieldError: there are not so many.
        """
        n, device = in_document.shape[1], in_document.device
        self._require(in_document, padding)
        with generator.device:  # whatever the default device
            drawn = self._draw(n, generator).to(device)
        if self.kind in ("shift", "cape"):
            return drawn[in_document]
        values, order = drawn.sort()
        last = len(values) - 1
        ranks = order.argsort()[in_document.clamp(max=last)]
        if padding is not None:
            ranks = torch.where(padding, n, ranks)
        base = n * (torch.arange(n, device=device) - in_document)
        return values[((base + ranks).sort(dim=1).values - base).clamp(max=last)]  # one sort of the row sorts each document

    def _draw(self, n: int, generator: torch.Generator) -> Tensor:
        first, *others = self.numbers
        if self.kind == "random":
            return torch.randperm(int(first), generator=generator)[:n]
        if self.kind == "shift":
            return torch.arange(n) + torch.randint(int(first) + 1, (), generator=generator)
        uniform = torch.rand(n + 2, generator=generator, dtype=torch.float64)
        if self.kind == "uniform":
            return first * uniform[:n]
        shift, scale, jitter = *(2 * uniform[:2] - 1).tolist(), 2 * uniform[2:] - 1
        positions = torch.arange(n) + first * shift + others[0] * jitter
        return positions * math.exp(math.log(others[1]) * scale)

    def evaluated(self, in_document: Tensor, padding: Tensor | None, tokens: Tensor) -> tuple[Tensor, int | None] | None:
        """The positions under the rule, and the number that they are below if they are whole; None under ``plain``.

        Args:
            in_document: (B or 1, n) each token's place in its sequence or document.
            padding: (B, n) bool, True at padding, or None.
            tokens: (B or 1, n) the number of tokens of that, at least 1.

        Raises:
            FieldError: there are fewer positions than tokens.
        """
        if self.evaluation == PLAIN:
            return None
        self._require(in_document, padding)
        if self.kind == "random":
            limit = int(self.numbers[0])
            return (in_document * limit // tokens).clamp(max=limit - 1), limit  # of padding, any
        return in_document.double() * self.numbers[0] / tokens, None

    def _require(self, in_document: Tensor, padding: Tensor | None) -> None:
        n = in_document.shape[1]
        if self.kind != "random" or n <= self.numbers[0]:
            return
        if not is_captured():  # the longest document of a longer row, for which the host waits for a GPU
            n = int((in_document if padding is None else torch.where(padding, -1, in_document)).max()) + 1
        if n > self.numbers[0]:
            raise FieldError(
                f"a sequence of {n} tokens has more tokens than `position_sampling` random:{int(self.numbers[0])} has positions"
            )


class Draws:
    """The random numbers of one model, on the CPU: those of PyTorch's generator, but for training by fairseq.

    fairseq gives PyTorch the sum of ``--seed`` and the number of the update as its seed. So that two seeds share no numbers,
    they are a function there of both, and of the number of the batch in the update, and of nothing else: they do not depend on
    what else draws numbers, dropout for example, and a run that continues draws the same.
    """

    def __init__(self) -> None:
        self.update: int | None = None  # the number of it, in training by fairseq
        self._last: tuple[int, int] | None = None
        self._batch = 0

    def generator(self) -> torch.Generator:
        """That of one forward pass."""
        if self.update is None:
            return torch.default_generator
        here = torch.initial_seed() - self.update, self.update
        self._batch = self._batch + 1 if here == self._last else 0
        self._last = here
        mixed = hashlib.sha256(repr((*here, self._batch)).encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(mixed[:8], "big") >> 1)
