"""The results as a table and as a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ATTENTION, STEP = "attention", "step"
TITLES = {ATTENTION: "attention of one layer, forward and backward", STEP: "training step"}
Result = Mapping[str, Any]
"""The result of one model, backend and length: ``model``, ``backend`` (the requested one), ``tokens``, ``ran`` (how attention
ran), ``refused`` (why it was not timed, or None), and ``timings`` by the keys of :data:`TITLES`, of :func:`.work.timing`."""


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
                "TFLOP/s": _number(timing["tflops"]),
                "MFU": "" if timing["mfu"] is None else f"{timing['mfu']:.1%}",
            }
        return cells

    rows = [row(result) for result in results if result["timings"]]
    longest = max(rows, key=len, default={"architecture": "", "backend": ""})  # fairseq's own model has no attention alone
    columns = [column for column in longest if not rows or any(each.get(column) for each in rows)]
    cells = [[each.get(column, "") for column in columns] for each in rows]
    aligned = ["left", "left", *["right"] * (len(columns) - 2)]
    form = "github" if markdown else "simple"
    return tabulate(cells, columns, form, disable_numparse=True, colalign=aligned if cells else None)


def figure(results: Sequence[Result], title: str, memory: str) -> Figure:
    """Draw milliseconds and memory against n: one row per part of the results, one line per model and backend."""
    from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

    from ..plotting import grid, legend, line_style

    parts = [part for part in TITLES if any(part in result["timings"] for result in results)]
    lines = dict.fromkeys((result["model"], result["ran"]) for result in results if result["timings"])
    quantities: dict[str, Callable[[Any], Any]] = {"ms": lambda timing: timing["milliseconds"]["median"],
                                                   memory: lambda timing: timing["mebibytes"]}  # fmt: skip
    panels = [(part, unit) for part in parts for unit in quantities]
    drawn, axes = grid([TITLES[part] for part, _ in panels] or [""], (5, 3.8), columns=2)
    for panel, (part, unit) in zip(axes, panels, strict=False):
        for number, line in enumerate(lines):
            own = [result for result in results if (result["model"], result["ran"]) == line and part in result["timings"]]
            points = sorted((result["tokens"], quantities[unit](result["timings"][part])) for result in own)
            label = " ".join(filter(None, line))
            panel.plot(*zip(*points, strict=True) if points else ([], []), **line_style(number), label=label)
        lengths = sorted({result["tokens"] for result in results})
        panel.set(xscale="log", yscale="log", xlabel="tokens per sequence, n", ylabel=unit)
        panel.set_xticks(lengths, [f"{n:,}" for n in lengths], minor=False)
        panel.xaxis.set_minor_locator(NullLocator())
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter("{x:,g}")
        panel.yaxis.set_minor_formatter(NullFormatter())
        panel.grid(alpha=0.25, linewidth=0.6)
    legend(drawn, axes)
    drawn.suptitle(title, fontsize=9)
    return drawn


def _ratio(timing: Mapping[str, Any]) -> str:
    return "{median:.2f} ({min:.2f}–{max:.2f})".format(**timing["ratio"])


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
