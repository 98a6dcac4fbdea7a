r"""The log-probability of a sentence, by which a model chooses between two.

Of a masked language model it is the pseudo-log-likelihood (Salazar et al. 2020), the sum over the tokens of a sentence of

.. math:: \log p(x_t \mid x \text{ without } M_t)

with :math:`M_t = \{t\}` for the metric ``original``. A word of several pieces is then rated too high, since the pieces that are
seen give away the one that is not. For ``within_word_l2r`` (Kauf & Ivanova 2023), :math:`M_t` also has the pieces of the same
word to the right of t. Of a causal language model it is the sum of :math:`\log p(x_t \mid x_1 … x_{t-1})`.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..engine.grid import Progress
from ..measure.inference import batches
from .data import words

ORIGINAL, WITHIN_WORD, LEFT_TO_RIGHT = "original", "within_word_l2r", "left_to_right"


class Sentence(NamedTuple):
    """A sentence as a model reads it.

    Attributes:
        ids: (n,), special symbols included.
        words: (n,) the number of each token's word; -1 for special symbols, which are not scored.
    """

    ids: Tensor
    words: Tensor


class Prediction(NamedTuple):
    """One forward pass: the tokens ``targets`` (P,) are predicted at ``places`` (P,) from ``inputs`` (n,)."""

    inputs: Tensor
    places: Tensor
    targets: Tensor


@dataclass(frozen=True, eq=False)
class Scorer:
    """A model that gives sentences log-probabilities.

    Attributes:
        label: its name in reports.
        encode: cuts a sentence into tokens.
        logits: (B, n) tokens, padded to the right, and the rows and places of P predictions, in this order -> (P, vocabulary).
        pad: the padding symbol.
        mask: the symbol of a masked language model; None for a causal one.
        unknown: the symbol of what the vocabulary lacks, or None.
        max_length: tokens of the longest sentence that the model takes; None for any.
        identity: what distinguishes it from other models, in JSON's types.
        has_positions: whether it can tell the order of words.
    """

    label: str
    encode: Callable[[str], Sentence]
    logits: Callable[[Tensor, Tensor, Tensor], Tensor]
    pad: int
    mask: int | None
    unknown: int | None
    max_length: int | None
    identity: Any
    has_positions: bool = True

    def metric(self, metric: str) -> str:
        """Return what is measured: ``metric`` of a masked language model, and ``left_to_right`` of a causal one."""
        return LEFT_TO_RIGHT if self.mask is None else metric

    def predictions(self, sentence: Sentence, metric: str) -> Iterator[Prediction]:
        """Yield the predictions of which a score is the sum."""
        ids, words = sentence
        if self.mask is None:
            places = self.scored(sentence) - 1
            yield Prediction(ids, places, ids[places + 1])
            return
        for place in self.scored(sentence).split(1):
            inputs = ids.clone()
            inputs[place] = self.mask
            if metric == WITHIN_WORD:
                inputs[place:][words[place:] == words[place]] = self.mask
            yield Prediction(inputs, place, ids[place])

    def scored(self, sentence: Sentence) -> Tensor:
        """Return the places of the tokens that are predicted; the first of all follows nothing, for a causal model."""
        places = (sentence.words >= 0).nonzero().flatten()
        return places[places > 0] if self.mask is None else places

    def of_texts(self, rows: Sequence[tuple[str, ...]], metric: str, progress: Progress) -> dict[str, Any]:
        """Return the ``scores`` of the sentences of pairs or of lines, and the numbers of ``tokens`` and ``unknown`` ones."""
        sentences = [self.encode(text) for row in rows for text in row[:2]]
        tokens = torch.cat([sentence.ids[self.scored(sentence)] for sentence in sentences])
        scores = self.scores(sentences, metric, progress).reshape(len(rows), -1).tolist()
        unknown = 0 if self.unknown is None else int((tokens == self.unknown).sum())
        return {"scores": scores, "tokens": len(tokens), "unknown": unknown}

    @torch.inference_mode()
    def scores(
        self, sentences: Sequence[Sentence], metric: str, progress: Progress = lambda text, share=None: None
    ) -> np.ndarray:
        """Return the log-probabilities of sentences in nats, (S,) float64.

        Args:
            sentences: results of :attr:`encode`.
            metric: ``original`` or ``within_word_l2r``; causal models have one metric only.
            progress: receives the number of forward passes that are done, and their share.
        """
        totals, done = np.zeros(len(sentences)), 0
        every = [(s, p) for s, sentence in enumerate(sentences) for p in self.predictions(sentence, metric)]
        for numbers, tokens in batches([prediction.inputs for _, prediction in every], self.pad):
            owners, batch = zip(*(every[number] for number in numbers), strict=True)
            rows = torch.arange(len(batch)).repeat_interleave(torch.tensor([len(p.places) for p in batch]))
            places, targets = torch.cat([p.places for p in batch]), torch.cat([p.targets for p in batch])
            losses = F.cross_entropy(self.logits(tokens, rows, places).float().cpu(), targets, reduction="none")
            np.add.at(totals, np.array(owners)[rows], -losses.double().numpy())
            done += len(batch)
            progress(f"{done:,} of {len(every):,} passes", done / len(every))
        return totals


def sentence_of(text: str, ids: Sequence[int], begins: Sequence[int], special: Sequence[bool]) -> Sentence:
    """Return a sentence from its tokens and the place in the text where each begins."""
    starts = [*words(text)]
    of_tokens = []
    for begin, is_special in zip(begins, special, strict=True):
        while begin < len(text) and text[begin].isspace():  # which some tokenizers count to a piece
            begin += 1
        of_tokens.append(-1 if is_special else max(0, bisect_right(starts, begin) - 1))
    return Sentence(torch.tensor(ids), torch.tensor(of_tokens))
