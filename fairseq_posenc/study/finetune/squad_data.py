"""SQuAD's JSON files (1.1: Rajpurkar et al. 2016; 2.0: Rajpurkar et al. 2018), and the scores of its official scripts.

evaluate-v1.1.py and evaluate-v2.0.py compare normalised answers: lower case, without punctuation, articles and extra white space.
*Exact* is equality, F1 that of the words as bags, each the best over the annotators' answers; all are in per cent. They differ
where an answer normalises to nothing: in v1.1 its F1 is 0, in v2.0 it is 1 against another such answer and 0 against the rest,
and v2.0 leaves such annotators' answers out. The scores here agree with both to the last digit.
"""

import codecs
import itertools
import math
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, TypeAdapter, ValidationError
from pydantic_core import from_json
from typing_extensions import NotRequired, TypedDict

from ...base import files
from ...base.commands import option
from ...base.errors import InputError

VERSIONS = ("1.1", "2.0")
LENGTH = 384
"""The default limit of tokens of a window."""


PUNCTUATION = str.maketrans("", "", string.punctuation)
ARTICLES = re.compile(r"\b(a|an|the)\b")
Scores = dict[str, float]
window = partial(option, group="windows and answers", metavar="N")


@dataclass(frozen=True)
class Limits:
    """Limits for windows and answers; lengths are in tokens."""

    max_length: int | None = window(f"tokens per window (default: as in a pretraining sample, at most {LENGTH})", None)
    doc_stride: int = window("tokens from one window's part of the context to the next", 128, minimum=1)
    max_question_length: int = window("tokens per question, the rest is cut off", 64, minimum=1)
    max_answer_length: int = window("tokens per answer", 30, minimum=1)

    def __post_init__(self) -> None:
        if self.max_length is not None and self.max_length < self.max_question_length + 8:
            raise InputError(
                f"--max-length {self.max_length} leaves no room for a context after a question of {self.max_question_length} "
                "tokens: lower --max-question-length, or raise --max-length if the model's positions allow it"
            )


def _digits(value: Any) -> Any:
    """Return a whole number, which annotation tools also write as 7.0, as text, and other values as they are."""
    whole = type(value) is int or (isinstance(value, float) and value.is_integer())
    return str(int(value)) if whole else value


def _listed(answers: Any) -> Any:
    """Return answers as a list: that of the ``datasets`` library is a list of texts and one of starts; some have a single one."""
    if not isinstance(answers, dict) or not isinstance(answers.get("text"), list):
        return [answers] if isinstance(answers, dict) else [] if answers is None else answers
    starts = answers.get("answer_start")
    starts = starts if isinstance(starts, list) else []
    return [{"text": text, "answer_start": start} for text, start in itertools.zip_longest(answers["text"], starts)]


def _articles(content: Any) -> Any:
    """Return the articles of a file, or of one that is their list; rows of one question each become an article each."""
    rows = content.get("data", [content]) if isinstance(content, dict) else content
    if not isinstance(rows, list):
        return rows
    return [{"paragraphs": [{**row, "qas": [row]}]} if isinstance(row, dict) and "question" in row else row for row in rows]


class _Answer(TypedDict):
    text: str
    answer_start: int  # also as 7.0


class _Entry(TypedDict):
    id: Annotated[str, BeforeValidator(_digits)]
    question: str
    answers: NotRequired[Annotated[list[_Answer], BeforeValidator(_listed)]]


class _Paragraph(TypedDict):
    context: str
    qas: list[_Entry]


class _Article(TypedDict):
    title: NotRequired[Any]
    paragraphs: list[_Paragraph]


SHAPE = TypeAdapter(Annotated[list[_Article], BeforeValidator(_articles)])


@dataclass(frozen=True)
class Question:
    """A question about a paragraph."""

    id: str
    text: str
    context: str
    answers: tuple[str, ...]  # the annotators', as the file has them; none if the paragraph holds no answer
    starts: tuple[int, ...]  # the character of the context at which each begins

    @property
    def span(self) -> tuple[int, int] | None:
        """The first character of the first answer that is at its place in the context, and the one after its last."""
        for answer, start in zip(self.answers, self.starts, strict=True):
            if start >= 0 and answer.strip() and self.context[start : start + len(answer)] == answer:
                return start, start + len(answer)
        return None


def read(path: Path, version: str) -> Iterator[Question]:
    """Yield the questions of one file, in order. In version 1.1, every question has an answer.

    Whole numbers are ids, too, and rows of the ``datasets`` library are read, also as JSON lines.
    In version 2.0, a question without ``answers`` has none, whatever its ``is_impossible``, as for evaluate-v2.0.py.

    Raises:
        InputError, FileNotFoundError: it is not a SQuAD file of this version; names article, paragraph and question.
    """
    seen: set[str] = set()
    for place, paragraph in _paragraphs(path):
        for entry in paragraph["qas"]:
            answers = [answer for answer in entry.get("answers", []) if answer["text"].strip()]  # some tools write "" for none
            where = f"{place}, question {entry['id']!r}"
            if not answers and version == "1.1":
                raise InputError(f"{where} has no answer, which SQuAD 1.1 does not have: is this a file for --version 2.0?")
            if entry["id"] in seen:
                raise InputError(f"{where}: an earlier question has the same id; ids must differ")
            seen.add(entry["id"])
            texts, starts = tuple(answer["text"] for answer in answers), tuple(answer["answer_start"] for answer in answers)
            yield Question(entry["id"], entry["question"], paragraph["context"], texts, starts)
    if not seen:
        raise InputError(f"{path} has no questions")


def find(data: Path, version: str) -> dict[str, Path]:
    """Return SQuAD's files by fairseq's names of the splits, or raise FileNotFoundError, which names all that are missing."""
    files = {split: data / f"{name}-v{version}.json" for split, name in (("train", "train"), ("valid", "dev"))}
    if missing := [str(path) for path in files.values() if not path.is_file()]:
        raise FileNotFoundError(f"{' and '.join(missing)} not found: --data is the folder of SQuAD's JSON files")
    return files


def _content(path: Path) -> list[_Article]:
    content = files.read(path).removeprefix(codecs.BOM_UTF8)
    if re.search(rb"}\s*\n\s*{", content):  # JSON lines; in JSON, a comma is between them
        content = b"[" + re.sub(rb"}\s*\n\s*{", b"},{", content) + b"]"
    try:
        return SHAPE.validate_python(from_json(content))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
        raise InputError(
            f"{path} has another shape than it must: .data{place}: {first['msg']}. It must be a SQuAD file: data[].paragraphs[] "
            "with context and qas[], each of these with id, question and answers[] of text and answer_start"
        ) from None
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error}). It must be a SQuAD file, and may be cut short: copy it again.") from None


def _paragraphs(path: Path) -> Iterator[tuple[str, _Paragraph]]:
    """Yield (its place in the file, paragraph)."""
    for i, article in enumerate(_content(path), 1):
        for number, paragraph in enumerate(article["paragraphs"], 1):
            where = f"{path}, article {article.get('title') or f'number {i}'!r}, paragraph {number}"
            if not paragraph["context"].strip():
                raise InputError(f"{where}: 'context' is empty")
            yield where, paragraph


def normalise(answer: str) -> str:
    """Return an answer in lower case, without punctuation and articles, with single spaces."""
    return " ".join(ARTICLES.sub(" ", answer.lower().translate(PUNCTUATION)).split())


def exact(gold: str, predicted: str) -> int:
    """Return 1 if the normalised answers are equal, else 0."""
    return int(normalise(gold) == normalise(predicted))


def f1(gold: str, predicted: str, empty: bool = True) -> float:
    """Return F1 of the normalised answers' words. ``empty``: two answers of no words are equal (v2.0), rather than 0 (v1.1)."""
    gold_words, words = normalise(gold).split(), normalise(predicted).split()
    if empty and not (gold_words and words):
        return float(gold_words == words)
    common = sum((Counter(gold_words) & Counter(words)).values())
    if not common:
        return 0.0
    precision, recall = common / len(words), common / len(gold_words)
    return 2 * precision * recall / (precision + recall)


def score_v1(questions: Sequence[Question], predictions: Mapping[str, str]) -> Scores:
    """Return the scores of evaluate-v1.1.py: ``exact`` (its ``exact_match``) and ``f1``."""
    exacts = [max(exact(gold, predictions[q.id]) for gold in q.answers) for q in questions]
    f1s = [max(f1(gold, predictions[q.id], empty=False) for gold in q.answers) for q in questions]
    return {"exact": 100.0 * sum(exacts) / len(questions), "f1": 100.0 * sum(f1s) / len(questions)}


def score_v2(
    questions: Sequence[Question], predictions: Mapping[str, str], null_odds: Mapping[str, float] = {}, threshold: float = 1.0
) -> Scores:
    """Return the scores of evaluate-v2.0.py, under its names, without those at the best threshold (``best_exact``, ``best_f1``).

    Args:
        predictions: the answers, "" for none.
        null_odds: how likely it is that there is no answer, in any unit (the script's ``--na-prob-file``).
        threshold: above it, the answer counts as none (``--na-prob-thresh``).
    """
    answered = {q.id: bool(q.answers) for q in questions}
    measures: dict[str, Callable[[str, str], float]] = {"exact": exact, "f1": f1}
    none = {id_ for id_, odds in null_odds.items() if odds > threshold}
    final = {
        name: {q.id: float(not q.answers) if q.id in none else _best(measure, q, predictions[q.id]) for q in questions}
        for name, measure in measures.items()
    }
    result = _means(final, list(answered))
    for prefix, kind in (("HasAns", True), ("NoAns", False)):
        if ids := [id_ for id_, has in answered.items() if has is kind]:
            result |= {f"{prefix}_{name}": value for name, value in _means(final, ids).items()}
    return result


def applied_threshold(questions: Iterable[Question], predictions: Mapping[str, str], null_odds: Mapping[str, float]) -> float:
    """Return the lowest threshold that gives the best F1; it is below all odds if answering nothing is best.

    The official script's own ``best_f1_thresh`` may not give its score: it is 0 if answering nothing is best, whatever the odds,
    and it may lie between questions of equal odds, which no threshold separates.
    """
    gains = {q.id: _best(f1, q, predictions[q.id]) - (not q.answers) for q in questions}
    by_odds = sorted(gains, key=null_odds.__getitem__)
    current, best, threshold = 0.0, 0.0, math.nextafter(null_odds[by_odds[0]], -math.inf)
    for odds, ids in itertools.groupby(by_odds, key=null_odds.__getitem__):  # equal odds are answered together
        current += sum(gains[id_] for id_ in ids)
        if current > best:
            best, threshold = current, odds
    return threshold


def _best(measure: Callable[[str, str], float], question: Question, predicted: str) -> float:
    golds = [answer for answer in question.answers if normalise(answer)]
    return max(measure(gold, predicted) for gold in golds or [""])


def _means(scores: Mapping[str, Mapping[str, float]], ids: Sequence[str]) -> Scores:
    means = {name: 100.0 * sum(values[id_] for id_ in ids) / len(ids) for name, values in scores.items()}
    return {**means, "total": len(ids)}
