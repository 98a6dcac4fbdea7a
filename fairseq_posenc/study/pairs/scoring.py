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
    """One forward pass: the token ``target`` at ``place`` is predicted from ``inputs``, (n,)."""

    inputs: Tensor
    place: int
    target: int


@dataclass(frozen=True, eq=False)
class Scorer:
    """A model that gives sentences log-probabilities.

    Attributes:
        label: its name in reports.
        encode: cuts a sentence into tokens.
        logits: (B, n) tokens, padded to the right, and a place in each row, (B,) -> (B, vocabulary) at these places.
        pad: the padding symbol.
        mask: the symbol of a masked language model; None for a causal one.
        unknown: the symbol of what the vocabulary lacks, or None.
        max_length: tokens of the longest sentence that the model takes; None for any.
        identity: what distinguishes it from other models, in JSON's types.
        has_positions: whether it can tell the order of words.
    """

    label: str
    encode: Callable[[str], Sentence]
    logits: Callable[[Tensor, Tensor], Tensor]
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
        for place in (words >= 0).nonzero().flatten().tolist():
            target = int(ids[place])
            if self.mask is None:
                if place:  # the first token follows nothing
                    yield Prediction(ids[:place], place - 1, target)
                continue
            inputs = ids.clone()
            inputs[place] = self.mask
            if metric == WITHIN_WORD:
                inputs[place:][words[place:] == words[place]] = self.mask
            yield Prediction(inputs, place, target)

    def of_texts(
        self, rows: Sequence[tuple[str, ...]], metric: str, progress: Progress = lambda text, share=None: None
    ) -> dict[str, Any]:
        """Return the ``scores`` of the sentences of pairs or of lines, and the numbers of ``tokens`` and ``unknown`` ones."""
        sentences = [self.encode(text) for row in rows for text in row[:2]]
        scored = [int(i) for ids, words in sentences for i in ids[words >= 0]]
        scores = self.scores(sentences, metric, progress).reshape(len(rows), -1).tolist()
        return {"scores": scores, "tokens": len(scored), "unknown": scored.count(-1 if self.unknown is None else self.unknown)}

    @torch.inference_mode()
    def scores(
        self, sentences: Sequence[Sentence], metric: str, progress: Progress = lambda text, share=None: None
    ) -> np.ndarray:
        """Return the log-probabilities of sentences in nats, (S,) float64.

        Args:
            sentences: results of :attr:`encode`.
            metric: ``original`` or ``within_word_l2r``; causal models have one metric only.
            progress: receives the number of predictions that are done, and their share.
        """
        totals, done = np.zeros(len(sentences)), 0
        every = [(s, p) for s, sentence in enumerate(sentences) for p in self.predictions(sentence, metric)]
        for numbers, tokens in batches([prediction.inputs for _, prediction in every], self.pad):
            owners, batch = zip(*(every[number] for number in numbers), strict=True)
            places, targets = torch.tensor([p.place for p in batch]), torch.tensor([p.target for p in batch])
            logits = self.logits(tokens, places).float().cpu()
            np.add.at(totals, list(owners), logits.log_softmax(-1)[torch.arange(len(batch)), targets].double().numpy())
            done += len(batch)
            progress(f"{done:,} of {len(every):,} predictions", done / len(every))
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
