"""SQuAD's JSON files (1.1: Rajpurkar et al. 2016; 2.0: Rajpurkar et al. 2018)."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from typing_extensions import NotRequired, TypedDict

from ..commands import option
from ..errors import InputError

VERSIONS = ("1.1", "2.0")
LENGTH = 384
"""The default limit of tokens of a window."""


window = partial(option, group="windows and answers", metavar="N")


@dataclass(frozen=True)
class Limits:
    """How contexts are cut and answers searched; lengths are in tokens."""

    max_length: int | None = window(
        f"tokens per window, with <s> and </s> (default: as in a pretraining sample, at most {LENGTH})", None
    )
    doc_stride: int = window("tokens from one window's part of the context to the next", 128, minimum=1)
    max_question_length: int = window("tokens per question, the rest is cut off", 64, minimum=1)
    max_answer_length: int = window("tokens per answer", 30, minimum=1)
    n_best: int = window("answers per question in nbest.json", 20, minimum=1)

    def __post_init__(self) -> None:
        if self.max_length is not None and self.max_length < self.max_question_length + 8:
            raise InputError(
                f"--max-length {self.max_length} leaves no room for a context after a question of {self.max_question_length} "
                "tokens: lower --max-question-length, or raise --max-length if the model's positions allow it"
            )


class _Answer(TypedDict):
    text: str
    answer_start: int


class _Entry(TypedDict):
    id: str
    question: str
    answers: NotRequired[list[_Answer]]
    is_impossible: NotRequired[bool]


class _Paragraph(TypedDict):
    context: str
    qas: list[_Entry]


class _Article(TypedDict):
    title: NotRequired[str]
    paragraphs: list[_Paragraph]


class _File(TypedDict):
    data: list[_Article]


SHAPE = TypeAdapter(_File)


@dataclass(frozen=True)
class Question:
    """A question about a paragraph.

    Attributes:
        answers: the annotators' answers as the file has them; none if the paragraph holds no answer.
        starts: the character of the context at which each begins.
    """

    id: str
    text: str
    context: str
    answers: tuple[str, ...]
    starts: tuple[int, ...]

    @property
    def span(self) -> tuple[int, int] | None:
        """The first character of the first answer that the context holds where the file says, and the one after its last."""
        for answer, start in zip(self.answers, self.starts, strict=True):
            if start >= 0 and answer.strip() and self.context[start : start + len(answer)] == answer:
                return start, start + len(answer)
        return None


def read(path: Path, version: str) -> Iterator[Question]:
    """The questions of one file, in order.

    Args:
        version: ``1.1``, where every question has an answer, or ``2.0``.

    Raises:
        InputError, FileNotFoundError: it is not a SQuAD file of this version; names article, paragraph and question.
    """
    seen: set[str] = set()
    for place, paragraph in _paragraphs(path):
        for entry in paragraph["qas"]:
            answers = [] if entry.get("is_impossible") else entry.get("answers", [])
            where = f"{place}, question {entry['id']!r}"
            if not answers and version == "1.1":
                raise InputError(f"{where} has no answer, which SQuAD 1.1 does not know: is this a file for --version 2.0?")
            if entry["id"] in seen:
                raise InputError(f"{where}: an earlier question has the same id; ids must differ")
            seen.add(entry["id"])
            texts, starts = (tuple(answer[name] for answer in answers) for name in ("text", "answer_start"))
            yield Question(entry["id"], entry["question"], paragraph["context"], texts, starts)
    if not seen:
        raise InputError(f"{path} has no questions")


def find(data: Path, version: str) -> dict[str, Path]:
    """fairseq's names of the splits: SQuAD's files.

    Raises:
        FileNotFoundError: some are missing; names them all.
    """
    files = {split: data / f"{name}-v{version}.json" for split, name in (("train", "train"), ("valid", "dev"))}
    if missing := [str(path) for path in files.values() if not path.is_file()]:
        raise FileNotFoundError(f"{' and '.join(missing)} not found: --data is the folder of SQuAD's JSON files")
    return files


def _content(path: Path) -> _File:
    try:
        return SHAPE.validate_json(path.read_bytes().removeprefix(codecs.BOM_UTF8), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    problem = f"is not JSON ({first['ctx']['error']})" if first["type"] == "json_invalid" else "has another shape than it must"
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    raise InputError(f"{path} {problem}: {place}: {first['msg']}. It must be a SQuAD file, and may be cut short: copy it again.")


def _paragraphs(path: Path) -> Iterator[tuple[str, _Paragraph]]:
    """(where it is, paragraph)."""
    content = _content(path)
    for i, article in enumerate(content["data"], 1):
        for number, paragraph in enumerate(article["paragraphs"], 1):
            where = f"{path}, article {article.get('title', f'number {i}')!r}, paragraph {number}"
            if not paragraph["context"].strip():
                raise InputError(f"{where}: 'context' is empty")
            yield where, paragraph
