"""GLUE's tasks, and the files of the benchmark's download: rows of columns separated by tabs, without quoting."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...base.errors import InputError
from ...base.files import read_text

SCALE = 5.0
"""STS-B's scores are 0 … 5; a model is trained on score / 5, as in fairseq's recipe, on which its learning rates rest."""
ENTAILMENT = ("entailment", "not_entailment")
BINARY = ("0", "1")
PAIR = ("sentence1", "sentence2")


@dataclass(frozen=True)
class GlueTask:
    """One task; ``name`` is also that of its folder."""

    name: str
    columns: tuple[str, ...]  # names of the text columns, one or two
    label: str  # name of the label column in train and dev files
    labels: tuple[str, ...]  # in the files, in the order of the classes; empty for a regression on 0 … 5
    metrics: tuple[str, ...] = ("accuracy",)  # of glue_runs.score, in the benchmark's order
    names: tuple[str, ...] = ()  # of the classes if the labels are numbers
    dev: dict[str, str] = field(default_factory=dict)  # evaluation set -> its file; the first selects epochs
    header: tuple[str, ...] | None = None  # columns of train and dev files without a header row

    def __post_init__(self) -> None:
        if not self.dev:
            object.__setattr__(self, "dev", {self.name: "dev.tsv"})
        object.__setattr__(self, "names", self.names or self.labels)

    @property
    def regression(self) -> bool:
        return not self.labels


COLA = ("source", "label", "star", "sentence")
QUESTIONS, STRINGS, EQUIVALENT = ("question1", "question2"), ("#1 String", "#2 String"), ("not_equivalent", "equivalent")
MNLI = GlueTask(
    "MNLI",
    PAIR,
    "gold_label",
    ("contradiction", "neutral", "entailment"),
    dev={"MNLI-m": "dev_matched.tsv", "MNLI-mm": "dev_mismatched.tsv"},
)
TASKS = {
    task.name: task
    for task in (
        GlueTask("CoLA", ("sentence",), "label", BINARY, ("matthews",), ("unacceptable", "acceptable"), header=COLA),
        GlueTask("SST-2", ("sentence",), "label", BINARY, names=("negative", "positive")),
        GlueTask("MRPC", STRINGS, "Quality", BINARY, ("f1", "accuracy"), EQUIVALENT),
        GlueTask("STS-B", PAIR, "score", (), ("pearson", "spearman")),
        GlueTask("QQP", QUESTIONS, "is_duplicate", BINARY, ("f1", "accuracy"), ("not_duplicate", "duplicate")),
        MNLI,
        GlueTask("QNLI", ("question", "sentence"), "label", ENTAILMENT),
        GlueTask("RTE", PAIR, "label", ENTAILMENT),
        GlueTask("WNLI", PAIR, "label", BINARY, names=ENTAILMENT[::-1]),
    )
}


def find(tasks: Iterable[GlueTask], data: Path) -> dict[str, dict[str, Path]]:
    """Return the files of each task by its name: ``train``, and the evaluation sets by their names.

    Raises:
        FileNotFoundError: there are not all; the message names those that are missing.
    """
    files = {
        task.name: {split: data / task.name / file for split, file in {"train": "train.tsv", **task.dev}.items()}
        for task in tasks
    }
    paths = [path for of_task in files.values() for path in of_task.values()]
    if missing := [str(path.relative_to(data)) for path in paths if not path.is_file()]:
        raise FileNotFoundError(
            f"--data {data} lacks {', '.join(missing)}. It is the folder that holds the benchmark's folders, of which --tasks "
            "names some"
        )
    return files


@dataclass(frozen=True)
class Example:
    """A row: one sentence or two, and the class, or score / 5 of a regression."""

    texts: tuple[str, ...]
    target: float | int


def read(path: Path, task: GlueTask, skip_bad: bool = False) -> Iterator[Example]:
    """Yield the rows of one file, in order.

    Args:
        skip_bad: leave rows out that cannot be read, and count them on stderr: for training sets. A score is of every row.

    Raises:
        InputError, FileNotFoundError: the file is missing or empty, or lacks a column, or a row cannot be read; names the line.
    """
    count, problems = 0, list[str]()
    text = read_text(path).rstrip("\r\n")
    lines = [line.removesuffix("\r") for line in text.split("\n")]  # not at Unicode's other line breaks
    columns = task.header or lines.pop(0).split("\t")
    if absent := [name for name in (*task.columns, task.label) if name not in columns]:
        raise InputError(f"{path} has no column {absent[0]!r} in its first line, which has {', '.join(columns)}")
    for place, line in enumerate(lines, 1 if columns is task.header else 2):
        try:
            example = _example(line.split("\t"), columns, task)
        except InputError as error:
            problems.append(f"{path}, line {place}: {error}")
            if not skip_bad:
                raise InputError(f"{problems[0]}. Correct the line.") from None
        else:
            count += 1
            yield example
    if not count:
        raise InputError(": ".join([f"{path} has no rows of data that can be read", *problems[:1]]))
    if problems:
        print(f"{path}: {len(problems)} rows left out, because they cannot be read ({problems[0]})", file=sys.stderr)


def _example(fields: list[str], columns: Sequence[str], task: GlueTask) -> Example:
    if len(fields) != len(columns):
        raise InputError(f"{len(fields)} columns where the header has {len(columns)}; tabs separate columns, also within quotes")
    values = dict(zip(columns, fields, strict=True))
    texts = tuple(values[name] for name in task.columns)
    label = values[task.label]
    if not task.regression:
        if label not in task.labels:
            raise InputError(f"the {task.label} is {label!r}, and must be one of {', '.join(task.labels)}")
        return Example(texts, task.labels.index(label))
    try:
        score = float(label)
    except ValueError:
        score = -1.0
    if not 0 <= score <= SCALE:
        raise InputError(f"the {task.label} is {label!r}, and must be a number from 0 to {SCALE:g}")
    return Example(texts, score / SCALE)
