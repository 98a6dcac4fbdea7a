"""The scores of the official scripts evaluate-v1.1.py and evaluate-v2.0.py, to the last digit.

Both compare normalised answers: lower case, without punctuation, articles and extra white space. *Exact* is equality, F1 that
of the words as bags, each the best over the annotators' answers; all are in per cent. They differ where an answer normalises
to nothing: in v1.1 its F1 is 0, in v2.0 it is 1 against another such answer and 0 against the rest; and v2.0 leaves such
annotators' answers out.
"""

from __future__ import annotations

import itertools
import math
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from .squad_data import Question

PUNCTUATION = str.maketrans("", "", string.punctuation)
ARTICLES = re.compile(r"\b(a|an|the)\b")

Scores = dict[str, float]


def normalise(answer: str) -> str:
    """Lower case, no punctuation, no articles, single spaces."""
    return " ".join(ARTICLES.sub(" ", answer.lower().translate(PUNCTUATION)).split())


def exact(gold: str, predicted: str) -> int:
    """1 if the normalised answers are equal, else 0."""
    return int(normalise(gold) == normalise(predicted))


def f1(gold: str, predicted: str, empty: bool = True) -> float:
    """F1 of the normalised answers' words. ``empty``: two answers of no words are equal (v2.0), rather than 0 (v1.1)."""
    gold_words, words = normalise(gold).split(), normalise(predicted).split()
    if empty and not (gold_words and words):
        return float(gold_words == words)
    common = sum((Counter(gold_words) & Counter(words)).values())
    if not common:
        return 0.0
    precision, recall = common / len(words), common / len(gold_words)
    return 2 * precision * recall / (precision + recall)


def score_v1(questions: Iterable[Question], predictions: Mapping[str, str]) -> Scores:
    """What evaluate-v1.1.py says: ``exact`` (its ``exact_match``) and ``f1``."""
    questions = list(questions)
    exacts = [max(exact(gold, predictions[q.id]) for gold in q.answers) for q in questions]
    f1s = [max(f1(gold, predictions[q.id], empty=False) for gold in q.answers) for q in questions]
    return {"exact": 100.0 * sum(exacts) / len(questions), "f1": 100.0 * sum(f1s) / len(questions)}


def score_v2(
    questions: Iterable[Question],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> Scores:
    """The scores of evaluate-v2.0.py, under its names.

    Args:
        predictions: the answers, "" for none.
        null_odds: how likely it is that there is no answer, in any unit (the script's ``--na-prob-file``).
        threshold: above it, the answer counts as none (``--na-prob-thresh``).
    """
    questions = list(questions)
    answered = {q.id: any(map(normalise, q.answers)) for q in questions}
    raw = {
        name: {q.id: _best(measure, q, predictions[q.id]) for q in questions} for name, measure in (("exact", exact), ("f1", f1))
    }
    final = {
        name: {
            id_: float(not answered[id_]) if null_odds is not None and null_odds[id_] > threshold else value
            for id_, value in scores.items()
        }
        for name, scores in raw.items()
    }
    result = _means(final, list(answered))
    for prefix, kind in (("HasAns", True), ("NoAns", False)):
        if ids := [id_ for id_, has in answered.items() if has is kind]:
            result |= {f"{prefix}_{name}": value for name, value in _means(final, ids).items()}
    if null_odds is not None:
        for name, scores in raw.items():
            best, at = best_threshold(scores, predictions, null_odds, answered)
            result |= {f"best_{name}": best, f"best_{name}_thresh": at}
    return result


def best_threshold(
    scores: Mapping[str, float], predictions: Mapping[str, str], null_odds: Mapping[str, float], answered: Mapping[str, bool]
) -> tuple[float, float]:
    """(the best score, its threshold), as evaluate-v2.0.py finds them.

    It lets one more question count as answered at a time, in the order of ``null_odds``, equal ones in the order of the file.
    So it may name a threshold that does not give its score: 0 where it is best to answer nothing, whatever the odds, and
    between questions of equal odds, which no threshold parts. :func:`applied_threshold` is what answers are chosen by.
    """
    current = best = float(sum(not has for has in answered.values()))
    threshold = 0.0
    for id_ in sorted(null_odds, key=null_odds.__getitem__):
        if id_ not in scores:
            continue
        current += scores[id_] if answered[id_] else -float(bool(predictions[id_]))
        if current > best:
            best, threshold = current, null_odds[id_]
    return 100.0 * best / len(scores), threshold


def applied_threshold(questions: Iterable[Question], predictions: Mapping[str, str], null_odds: Mapping[str, float]) -> float:
    """The lowest threshold that gives the best F1; it is below all odds if answering nothing is best."""
    gains = {q.id: _best(f1, q, predictions[q.id]) - (not any(map(normalise, q.answers))) for q in questions}
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
