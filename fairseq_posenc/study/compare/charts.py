"""The pictures of a comparison's report. In all of them, a scheme's colour is its state."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ...base.plotting import COLOURS, DASHES, grid
from .results import ACCURACIES, BEST, UNDECIDED, WORSE
from .starts import Run

Row = Mapping[str, Any]
BITS = "loss, bits per predicted token"
LINES_PER_PANEL = len(DASHES)
STATE_COLOURS = {BEST: COLOURS[0], WORSE: COLOURS[1], UNDECIDED: "0.5"}


def overview(rows: Sequence[Row]) -> Figure:
    """Draw for each scheme the loss with its interval and runs, the starts and their range, and the time with its range."""
    rows = [row for row in rows if row["runs"]]
    nothing = dict.fromkeys(("median", "first", "last", "low", "high"))
    start, cost = ([row[name] or nothing for row in rows] for name in ("start", "cost"))
    values = {
        "loss, bits": [(row["loss"], row["low"], row["high"]) for row in rows],
        "start, updates": [(of_row["median"], of_row["first"], of_row["last"]) for of_row in start],
        "time of a step": [(of_row["median"], of_row["low"], of_row["high"]) for of_row in cost],
    }
    shown = {name: points for name, points in values.items() if sum(point[0] is not None for point in points) > 1}
    shown = shown or dict([next(item for item in values.items() if any(point[0] is not None for point in item[1]))])
    figure, panels = grid([*shown], (4.6 / len(shown), 0.5 + 0.22 * len(rows)), same_y=True)
    for panel, points in zip(panels, shown.values(), strict=True):
        for place, (row, (middle, low, high)) in enumerate(zip(rows, points, strict=True)):
            if middle is not None:
                style: dict[str, Any] = {"color": STATE_COLOURS[row["state"]], "markersize": 4}
                panel.plot([low or middle, high or middle], [place, place], linewidth=1.2, **style)
                panel.plot(middle, place, "o", **style)
        panel.locator_params("x", nbins=4)
        panel.grid(axis="x", color="0.9")
        panel.set_axisbelow(True)
    panels[0].set_yticks(range(len(rows)), [row["scheme"] for row in rows], fontsize="small")
    panels[0].set_ylim(len(rows) - 0.5, -0.5)
    return figure


def curves(rows: Sequence[Row], runs: Mapping[str, Sequence[Run]], reference: str) -> Figure:
    """Draw the loss during training: the mean and the range of the runs, a few schemes per panel beside the reference.

    Args:
        rows: of the result, ranked.
        runs: the finished runs of each scheme.
        reference: the scheme that is in every panel, as a wide line.
    """
    states = {row["scheme"]: row["state"] for row in rows if runs.get(row["scheme"])}
    schemes = [name for name in states if name != reference]
    panels = [schemes[i : i + LINES_PER_PANEL] for i in range(0, len(schemes), LINES_PER_PANEL)] or [[]]
    figure, axes = grid([""] * len(panels), (4.2, 3.0), 1, same_x=True, same_y=True, x_label="updates", y_label=BITS)
    for panel, group in zip(axes, panels, strict=True):
        for number, scheme in enumerate(([reference] if reference in states else []) + group, -(reference in states)):
            style: dict[str, Any] = (
                {"linewidth": 1.4, "linestyle": DASHES[number]} if number >= 0 else {"linewidth": 4, "alpha": 0.4}
            )
            (updates, losses), colour = common_curves(runs[scheme]), STATE_COLOURS[states[scheme]]
            panel.plot(updates, losses.mean(0), color=colour, label=scheme, **style)
            panel.fill_between(updates, losses.min(0), losses.max(0), color=colour, alpha=0.12, linewidth=0)
        if panel.lines:
            panel.legend(frameon=False, fontsize="small", handlelength=3.2)
    return figure


def common_curves(runs: Sequence[Run]) -> tuple[list[int], np.ndarray]:
    """Return the updates at which all of these runs were validated, and the losses there, (runs, updates)."""
    points = [{point["updates"]: point["loss"] for point in run["curve"]} for run in runs]
    updates = sorted(set.intersection(*map(set, points)))
    return updates, np.array([[curve[at] for at in updates] for curve in points])


def accuracies(rows: Sequence[Row]) -> Figure:
    """Draw the accuracies on minimal pairs against the loss, a point per scheme with the intervals of both."""
    rows = [row for row in rows if row["loss"] is not None and row["all pairs"]]
    names = [name for name in ACCURACIES if any(row[name] for row in rows)]
    figure, panels = grid(names, (4.2, 3.0), 1, same_x=True, x_label=BITS, y_label="accuracy, per cent")
    for panel, name in zip(panels, names, strict=True):
        for row in rows:
            if (value := row[name]) is not None:
                x, y = (
                    [[0 if low is None else mean - low], [0 if high is None else high - mean]]
                    for mean, low, high in ((row["loss"], row["low"], row["high"]), (value["mean"], value["low"], value["high"]))
                )
                point = row["loss"], value["mean"]
                panel.errorbar(*point, y, x, "o", color=STATE_COLOURS[row["state"]], markersize=4, linewidth=0.8)
                panel.annotate(row["scheme"], point, (3, 3), textcoords="offset points", fontsize="x-small")
        panel.axhline(50, color="0.4", linewidth=0.9, linestyle=":")
    return figure
