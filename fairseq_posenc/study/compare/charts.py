"""The pictures of a comparison's report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.plotting import COLOURS, grid, legend, line_style
from .results import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = Mapping[str, Any]
BITS = "loss, bits per predicted token"
LINES_PER_PANEL = 4
LINES_BY_POSITION = 8
FAR = 2.5
"""The axis of losses ends at so many times the distance from the least loss to the median one."""
IN_SET, REFERENCE, OTHER = COLOURS[0], COLOURS[1], "0.45"


def ranking(rows: Sequence[Row], reference: str) -> Figure:
    """Draw the loss of each scheme, its 95% interval, and its runs."""
    rows = [row for row in rows if row["loss"] is not None]
    figure, (panel,) = grid([""], (3.9, 0.5 + 0.25 * len(rows)))
    start, end = _ends(rows, reference)
    for place, row in enumerate(rows):
        colour = _colour(row, reference)
        if row["loss"] > end:
            panel.plot(end, place, ">", color=colour, clip_on=False)
            panel.annotate(f"{row['loss']:.2f}", (end, place), (-6, 0), textcoords="offset points", ha="right", va="center")
            continue
        panel.plot(list(row["losses"].values()), [place] * row["runs"], "|", color=colour, alpha=0.6)
        panel.errorbar(row["loss"], place, xerr=_errors(row), fmt="o", color=colour, linewidth=1.2, capsize=2, **_marker(row))
        if row["low"] is not None and row["low"] < start:
            panel.plot(start, place, "<", color=colour, markersize=4, clip_on=False)
    panel.set_xlim(start, end)
    panel.set_yticks(range(len(rows)), [f"{row['scheme']}  {rank}" for rank, row in enumerate(rows, 1)], fontsize="small")
    panel.set_ylim(len(rows) - 0.5, -0.5)
    panel.locator_params("x", nbins=5)
    panel.set_xlabel(BITS)
    panel.grid(axis="x", color="0.9")
    panel.set_axisbelow(True)
    return figure


def quality_against_cost(rows: Sequence[Row], reference: str) -> Figure:
    """Draw the loss of each scheme, by its rank, against its time per update, and those with no other cheaper and better."""
    ranked = [(rank, row) for rank, row in enumerate(rows, 1) if row["loss"] is not None and row["cost"] is not None]
    figure, (panel,) = grid([""], (3.9, 3.6))
    start, end = _ends([row for _, row in ranked], reference)
    front: list[tuple[float, float]] = []
    for rank, row in sorted(ranked, key=lambda pair: pair[1]["cost"]):
        place, colour = (row["cost"], row["loss"]), _colour(row, reference)
        if row["loss"] < end:
            panel.errorbar(*place, yerr=_errors(row), fmt="o", color=colour, linewidth=0.8, **_marker(row))
            panel.annotate(str(rank), place, (4, 3), textcoords="offset points", fontsize="small", color=colour)
        if not front or row["loss"] < front[-1][1]:
            front.append(place)
    panel.plot(*zip(*front, strict=True), color="0.6", linewidth=0.9, linestyle=":", drawstyle="steps-post", zorder=0)
    panel.set_xscale("log")
    panel.xaxis.set_major_formatter("{x:g}")
    panel.xaxis.set_minor_formatter("{x:g}")
    panel.tick_params("x", which="both", labelsize="small")
    panel.set_ylim(start, end)
    panel.set(xlabel=f"time per update ÷ that of {reference}", ylabel=BITS)
    return figure


def curves(rows: Sequence[Row], runs: Mapping[str, Sequence[Run]], reference: str, by_time: bool = False) -> Figure:
    """Draw the loss during training: the mean and the range of the runs, a few schemes per panel beside the reference.

    Args:
        rows: of the result, ranked.
        runs: the finished runs of each scheme.
        reference: the scheme that is in every panel, in grey.
        by_time: against the time of training, of schemes whose cost is known, rather than updates.
    """
    costs = {row["scheme"]: row["cost"] if by_time else 1.0 for row in rows}
    schemes = [name for name, cost in costs.items() if runs.get(name) and cost is not None and name != reference]
    panels = [schemes[i : i + LINES_PER_PANEL] for i in range(0, len(schemes), LINES_PER_PANEL)] or [[]]
    label = f"time ÷ that of an update of {reference}" if by_time else "updates"
    figure, axes = grid([""] * len(panels), (4.2, 3.0), columns=2, same_x=True, same_y=True, x_label=label, y_label=BITS)
    for panel, group in zip(axes, panels, strict=True):
        if runs.get(reference):
            _curve(panel, runs[reference], 1.0, label=reference, color="0.6", linewidth=2.5)
        for number, scheme in enumerate(group):
            _curve(panel, runs[scheme], costs[scheme], **{**line_style(number), "marker": "", "label": scheme})
        if panel.lines:
            panel.legend(frameon=False, fontsize="small", handlelength=3.2)
    return figure


def _curve(panel: Axes, runs: Sequence[Run], cost: float, **style: Any) -> None:
    points = [{point["updates"]: point["loss"] for point in run["curve"]} for run in runs]
    updates = sorted(set.intersection(*map(set, points)))
    losses, x = np.array([[curve[number] for number in updates] for curve in points]), cost * np.array(updates)
    panel.plot(x, losses.mean(0), **style)
    panel.fill_between(x, losses.min(0), losses.max(0), color=style["color"], alpha=0.15, linewidth=0)


def by_position(rows: Sequence[Row], runs: Mapping[str, Sequence[Run]], reference: str, length: int) -> Figure | None:
    """Draw the loss by position in the sequence: of the first schemes, the reference and the last; None without such numbers."""
    measured = [row["scheme"] for row in rows if any(run.get("by_position") for run in runs.get(row["scheme"], ()))]
    if not measured:
        return None
    shown = list(dict.fromkeys([*measured[: LINES_BY_POSITION - 2], reference, measured[-1]]))
    figure, (panel,) = grid([""], (4.4, 3.2))
    for number, scheme in enumerate(name for name in shown if name in measured):
        parts = [run["by_position"] for run in runs[scheme] if run.get("by_position")]
        means = [np.mean(values) if None not in values else np.nan for values in zip(*parts, strict=True)]
        x = (np.arange(len(means)) + 0.5) * length / len(means)
        panel.plot(x, means, **line_style(number), label=scheme)
    panel.set(xlabel="position in the sequence, tokens", ylabel=BITS)
    legend(figure, [panel])
    return figure


def _colour(row: Row, reference: str) -> str:
    return REFERENCE if row["scheme"] == reference else IN_SET if row["in_set"] else OTHER


def _marker(row: Row) -> dict[str, Any]:
    return {"markersize": 4} | ({"markerfacecolor": "white"} if row["in_set"] is None else {})


def _errors(row: Row) -> list[list[float]] | None:
    return None if row["low"] is None else [[row["loss"] - row["low"]], [row["high"] - row["loss"]]]


def _ends(rows: Sequence[Row], reference: str) -> tuple[float, float]:
    """Where an axis of losses starts and ends, so that all but the worst can be told apart and the reference is shown."""
    losses = [row["loss"] for row in rows]
    least = min(losses)
    end = max([least + FAR * (median(losses) - least), *(row["loss"] for row in rows if row["scheme"] == reference)])
    shown = [row for row in rows if row["loss"] <= end]
    ends = [min(row["high"] or row["loss"], end + max(end - least, 0.2)) for row in shown] + [
        max(row["losses"].values()) for row in shown
    ]
    end = max(ends) + 0.03 * (max(ends) - least) + 0.01
    lows = [least, *(row["low"] for row in shown if row["low"] is not None)]
    return max(min(lows) - 0.01, least - max(end - least, 0.2) / 3), end
