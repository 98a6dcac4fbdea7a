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
from argparse import ArgumentTypeError
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tabulate import tabulate

from ...base.commands import option, show
from ...base.errors import InputError
from ...base.record import DIVERGED, FINISHED, FORMAT, differences, read_object
from ..engine.statistics import by, spread

Report = dict[str, Any]
"""``results.json``: see :func:`summarise`."""
PARTIAL = ("HasAns_", "NoAns_")
"""How the metrics begin that are of a part of an evaluation set, SQuAD 2.0's; they are shown, and choose no run."""


def _labelled(text: str) -> tuple[str, Path]:
    label, _, path = text.rpartition("=") if "=" in text and not Path(text).exists() else ("", "", text)
    if not path:
        raise ArgumentTypeError(f"{text!r} names no folder: write LABEL=OUT")
    folder = Path(path)
    return label or (folder if folder.suffix != ".json" else folder.parent).absolute().name, folder


@dataclass
class Options:
    """The command's flags."""

    results: list[tuple[str, Path]] = option(
        "the --out of a grid, or its results.json; the default label is the folder's name", names=("results",), nargs="+",
        parse=_labelled, metavar="[LABEL=]OUT",
    )  # fmt: skip


def main(options: Options) -> None:
    """Run the command."""
    labels = Counter(label for label, _ in options.results)
    if repeated := [label for label, count in labels.items() if count > 1]:
        raise InputError(f"two grids have the label {repeated[0]!r}: give each a label of its own, as in S=1=OUT")
    reports = {label: read_report(path / "results.json" if path.is_dir() else path) for label, path in options.results}
    first, *others = reports
    with damaged_results_as_input_errors(", ".join(str(path) for _, path in options.results)):
        changes = {label: differing(reports[first], reports[label]) for label in others}
        lines = [f"{label} differs from {first}: {text}." for label, text in changes.items() if text]
        lines = [side_by_side(reports), *lines]
    show("\n\n".join(lines))


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


def summarise(results: Sequence[Mapping[str, Any]], columns: Mapping[str, str] | None = None) -> Report:
    """Return the report of a grid.

    Args:
        results: of the runs that finished or diverged.
        columns: the metric of each evaluation set that the average is over; by default it is over tasks.

    Returns:
        ``tasks`` has each task's model, settings, runs, overall scores, and ``scores``: a row per evaluation set and metric, none
        if every run diverged. An ``average`` is None if one of its parts has no score. ``versions`` has each set of packages
        that runs were made with.
    """
    tasks = {name: _task(runs) for name, runs in by("task", results).items()}
    versions = [dict(pairs) for pairs in dict.fromkeys(tuple(result["versions"].items()) for result in results)]
    rows = {(row["set"], row["metric"]): row for task in tasks.values() for row in task["scores"]}
    parts = [rows.get(column) for column in columns.items()] if columns else [task["overall"] for task in tasks.values()]
    average = {"best": _mean(parts, "best"), "median": _mean(parts, "median"), "columns": columns}
    return {"format": FORMAT, "versions": versions, "tasks": tasks, "average": average}


def _mean(parts: Sequence[Mapping[str, Any] | None], protocol: str) -> float | None:
    values = [part[protocol] for part in parts if part is not None]
    return None if len(values) < len(parts) or None in values else statistics.fmean(values)


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


def read_report(path: Path) -> Report:
    """Read the ``results.json`` of a grid, or raise InputError."""
    report = read_object(path, FORMAT)
    if report is None:
        raise InputError(f"{path} does not exist: name the results.json of another grid")
    return report


def differing(baseline: Report, report: Report) -> str:
    """Return how a report's runs differ from the baseline's, apart from the model; empty if they do not."""
    tasks_of: dict[str, list[str]] = {}
    tasks = {name: task["settings"] for name, task in report["tasks"].items() if name in baseline["tasks"]}
    for name, settings in tasks.items():
        for text in differences(baseline["tasks"][name]["settings"], settings):
            tasks_of.setdefault(text, []).append(name)
    if not tasks:
        return "it has none of these tasks"
    return "; ".join(f"{text} ({', '.join(names)})" for text, names in tasks_of.items())


def notes(report: Report) -> list[str]:
    """Return a sentence for each task with runs that diverged, or whose models predict a single class."""
    sentences = []
    for name, task in report["tasks"].items():
        runs = task["runs"]
        tried = Counter(run["lr"] for run in runs)
        if diverged := Counter(run["lr"] for run in runs if run["status"] == DIVERGED):
            where = ", ".join(f"{count} of {tried[lr]} at the learning rate {lr:g}" for lr, count in diverged.items())
            sentences.append(f"{name}: {diverged.total()} of {len(runs)} runs diverged ({where}).")
        if constant := sum(bool(run.get("constant")) for run in runs):
            sentences.append(f"{name}: {constant} of {len(runs)} runs predict a single class.")
    return sentences


def table(report: Report) -> str:
    """Return the report as a Markdown table, whose columns are aligned for the terminal."""
    header = ["task", "metric", "majority", "best", "lr", "median", "mean", "std", "min", "max", "runs"]
    rows = []
    for name, task in report["tasks"].items():
        if not task["scores"]:
            rows.append([name, "", "–", "diverged", *["–"] * 6, _count(task["runs"])])
        runs = _count([run for run in task["runs"] if run["lr"] == task["lr"]])
        for row in task["scores"]:
            median = "diverged" if row["median"] is None else _number(row["median"])
            scores = [_number(row["majority"]), _number(row["best"]), f"{task['lr']:g}", median]
            scores += [_number(row[figure]) for figure in ("mean", "std", "min", "max")]
            rows.append([row["set"], row["metric"], *scores, runs])
    if len(report["tasks"]) > 1:
        average = report["average"]
        over = f"{len(average['columns'])} columns" if average["columns"] else ""
        rows.append(["average", over, "", _number(average["best"]), "", _number(average["median"]), *[""] * 5])
    return _markdown(header, rows)


def side_by_side(reports: Mapping[str, Report]) -> str:
    """Return the medians of several grids by their labels, as a Markdown table.

    Δ and Δ% are those of the best one against the first.
    """
    rows = []
    measured = {
        (name, row["set"], row["metric"]): row
        for report in reports.values() for name, task in report["tasks"].items() for row in task["scores"]
    }  # fmt: skip
    for (name, *title), row in measured.items():
        first, *others = scores = [_median(report, name, row) for report in reports.values()]
        best = max((score for score in others if score is not None), default=None)
        rows.append([*title, *map(_number, scores), *_change(best, first)])
    return _markdown(["task", "metric", *reports, "Δ", "Δ%"], rows)


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    align = ["left", "left", *["right"] * (len(header) - 2)]
    return tabulate(rows, header, "github", disable_numparse=True, colalign=align if rows else None)


def _median(report: Report, task: str, row: Mapping[str, Any]) -> float | None:
    rows = report["tasks"][task]["scores"] if task in report["tasks"] else []
    return next((other["median"] for other in rows if all(other[key] == row[key] for key in ("set", "metric"))), None)


def compare(score: float, baseline: float) -> tuple[float, float]:
    """Return (Δ, Δ%): the difference, and the removed share of the baseline's error in per cent (Wennberg & Henter, table 3).

    Δ% = 100 (score - baseline) / (100 - baseline); NaN if the baseline has no error.
    """
    difference = score - baseline
    return difference, 100 * difference / (100 - baseline) if baseline < 100 else float("nan")


def _change(score: float | None, baseline: float | None) -> list[str]:
    if score is None or baseline is None:
        return ["–", "–"]
    return ["–" if math.isnan(value) else f"{value:+.2f}" for value in compare(score, baseline)]


def _count(runs: Sequence[Mapping[str, Any]]) -> str:
    diverged = sum(run["status"] == DIVERGED for run in runs)
    marks = {"diverged": diverged, "of one class": sum(bool(run.get("constant")) for run in runs)}
    words = ", ".join(f"{count} {mark}" for mark, count in marks.items() if count)
    return f"{len(runs)} ({words})" if words else str(len(runs))


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


@contextmanager
def damaged_results_as_input_errors(names: str) -> Iterator[None]:
    """Raise InputError, in place of what Python raises, for records that somebody has edited."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError, statistics.StatisticsError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{names}: the results of these runs were edited or damaged ({error!r}): remove them") from error
