"""Results of fine-tuning in a model card: a table, and the entries of the Hub's model-index."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import EvalResult

from ..base.errors import InputError
from ..base.record import read_object
from ..plugin.models.checkpoint import Checkpoint
from ..study.engine.grid import FINISHED, FORMAT, RESULT
from ..study.finetune.grid_report import FORMAT as REPORT_FORMAT
from ..study.finetune.grid_report import Report, damaged_results_as_input_errors, summarise, table

SQUAD = {"SQuAD-1.1": "rajpurkar/squad", "SQuAD-2.0": "rajpurkar/squad_v2"}
SPLITS = {"MNLI-m": "validation_matched", "MNLI-mm": "validation_mismatched"}
METRICS = {"matthews": "matthews_correlation", "pearson": "pearsonr", "spearman": "spearmanr", "exact": "exact_match"}
"""The Hub's names of data sets, splits and metrics that have other names here."""
SECTION = """## Results of fine-tuning

Scores on the development sets in per cent: *best* is that of the best run, *median* that of the seeds of the learning rate with
the highest median, and *majority* that of always giving the most frequent answer.

{}

"""


class Results(NamedTuple):
    """What a card has about them."""

    section: str
    entries: list[EvalResult]


def read_results(folder: Path, checkpoint: Checkpoint) -> Results:
    """Read the results of ``fairseq-posenc glue`` or ``squad``.

    Args:
        folder: the command's ``--out``, or the folder of the run that made a fine-tuned checkpoint.
        checkpoint: the model that was fine-tuned, or that of the run.

    Raises:
        InputError: it has no results, or damaged ones, or those of another checkpoint.
    """
    with damaged_results_as_input_errors(f"--results {folder}"):
        if (run := read_object(folder / RESULT, FORMAT)) is None:
            report = read_object(folder / "results.json", REPORT_FORMAT) or {"tasks": {}}
            agree = {task["model"]["checkpoint"] for task in report["tasks"].values()} == {checkpoint.digest}
        elif agree := run["status"] == FINISHED and folder.resolve() == checkpoint.path.resolve().parent:
            report = summarise([run])
        if not agree:
            raise InputError(f"--results {folder} has no finished results of {checkpoint.path}")
        return Results(SECTION.format(table(report)), [*_entries(report)])


def _entries(report: Report) -> Iterator[EvalResult]:
    """Yield an entry of the model-index for each evaluation set and metric: the median, in per cent."""
    for task, content in report["tasks"].items():
        squad = SQUAD.get(task)
        kind, config = ("question-answering", None) if squad else ("text-classification", task.lower().replace("-", ""))
        for name, metric, median in ((row["set"], row["metric"], row["median"]) for row in content["scores"]):
            if re.search(r"[^\w.-]", f"{task}{name}{metric}"):  # which could be a link in the card
                raise ValueError(name)
            if median is not None:
                of_set = kind, squad or "nyu-mll/glue", name
                split = SPLITS.get(name, "validation")
                hub_metric = METRICS.get(metric, metric)
                yield EvalResult(*of_set, hub_metric, float(median), dataset_config=config, dataset_split=split)
