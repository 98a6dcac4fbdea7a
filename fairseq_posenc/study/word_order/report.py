"""From the runs of ``fairseq-posenc tasks`` to a table of schemes and a heat map."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure as Drawing
from pydantic import Field

from ...base import plotting, record
from ...base.files import atomic_write
from ...base.record import DIVERGED, FINISHED, FORMAT, Recorded
from ..engine.grid import SCHEME, Cell, Done
from ..engine.report import Figure, Report, Table, number
from ..engine.statistics import by
from .settings import PAPERS
from .tasks import TASKS

RUNS, HEAT_MAP = "runs.jsonl", "tasks"
SCORES = ("within", "beyond")
Run = Mapping[str, Any]


class Settings(Recorded):
    """The configuration of a run."""

    positions: str = Field(min_length=1)
    updates: int = Field(ge=1, le=10**9)


class EndedRun(Done):
    """The result of a run that finished or diverged."""

    task: Literal[tuple(TASKS)]  # type: ignore[valid-type]
    scheme: str = Field(pattern=f"^{SCHEME.pattern}$")
    seed: int = Field(ge=0, le=10**9)
    status: Literal["finished", "diverged"]
    configuration: Settings


class TaskRun(EndedRun):
    """The result of a run that finished."""

    learned: bool
    updates: int = Field(ge=1, le=10**9)
    within: float = Field(ge=0, le=1)
    beyond: float = Field(ge=0, le=1)
    every: int = Field(ge=1, le=10**9)
    curve: list[float]


def recorded(out: Path) -> list[Run]:
    """Return the runs in the file ``runs.jsonl`` of a folder; none if it does not exist.

    Raises:
        InputError: a line is not a run of this command.
    """
    path = out / RUNS
    lines = dict(record.json_lines(path)) if path.exists() else {}
    for place, run in lines.items():
        record.require_fields(run, TaskRun if run.get("status") == FINISHED else EndedRun, f"{path}:{place}")
    return list(lines.values())


def require_comparable(out: Path, runs: Sequence[Run], cells: Sequence[Cell]) -> None:
    """Check that all runs of a task, those that a folder has and those to come, have the same setting.

    Raises:
        InputError: they do not; the message names the differences.
    """

    def setting(configuration: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in configuration.items() if name != "positions"}

    now = {cell.key["task"]: setting(cell.configuration) for cell in cells}
    for run in runs:
        if run["task"] in now:
            problem = f"--out {out} has runs of {run['task']} with another setting"
            record.require_same(setting(run["configuration"]), now[run["task"]], problem, "Name another --out.")


def write_runs(out: Path, runs: Sequence[Run]) -> list[Run]:
    """Write runs that have finished or diverged into ``runs.jsonl``, and return them, by task, scheme and seed."""
    ordered = sorted(runs, key=lambda run: (list(TASKS).index(run["task"]), run["scheme"], run["seed"]))
    with atomic_write(out / RUNS) as stream:
        stream.writelines(json.dumps(run) + "\n" for run in ordered)
    return ordered


def summarise(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """One row per scheme, in JSON's types: first those that learned the most tasks, then by their accuracy.

    A row has ``scheme`` and ``positions``; ``learned``, the number of runs that learned their task, ``runs`` and ``diverged``;
    ``updates``, the median number, in which a run that did not learn counts with its budget; ``within`` and ``beyond``, the mean
    accuracies; and ``tasks``, the means of each task. A run that diverged has an accuracy of 0. All but ``tasks`` are over the
    tasks ``ranked_by``: those that every scheme has run with the same seeds, without those in the papers' setting. Tasks may
    differ in their number of seeds.
    """
    common = _common(runs)
    rows = []
    for scheme, group in by("scheme", runs).items():
        ranked = [run for run in group if run["task"] in common]
        row = {
            "scheme": scheme,
            "positions": group[0]["configuration"]["positions"],
            "ranked_by": common,
            "learned": sum(run.get("learned", False) for run in ranked),
            "runs": len(ranked),
            "diverged": sum(run["status"] == DIVERGED for run in ranked),
            "updates": median(map(_updates, ranked)) if ranked else None,
        }
        row |= {score: _mean(ranked, score) if ranked else None for score in SCORES}
        row["tasks"] = {task: _task(of_task) for task, of_task in by("task", group).items()}
        rows.append(row)
    return sorted(rows, key=lambda row: (-row["learned"], *(-round(row[score] or 0, 2) for score in SCORES), row["scheme"]))


def updates_needed(run: Run) -> int | None:
    """Return the first number of updates after which the accuracy was at least 0.9; None if it never was."""
    return next((i * run["every"] for i, accuracy in enumerate(run.get("curve", ()), 1) if accuracy >= 0.9), None)


def _common(runs: Sequence[Run]) -> list[str]:
    """The tasks that every scheme has run with the same seeds."""
    ranked = [run for run in runs if run["task"] not in PAPERS]
    schemes = len(by("scheme", ranked))
    return [task for task, group in by("task", ranked).items() if len(group) == schemes * len(by("seed", group))]


def _updates(run: Run) -> int:
    return run["updates"] if run.get("learned") else run["configuration"]["updates"]


def _task(runs: Sequence[Run]) -> dict[str, Any]:
    means = {score: _mean(runs, score) for score in SCORES}
    learned = sum(run.get("learned", False) for run in runs)
    return {"learned": learned, "runs": len(runs), "updates": median(map(_updates, runs)), **means}


def _mean(runs: Sequence[Run], score: str) -> float:
    return round(fmean(run.get(score, 0.0) for run in runs), 4)


def report(runs: Sequence[Run]) -> Report:
    """Return the report of runs: a table of the rows of :func:`summarise`, and a heat map."""
    rows = summarise(runs)
    head = ["scheme", "positions", "learned", "updates", *(f"accuracy {score}" for score in SCORES), "not learned"]
    over = ", ".join(rows[0]["ranked_by"]) if rows else ""
    text = f"All columns but the last are over the tasks that every scheme has run with the same seeds: {over or 'none yet'}."
    figures = [Figure(HEAT_MAP, "Accuracy of each scheme on each task.", heat_map(rows))] if rows else []
    return Report(
        title="Tasks that need word order",
        summary=[Table(head, [_cells(row) for row in rows]), text],
        data={"format": FORMAT, "runs": len(runs), "schemes": rows},
        rows=rows,
        sections={"Accuracy": figures},
    )


def _cells(row: Mapping[str, Any]) -> list[str]:
    diverged = f" ({row['diverged']} diverged)" if row["diverged"] else ""
    missed = ", ".join(task for task, runs in row["tasks"].items() if runs["learned"] < runs["runs"])
    learned = f"{row['learned']} of {row['runs']}{diverged}"
    scores = (number(row[score], ".2f") for score in SCORES)
    return [row["scheme"], row["positions"], learned, number(row["updates"], ",.0f"), *scores, missed]


def heat_map(rows: Sequence[Mapping[str, Any]]) -> Drawing:
    """Accuracy of schemes × tasks, within and beyond the lengths of training; a cross marks a task that was not learned."""
    tasks = [task for task in TASKS if any(task in row["tasks"] for row in rows)]
    size = (1.2 + 0.45 * len(tasks), 0.6 + 0.2 * len(rows))
    figure, panels = plotting.grid(list(SCORES), size, same_y=True)
    for panel, score in zip(panels, SCORES, strict=True):
        values = [[row["tasks"].get(task, {}).get(score, np.nan) for task in tasks] for row in rows]
        image = panel.imshow(values, cmap="viridis", vmin=0, vmax=1, aspect="auto")
        panel.set_xticks(range(len(tasks)), tasks, rotation=90)
        panel.set_yticks(range(len(rows)), [row["scheme"] for row in rows])
        for y, row in enumerate(rows):
            missed = [x for x, task in enumerate(tasks) if (runs := row["tasks"].get(task)) and runs["learned"] < runs["runs"]]
            panel.plot(missed, [y] * len(missed), "x", color="red", markersize=4)
    label = "accuracy within and beyond the lengths of\ntraining; ×: not learned by every seed; white: not run"
    figure.colorbar(image, ax=panels, label=label, shrink=0.6, aspect=30)
    return figure
