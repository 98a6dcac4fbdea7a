"""The results as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tabulate import tabulate

ATTENTION, STEP = "attention", "step"
"""The parts that are timed: the attention of one layer, forward and backward, and a training step."""
Result = Mapping[str, Any]
"""The result of one model, backend and length: ``model``, ``backend`` (the requested one), ``tokens``, ``ran`` (how attention
ran), ``refused`` (why it was not timed, or None), and ``timings`` by part, of :func:`.work.timing`."""


def table(results: Sequence[Result], baseline: str, memory: str, markdown: bool) -> str:
    """Return one row per result that was timed; of times and ratios the medians, with the range of the ratios in brackets.

    Args:
        baseline: what ratios are to.
        memory: the title of the column of memory.
        markdown: whether it is for a Markdown file.
    """

    def row(result: Result) -> dict[str, str]:
        cells = {"architecture": result["model"], "backend": result["ran"] or " ", "n": f"{result['tokens']:,}"}
        if timing := result["timings"].get(ATTENTION):
            cells |= {"attention, ms": _number(timing["milliseconds"]["median"]), "÷ plain": _ratio(timing)}
        if timing := result["timings"].get(STEP):
            cells |= {
                "ms per step": _number(timing["milliseconds"]["median"]),
                f"÷ {baseline}": _ratio(timing),
                "tokens/s": f"{timing['tokens_per_second']:,.0f}",
                memory: _number(timing["mebibytes"]),
            }
        return cells

    rows = [row(result) for result in results if result["timings"]]
    longest = max(rows, key=len, default={"architecture": "", "backend": ""})  # fairseq's own model has no attention alone
    columns = [column for column in longest if not rows or any(each.get(column) for each in rows)]
    cells = [[each.get(column, "") for column in columns] for each in rows]
    aligned = ["left", "left", *["right"] * (len(columns) - 2)]
    form = "github" if markdown else "simple"
    return tabulate(cells, columns, form, disable_numparse=True, colalign=aligned if cells else None)


def _ratio(timing: Mapping[str, Any]) -> str:
    return "{median:.2f} ({min:.2f}–{max:.2f})".format(**timing["ratio"])


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
