"""Reads SQuAD's JSON files, and checks that every answer stands where the file says."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VERSIONS = ("1.1", "2.0")


@dataclass(frozen=True)
class Question:
    """A question about a paragraph.

    Attributes:
        answers: the annotators' answers as the file has them; none where the paragraph holds no answer.
        starts: the character of the context at which each begins.
    """

    id: str
    text: str
    context: str
    answers: tuple[str, ...]
    starts: tuple[int, ...]


def read(path: Path, version: str, bad_answers: str = "stop", labelled: bool = True) -> Iterator[Question]:
    """The questions of one file, in order.

    Args:
        version: ``1.1``, where every question has an answer, or ``2.0``.
        bad_answers: what becomes of an answer that is not where the file says: ``stop``, or ``skip`` the answer, and the
            question if no other answer is left.
        labelled: whether there must be answers.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a SQuAD file of this version; names article, paragraph and question.
    """
    seen: set[str] = set()
    skipped = 0
    for title, number, paragraph in _paragraphs(path):
        for entry in paragraph["qas"]:
            where = f"{path}, article {title!r}, paragraph {number}, question {entry.get('id')!r}"
            question = _question(entry, paragraph["context"], version, where, labelled)
            if question.id in seen:
                raise ValueError(f"{where}: an earlier question has the same id; ids must differ")
            seen.add(question.id)
            checked = _checked(question, bad_answers, where)
            skipped += len(question.answers) - len(checked.answers)
            if checked.answers or not question.answers:
                yield checked
    if not seen:
        raise ValueError(f"{path} has no questions")
    if skipped:
        print(f"{path}: {skipped} answers left out, since they are not where the file says", file=sys.stderr)


def _paragraphs(path: Path) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """(title, number from 1, paragraph)"""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: --data is the folder of train-v1.1.json, dev-v1.1.json and so on")
    try:
        content = json.loads(path.read_text("utf-8-sig"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}). It may be empty or cut short: copy it again.") from None
    if not isinstance(content, dict) or not isinstance(content.get("data"), list):
        raise ValueError(f"{path} has no list 'data', and so is not a SQuAD file")
    for i, article in enumerate(content["data"], 1):
        title = article.get("title", f"number {i}")
        for number, paragraph in enumerate(article.get("paragraphs", []), 1):
            if not str(paragraph.get("context", "")).strip() or not isinstance(paragraph.get("qas"), list):
                raise ValueError(f"{path}, article {title!r}, paragraph {number}: 'context' or 'qas' is missing or empty")
            yield title, number, paragraph


def _question(entry: dict[str, Any], context: str, version: str, where: str, labelled: bool) -> Question:
    try:
        answers = [] if entry.get("is_impossible") else entry.get("answers", [])
        question = Question(
            id=str(entry["id"]),
            text=entry["question"],
            context=context,
            answers=tuple(answer["text"] for answer in answers),
            starts=tuple(int(answer["answer_start"]) for answer in answers),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{where}: 'id', 'question', 'text' or 'answer_start' is missing or wrong ({type(error).__name__}: {error})"
        ) from None
    if labelled and not answers and version == "1.1":
        raise ValueError(f"{where} has no answer, which SQuAD 1.1 does not know: is this a file for --version 2.0?")
    return question


def _checked(question: Question, bad_answers: str, where: str) -> Question:
    """The question with those answers that stand in its context."""
    kept = []
    for answer, start in zip(question.answers, question.starts, strict=True):
        found = question.context[start : start + len(answer)] if start >= 0 else ""
        if found == answer and answer.strip():
            kept.append((answer, start))
        elif bad_answers == "stop":
            raise ValueError(
                f"{where}: the answer {answer!r} is not at answer_start {start}, where the context has {found!r}. Correct the "
                "file, or leave such answers out with --bad-answers skip."
            )
    return Question(question.id, question.text, question.context, tuple(a for a, _ in kept), tuple(s for _, s in kept))
