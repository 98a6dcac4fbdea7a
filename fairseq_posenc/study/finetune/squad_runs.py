"""The runs of SQuAD: questions and contexts as windows, the data-bin, answers from a model's scores, and how they are scored."""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch import nn
from tqdm import tqdm

from ...base.errors import InputError
from ...base.files import atomic_write
from ...base.record import write_json
from ...text.vocabulary import Encoding, Vocabulary
from ..measure.inference import infer
from .squad_data import LENGTH, Limits, Question, applied_threshold, read, score_v1, score_v2
from .tuning import TaskRuns, max_length, write_items

if TYPE_CHECKING:
    from ...plugin.checkpoint.checkpoint import Checkpoint
    from .hyperparameters import Settings
    from .squad import Options

QUESTIONS = 512  # predicted at a time
CANDIDATES = 20  # best first and last tokens of a window, among which its answers are searched


class SquadRuns(TaskRuns):
    """SQuAD's runs; the splits have fairseq's names."""

    def __init__(self, files: dict[str, Path], pretrained: Checkpoint, settings: Settings, options: Options) -> None:
        super().__init__(f"SQuAD-{options.version}", files, pretrained, settings, options)
        self.version, self.null_threshold = options.version, options.null_threshold
        length = max_length(options.limits.max_length, pretrained, minimum=1, default=LENGTH)
        self.limits = replace(options.limits, max_length=length)
        self.outputs = ["predictions.json", "metrics.json"]
        self.outputs += ["null_odds.json"] if self.version == "2.0" else []

    @property
    def arguments(self) -> list[str]:
        return [str(self.data), "--task", "squad", "--criterion", "squad"]

    def configuration(self) -> dict[str, Any]:
        return {"windows": asdict(self.limits), "null_threshold": self.null_threshold}

    def write_data(self) -> int:
        counts, vocabulary = dict[str, int](), self.pretrained.vocabulary
        for split, path in self.files.items():
            counts[split] = write_split(read(path, self.version), self.data, split, vocabulary, self.limits)
        return counts["train"]

    def score(self, model: nn.Module, folder: Path) -> dict[str, Any]:
        """Predict the development set into the run's folder, and score it.

        predictions.json and, for v2.0, null_odds.json are the official scripts' inputs; metrics.json has all of their figures,
        and the threshold.
        """
        questions = list(read(self.files["valid"], self.version))
        predictions = dict(self._predict(model, questions))
        answers = {id_: prediction.text for id_, prediction in predictions.items()}
        details: dict[str, Any]
        if self.version == "1.1":
            details, unanswered = {**score_v1(questions, answers), "threshold": None}, dict[str, float]()
        else:
            odds = {id_: prediction.null_odds for id_, prediction in predictions.items()}
            threshold = applied_threshold(questions, answers, odds) if self.null_threshold is None else self.null_threshold
            details = {**score_v2(questions, answers, odds, threshold), "threshold": threshold}
            unanswered = score_v2(questions, dict.fromkeys(answers, ""))
            answers = {id_: "" if odds[id_] > threshold else text for id_, text in answers.items()}
            write_json(folder / "null_odds.json", odds)
        write_json(folder / "predictions.json", answers)
        write_json(folder / "metrics.json", details)
        names = ("exact", "f1", "HasAns_exact", "HasAns_f1", "NoAns_exact")
        scores = {name: details[name] for name in names if name in details}
        return {
            "scores": {self.name: scores},
            "majority": {self.name: {name: unanswered[name] for name in scores if name in unanswered}},
            "constant": [] if any(answers.values()) else [self.name],
            "details": details,
        }

    def _predict(self, model: nn.Module, questions: Iterable[Question]) -> Iterator[tuple[str, Prediction]]:
        """Yield (id, prediction) of each question, computed for some hundreds at a time."""
        vocabulary = self.pretrained.vocabulary
        blocks, pad = encoded(questions, vocabulary, self.limits), vocabulary.dictionary.pad()
        while block := list(islice(blocks, QUESTIONS)):
            windows = [window.tokens for *_, cut in block for window in cut]
            scores = iter(infer(model, windows, model, pad))
            for question, context, cut in block:
                yield question.id, predict(question, context, cut, list(islice(scores, len(cut))), self.limits)


@dataclass(frozen=True)
class Window:
    """``<s> question </s> </s> stretch of the context </s>``."""

    tokens: np.ndarray  # (n,) int64
    context: int  # the first token of the context
    offset: int  # its index in the whole context

    @property
    def stretch(self) -> range:
        """The tokens of the whole context that the window shows."""
        return range(self.offset, self.offset + len(self.tokens) - self.context - 1)


def windows(question: Encoding, context: Encoding, limits: Limits, bos: int, eos: int) -> Iterator[Window]:
    """Yield the windows of one question; together they show all of the context, which has at least one token in each."""
    head = np.concatenate([[bos], question.ids[: limits.max_question_length], [eos, eos]])
    room = (limits.max_length or LENGTH) - len(head) - 1
    offset = 0
    while True:
        yield Window(np.concatenate([head, context.ids[offset : offset + room], [eos]]), len(head), offset)
        if offset + room >= len(context):
            return
        offset += min(limits.doc_stride, room)


def answer_tokens(context: Encoding, start: int, end: int) -> tuple[int, int]:
    """Return the first and the last token that share a character with ``text[start:end]``; one past the last where none does."""
    first = bisect_right(context.ends, start)
    last = bisect_left(context.begins, end) - 1
    return (first, last) if first <= last else (len(context), len(context))


def answer_text(text: str, context: Encoding, first: int, last: int) -> str:
    """Return the characters, exactly as in the text, from the first to the last of these tokens."""
    return text[context.begins[first] : context.ends[last]]


def target(window: Window, span: tuple[int, int] | None) -> tuple[int, int, int]:
    """Return a row of ``SPLIT.spans.npy``: (first token of the context, first, last token of the answer); 0, 0 if it has none."""
    if span is None or span[0] not in window.stretch or span[1] not in window.stretch:
        return window.context, 0, 0
    shift = window.context - window.offset
    return window.context, span[0] + shift, span[1] + shift


def encoded(
    questions: Iterable[Question], vocabulary: Vocabulary, limits: Limits
) -> Iterator[tuple[Question, Encoding, list[Window]]]:
    """Yield each question, its encoded context, and its windows. Successive questions about one context encode it once."""
    dictionary, text, context = vocabulary.dictionary, "", vocabulary.encode("")
    for question in questions:
        if text != question.context:
            text, context = question.context, vocabulary.encode(question.context)
        words = vocabulary.encode(question.text.strip())
        yield question, context, list(windows(words, context, limits, dictionary.bos(), dictionary.eos()))


def write_split(questions: Iterable[Question], folder: Path, split: str, vocabulary: Vocabulary, limits: Limits) -> int:
    """Write one split in the form that ``--task squad`` reads (:mod:`...plugin.batches.squad`); returns the number of windows.

    Raises:
        InputError: no question has a place in it.
    """
    spans: list[tuple[int, int, int]] = []
    counts: Counter[str] = Counter()

    def items() -> Iterator[np.ndarray]:
        for question, context, cut in encoded(tqdm(questions, desc=f"encoding {split}", unit=" questions"), vocabulary, limits):
            span = None
            if question.answers:
                if question.span is None:
                    counts["questions left out, whose answers are not where the file has them"] += 1
                    continue
                span = answer_tokens(context, *question.span)
                if span[0] == len(context):
                    counts["questions left out, whose answers have no token in this vocabulary"] += 1
                    continue
                answer = question.context[slice(*question.span)].strip()
                if answer_text(question.context, context, *span) != answer:
                    counts["answers begin or end inside a token, and are learned with all of it"] += 1
            for window in cut:
                spans.append(target(window, span))
                yield window.tokens

    write_items(folder, split, vocabulary.dictionary, items())
    for reason, count in counts.items():
        print(f"{split}: {count} {reason}", file=sys.stderr)
    if not spans:
        raise InputError(f"{split}: no question is left. Is this the vocabulary of the text's language?")
    with atomic_write(folder / f"{split}.spans.npy", "wb") as stream:
        np.save(stream, np.array(spans, dtype=np.int32))
    return len(spans)


class Prediction(NamedTuple):
    """A model's answer to a question. A score is the sum of those of the first and of the last token.

    Attributes:
        text: the best answer; empty if the context has no token.
        score: its score; None without one.
        null: the least score of ``<s>`` as the answer, over the windows.
    """

    text: str
    score: float | None
    null: float

    @property
    def null_odds(self) -> float:
        """The score of no answer less that of the answer; the largest float without one, as JSON has no infinity."""
        return sys.float_info.max if self.score is None else self.null - self.score


def predict(
    question: Question, context: Encoding, windows: Sequence[Window], scores: Sequence[np.ndarray], limits: Limits
) -> Prediction:
    """Return the answer to one question; ``scores`` are (n, 2) for each window, of its tokens as first and as last."""
    best: tuple[str, float | None] = ("", None)
    for window, of_window in zip(windows, scores, strict=True):
        for first, last, value in _spans(of_window[window.context : -1], limits.max_answer_length):
            text = answer_text(question.context, context, first + window.offset, last + window.offset)
            if text and (best[1] is None or value > best[1]):
                best = text, value
    return Prediction(*best, min(float(of_window[0].sum()) for of_window in scores))


def _spans(scores: np.ndarray, max_length: int) -> list[tuple[int, int, float]]:
    """Return (first, last, score) of spans between the best first and last tokens of a window; ``scores`` is (n, 2)."""
    firsts, lasts = (np.argsort(-scores[:, side], kind="stable")[:CANDIDATES] for side in (0, 1))
    values = scores[firsts, 0][:, None] + scores[lasts, 1][None, :]
    lengths = lasts[None, :] - firsts[:, None] + 1
    rows, columns = np.nonzero((lengths >= 1) & (lengths <= max_length))
    return [(int(firsts[i]), int(lasts[j]), float(values[i, j])) for i, j in zip(rows, columns, strict=True)]
