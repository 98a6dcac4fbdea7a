"""Results of fine-tuning in a model card: a table, and the entries of the Hub's model-index."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

from huggingface_hub import EvalResult
from pydantic import Field
from tabulate import tabulate

from ..base.errors import InputError
from ..base.record import FINISHED, FORMAT, RESULT, Recorded, read_object
from ..plugin.models.checkpoint import Checkpoint

SQUAD = {"SQuAD-1.1": "rajpurkar/squad", "SQuAD-2.0": "rajpurkar/squad_v2"}
SPLITS = {"MNLI-m": "validation_matched", "MNLI-mm": "validation_mismatched"}
METRICS = {"matthews": "matthews_correlation", "pearson": "pearsonr", "spearman": "spearmanr", "exact": "exact_match"}
"""The Hub's names of data sets, splits and metrics that have other names here."""
SECTION = """## Results of fine-tuning

Scores on the development sets in per cent; of several runs, the median over the seeds of the learning rate with the highest one.

{}

"""
Name = Annotated[str, Field(pattern=r"^[\w.-]+$")]
"""What cannot be a link in the card."""
Score = tuple[str, str, str, float]
"""The task, the evaluation set, the metric, and the score in per cent."""


class Results(NamedTuple):
    """What a card has about them."""

    section: str
    entries: list[EvalResult]


class _Run(Recorded):
    task: Name
    status: str
    scores: dict[Name, dict[Name, float]] = Field({})


class _Row(Recorded):
    set: Name
    metric: Name
    median: float | None


class _Model(Recorded):
    checkpoint: str | None


class _Task(Recorded):
    model: _Model
    scores: list[_Row]


class _Report(Recorded):
    tasks: dict[Name, _Task]


def read_results(folder: Path, checkpoint: Checkpoint) -> Results:
    """Read the results of ``fairseq-posenc glue`` or ``squad``.

    Args:
        folder: the command's ``--out``, or the folder of the run that made a fine-tuned checkpoint.
        checkpoint: the model that was fine-tuned, or that of the run.

    Raises:
        InputError: it has no results, or damaged ones, or those of another checkpoint.
    """
    if content := read_object(folder / RESULT, FORMAT, _Run):
        run = _Run.model_validate(content)
        agree = run.status == FINISHED and folder.resolve() == checkpoint.path.resolve().parent
        scores = [(run.task, name, metric, score) for name, metrics in run.scores.items() for metric, score in metrics.items()]
    else:
        report = _Report.model_validate(read_object(folder / "results.json", FORMAT, _Report) or {"tasks": {}})
        agree = {task.model.checkpoint for task in report.tasks.values()} == {checkpoint.digest}
        rows = ((name, row) for name, task in report.tasks.items() for row in task.scores)
        scores = [(name, row.set, row.metric, row.median) for name, row in rows if row.median is not None]
    if not agree:
        raise InputError(f"--results {folder} has no finished results of {checkpoint.path}")
    cells = [(name, metric, f"{score:.2f}") for _, name, metric, score in scores]
    table = tabulate(cells, ["task", "metric", "score"], "github", disable_numparse=True)
    return Results(SECTION.format(table), [*_entries(scores)])


def _entries(scores: Iterable[Score]) -> Iterator[EvalResult]:
    """Yield an entry of the model-index for each evaluation set and metric."""
    for task, name, metric, score in scores:
        squad = SQUAD.get(task)
        kind, config = ("question-answering", None) if squad else ("text-classification", task.lower().replace("-", ""))
        of_set = kind, squad or "nyu-mll/glue", name
        yield EvalResult(
            *of_set, METRICS.get(metric, metric), score, dataset_config=config, dataset_split=SPLITS.get(name, "validation")
        )
