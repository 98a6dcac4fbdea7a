"""From the runs of a grid to a table, by two protocols, and beside a baseline.

*Best*: the highest score of any learning rate (Huang et al. 2021). *Median*: of the seeds of one learning rate, the one whose
median is highest (Ke et al. 2021; Wennberg & Henter 2021), with mean, standard deviation and range. All scores are of the
development sets, in per cent.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..files import atomic_write
from .grid import read_json, write_json

Results = Sequence[Mapping[str, Any]]
"""What :func:`.grid.run_grid` returned; each has ``scores``: evaluation set -> metric -> per cent."""


def overall(result: Mapping[str, Any]) -> float:
    """One number for a run, by which runs are compared: the mean over its evaluation sets of the mean of their metrics."""
    return statistics.fmean(statistics.fmean(metrics.values()) for metrics in result["scores"].values())


def best_run(results: Results) -> Mapping[str, Any]:
    """The run with the highest overall score; of equal ones the first."""
    return max(results, key=overall)


def median_runs(results: Results) -> list[Mapping[str, Any]]:
    """The runs of the learning rate whose median overall score is highest; of equal ones the first."""
    by_lr: dict[float, list[Mapping[str, Any]]] = {}
    for result in results:
        by_lr.setdefault(result["lr"], []).append(result)
    return max(by_lr.values(), key=lambda runs: statistics.median(map(overall, runs)))


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, mean, sample standard deviation, and range."""
    return {
        "median": statistics.median(values),
        "mean": statistics.fmean(values),
        "std": statistics.stdev(values) if len(values) > 1 else 0.0,
        "min": min(values),
        "max": max(values),
    }


def summarise(results: Results) -> dict[str, Any]:
    """The report of a grid in JSON's types: each task by both protocols, and the averages over tasks."""
    tasks: dict[str, Any] = {}
    for task in dict.fromkeys(result["task"] for result in results):
        runs = [result for result in results if result["task"] == task]
        best, chosen = best_run(runs), median_runs(runs)
        tasks[task] = {
            "best": {"lr": best["lr"], "seed": best["seed"], "scores": best["scores"], "overall": overall(best)},
            "median": {
                "lr": chosen[0]["lr"],
                "seeds": [run["seed"] for run in chosen],
                "scores": {
                    evaluation: {metric: spread([run["scores"][evaluation][metric] for run in chosen]) for metric in metrics}
                    for evaluation, metrics in best["scores"].items()
                },
                "overall": spread([overall(run) for run in chosen]),
            },
        }
    average = {
        "best": statistics.fmean(task["best"]["overall"] for task in tasks.values()),
        "median": statistics.fmean(task["median"]["overall"]["median"] for task in tasks.values()),
    }
    return {"tasks": tasks, "average": average}


def write_report(results: Results, out: Path, baseline: Mapping[str, Any] | None = None) -> str:
    """Write results.json and results.md into ``out``; returns the table."""
    report = summarise(results)
    text = table(report, baseline)
    write_json(out / "results.json", report)
    with atomic_write(out / "results.md") as stream:
        stream.write(f"{text}\n")
    return text


def read_baseline(path: Path) -> dict[str, Any]:
    """The ``results.json`` of an earlier grid.

    Raises:
        ValueError, FileNotFoundError: it is not one.
    """
    if not path.is_file():
        raise FileNotFoundError(f"--baseline {path} does not exist: name the results.json of another grid")
    content = read_json(path)
    if not isinstance(content, dict) or not {"tasks", "average"} <= content.keys():
        raise ValueError(f"--baseline {path} is not the results.json of a grid")
    return content


def compare(score: float, baseline: float) -> tuple[float, float]:
    """(Δ, Δ%): the difference, and the share of the baseline's error that is gone, in per cent (Wennberg & Henter, table 3).

    Δ% = 100 (score - baseline) / (100 - baseline); not a number where the baseline is without error.
    """
    difference = score - baseline
    return difference, 100 * difference / (100 - baseline) if baseline < 100 else float("nan")


def table(report: Mapping[str, Any], baseline: Mapping[str, Any] | None = None) -> str:
    """The report as a Markdown table, whose columns are aligned for the terminal."""
    header = ["task", "metric", "best", "lr", "median", "mean", "std", "min", "max", "runs"]
    rows = [header + (["Δ", "Δ%"] if baseline else [])]
    for name, task in report["tasks"].items():
        for evaluation, metrics in task["median"]["scores"].items():
            for metric, seeds in metrics.items():
                row = [evaluation, metric, _number(task["best"]["scores"][evaluation][metric]), f"{task['median']['lr']:g}"]
                row += [_number(seeds[key]) for key in ("median", "mean", "std", "min", "max")]
                row.append(str(len(task["median"]["seeds"])))
                if baseline:
                    before = baseline["tasks"].get(name, {}).get("median", {}).get("scores", {}).get(evaluation, {}).get(metric)
                    row += _compared(seeds["median"], before and before["median"])
                rows.append(row)
    if len(report["tasks"]) > 1:
        average = report["average"]
        row = ["average", "", _number(average["best"]), "", _number(average["median"]), "", "", "", "", ""]
        if baseline:
            same = report["tasks"].keys() == baseline["tasks"].keys()
            row += _compared(average["median"], baseline["average"]["median"] if same else None)
        rows.append(row)
    return _markdown(rows)


def _compared(score: float, before: float | None) -> list[str]:
    return ["–", "–"] if before is None else [f"{value:+.2f}" for value in compare(score, before)]


def _number(value: float) -> str:
    return f"{value:.2f}"


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    names = 2  # the columns that are words, and stand on the left
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = [
        [cell.ljust(width) if i < names else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths, strict=True))]
        for row in rows
    ]
    rule = ["-" * width if i < names else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [aligned[0], rule, *aligned[1:]])
