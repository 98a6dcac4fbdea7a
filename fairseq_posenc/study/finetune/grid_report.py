"""Print the results of several grids of fine-tuning side by side, such as those of TISA with more and more kernels.

Each is named as LABEL=OUT, after the folder that glue or squad has written; the first is the baseline:

    fairseq-posenc report S=0=glue-words S=1=glue-tisa1 S=3=glue-tisa3 S=5=glue-tisa5

Scores are medians over the seeds, in per cent. Δ is the best of the others less the baseline, and Δ% the share of the baseline's
error that it removes, as in Table 3 of Wennberg & Henter 2021. Below the table, settings that differ are named.
"""

# A report has the scores of two protocols. *Best*: the highest score of any learning rate (Huang et al. 2021). *Median*: of the
# seeds of one learning rate, the one whose median is highest (Ke et al. 2021; Wennberg & Henter 2021). A run that diverged counts
# as worse than any score in the choice of the learning rate and in the median; the other figures are of the runs that finished.

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base.commands import option, show
from ...base.errors import InputError
from ...base.record import DIVERGED, FINISHED, FORMAT, Recorded, differences, read_object
from ..engine.report import JSON, Report, Table, number
from ..engine.statistics import by, spread

Content = Mapping[str, Any]
"""``results.json``: see :func:`summarise`."""
PARTIAL = ("HasAns_", "NoAns_")
"""How the metrics begin that are of a part of an evaluation set, SQuAD 2.0's; they are shown, and choose no run."""


class Score(Recorded):
    """The scores of one evaluation set and metric."""

    set: str
    metric: str
    median: float | None


class TaskScores(Recorded):
    """What is compared of a task."""

    settings: dict[str, Any]
    scores: list[Score]


class Grid(Recorded):
    """What is compared of a grid, in its ``results.json``."""

    tasks: dict[str, TaskScores]


def _labelled(text: str) -> tuple[str, Path]:
    label, _, path = text.rpartition("=") if "=" in text and not Path(text).exists() else ("", "", text)
    return label or Path(path).absolute().name, Path(path)


@dataclass
class Options:
    """The flags of ``fairseq-posenc report``, with their defaults."""

    results: list[tuple[str, Path]] = option(
        "the --out of a grid; the default label is its name",
        names=("results",),
        nargs="+",
        parse=_labelled,
        metavar="[LABEL=]OUT",
    )


def main(options: Options) -> None:
    """Print the medians of grids side by side, and the settings that differ.

    Raises:
        InputError, OSError: a flag, or a file that it names, cannot be used.
    """
    labels = Counter(label for label, _ in options.results)
    if repeated := [label for label, count in labels.items() if count > 1]:
        raise InputError(f"two grids have the label {repeated[0]!r}: give each a label of its own, as in S=1=OUT")
    grids = {label: read_results(path / JSON) for label, path in options.results}
    first, *others = grids
    changes = {label: differing(grids[first], grids[label]) for label in others}
    lines = [f"{label} differs from {first}: {text}." for label, text in changes.items() if text]
    show("\n\n".join([side_by_side(grids).markdown(), *lines]))


def overall(result: Mapping[str, Any]) -> float:
    """Return one number for a run, by which runs are compared: the mean over its evaluation sets of the mean of their metrics.

    Those that are :data:`PARTIAL` do not count, so that SQuAD's runs are chosen by EM and F1.
    """
    if result["status"] == DIVERGED:
        return -math.inf
    return statistics.fmean(
        statistics.fmean(score for name, score in metrics.items() if not name.startswith(PARTIAL))
        for metrics in result["scores"].values()
    )


def best_run(results: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the run with the highest overall score; of equal ones the first. None if all diverged."""
    best = max(results, key=overall)
    return best if best["status"] == FINISHED else None


def median_runs(results: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the runs of the learning rate with the highest median overall score; of equal ones, of the best or the first run."""
    return max(by("lr", results).values(), key=lambda runs: (statistics.median(map(overall, runs)), max(map(overall, runs))))


def summarise(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the results of a grid, of the runs that finished or diverged.

    ``tasks`` has each task's model, settings, runs, overall scores, and ``scores``: a row per evaluation set and metric, none if
    every run diverged. ``average`` is over the tasks, and None if one of them has no score. ``versions`` has each set of packages
    that runs were made with.
    """
    tasks = {name: _task(runs) for name, runs in by("task", results).items()}
    versions = [dict(pairs) for pairs in dict.fromkeys(tuple(result["versions"].items()) for result in results)]
    scores = {protocol: [task["overall"][protocol] for task in tasks.values()] for protocol in ("best", "median")}
    average = {protocol: None if None in of_tasks else statistics.fmean(of_tasks) for protocol, of_tasks in scores.items()}
    return {"format": FORMAT, "versions": versions, "tasks": tasks, "average": average}


def _task(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    kept = ("lr", "seed", "status", "scores", "constant", "reason", "seconds")
    settings = {**runs[0]["configuration"], "lrs": list(by("lr", runs)), "seeds": list(by("seed", runs))}
    model = settings.pop("model")
    task = {"model": model, "settings": settings, "runs": [{key: run[key] for key in kept if key in run} for run in runs]}
    best, chosen = best_run(runs), median_runs(runs)
    if best is None:
        return {**task, "best": None, "lr": None, "overall": {"best": None, "median": None}, "scores": []}
    finished = [run for run in chosen if run["status"] == FINISHED]
    diverged = len(chosen) - len(finished)
    rows = [
        {
            "set": name,
            "metric": metric,
            "majority": best["majority"].get(name, {}).get(metric),
            "best": score,
            **spread([run["scores"][name][metric] for run in finished], diverged),
        }
        for name, metrics in best["scores"].items()
        for metric, score in metrics.items()
    ]
    median = spread([overall(run) for run in finished], diverged)["median"]
    task |= {"best": {"lr": best["lr"], "seed": best["seed"]}, "lr": chosen[0]["lr"]}
    return {**task, "overall": {"best": overall(best), "median": median}, "scores": rows}


def report(results: Sequence[Mapping[str, Any]]) -> Report:
    """Return the report of a grid, from the runs that finished or diverged."""
    content = summarise(results)
    rows = [{"task": name, **row} for name, task in content["tasks"].items() for row in task["scores"]]
    return Report(title="Results of fine-tuning", summary=[table(content)], data=content, rows=rows)


def read_results(path: Path) -> Content:
    """Read the ``results.json`` of a grid; raises InputError if it does not exist, or is not one."""
    content = read_object(path, FORMAT, Grid)
    if content is None:
        raise InputError(f"{path} does not exist: name the --out of glue or squad")
    return content


def differing(baseline: Content, grid: Content) -> str:
    """Return how a grid's runs differ from the baseline's, apart from the model; empty if they do not."""
    tasks_of: dict[str, list[str]] = {}
    tasks = {name: task["settings"] for name, task in grid["tasks"].items() if name in baseline["tasks"]}
    for name, settings in tasks.items():
        for text in differences(baseline["tasks"][name]["settings"], settings):
            tasks_of.setdefault(text, []).append(name)
    if not tasks:
        return "it has none of these tasks"
    return "; ".join(f"{text} ({', '.join(names)})" for text, names in tasks_of.items())


def table(content: Content) -> Table:
    """Return the scores of a grid, the average, and the numbers of runs, of those that diverged, and of those of one class."""
    head = ["task", "metric", "majority", "best", "lr", "median", "mean", "std", "min", "max", "runs"]
    rows = []
    for name, task in content["tasks"].items():
        runs = _count(task["runs"])
        if not task["scores"]:
            rows.append([name, "", "–", "diverged", *["–"] * 6, runs])
        for row in task["scores"]:
            median = "diverged" if row["median"] is None else _score(row["median"])
            scores = [_score(row["majority"]), _score(row["best"]), f"{task['lr']:g}", median]
            rows.append(
                [row["set"], row["metric"], *scores, *(_score(row[name]) for name in ("mean", "std", "min", "max")), runs]
            )
    if len(content["tasks"]) > 1:
        average = content["average"]
        rows.append(["average", "", "", _score(average["best"]), "", _score(average["median"]), *[""] * 5])
    return Table(head, rows)


def side_by_side(grids: Mapping[str, Content]) -> Table:
    """Return the medians of several grids by their labels. Δ and Δ% are those of the best one against the first."""
    medians: dict[tuple[str, str, str], dict[str, float | None]] = {}
    for label, grid in grids.items():
        for name, task in grid["tasks"].items():
            for row in task["scores"]:
                medians.setdefault((name, row["set"], row["metric"]), {})[label] = row["median"]
    rows = []
    for (_, *title), by_label in medians.items():
        first, *others = scores = [by_label.get(label) for label in grids]
        best = max((score for score in others if score is not None), default=None)
        changes = (None, None) if best is None or first is None else compare(best, first)
        rows.append([*title, *map(_score, scores), *(number(value, "+.2f") for value in changes)])
    return Table(["task", "metric", *grids, "Δ", "Δ%"], rows)


def compare(score: float, baseline: float) -> tuple[float, float | None]:
    """Return (Δ, Δ%): the difference, and the removed share of the baseline's error in per cent (Wennberg & Henter, table 3).

    Δ% = 100 (score - baseline) / (100 - baseline); None if the baseline has no error.
    """
    difference = score - baseline
    return difference, 100 * difference / (100 - baseline) if baseline < 100 else None


def _count(runs: Sequence[Mapping[str, Any]]) -> str:
    diverged = sum(run["status"] == DIVERGED for run in runs)
    marks = {"diverged": diverged, "of one class": sum(bool(run.get("constant")) for run in runs)}
    words = ", ".join(f"{count} {mark}" for mark, count in marks.items() if count)
    return f"{len(runs)} ({words})" if words else str(len(runs))


def _score(value: float | None) -> str:
    return number(value, ".2f")
