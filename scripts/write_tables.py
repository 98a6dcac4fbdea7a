"""Rewrites the tables in README.md, docs/schemes.md and FIDELITY.md from the live modules and the committed runs of tasks.

A test holds them to it.
"""

from pathlib import Path

from tabulate import tabulate

from fairseq_posenc.catalogue.listing import COLUMNS, as_markdown, find
from fairseq_posenc.catalogue.parameters import COSTS, costs
from fairseq_posenc.compare.order_report import recorded, updates_needed
from fairseq_posenc.compare.order_settings import PAPERS

ROOT = Path(__file__).parents[1]


def order_task() -> str:
    """Return how soon each scheme learned the task ``order``, and the accuracy of those that did not."""
    budget = PAPERS["order"].updates
    names: dict[int, list[str]] = {}
    runs = [run for run in recorded(ROOT / "examples/compare/results/tasks") if run["task"] == "order" and run["seed"] == 1]
    for run in sorted(runs, key=lambda run: (-run["within"], run["scheme"])):
        needed = updates_needed(run)
        name = run["scheme"] if needed else f"{run['scheme']} {run['within']:.2f}"
        names.setdefault(needed or budget + 1, []).append(name)
    rows = [
        (f"{needed:,}" if needed <= budget else f"more than {budget:,}", ", ".join(sorted(of) if needed <= budget else of))
        for needed, of in sorted(names.items())
    ]
    return tabulate(rows, ("updates", "architectures"), "github", disable_numparse=True)


TABLES = {
    "README.md": {"schemes": lambda: as_markdown(find(), ("architecture", "positions", "equation", "parameters"))},
    "docs/schemes.md": {
        "schemes": lambda: as_markdown(find(), COLUMNS),
        "costs": lambda: tabulate(costs(512), COSTS, "github", intfmt=",", floatfmt=".3f"),
    },
    "fairseq_posenc/schemes/FIDELITY.md": {"order task": order_task},
}


def renewed(file: str) -> str:
    """Return the text of a file with new tables."""
    text = (ROOT / file).read_text(encoding="utf-8")
    for name, table in TABLES[file].items():
        start, end = f"<!-- {name}: written by `python scripts/write_tables.py` -->\n", f"<!-- /{name} -->\n"
        before, rest = text.split(start)
        text = f"{before}{start}\n{table()}\n\n{end}{rest.split(end)[1]}"
    return text


if __name__ == "__main__":
    for file in TABLES:
        (ROOT / file).write_text(renewed(file), encoding="utf-8")
