"""Rewrites the tables in README.md, docs/schemes.md and FIDELITY.md from the live modules and docs/order_task.json.

A test holds them to it.
"""

import json
import runpy
from pathlib import Path

from tabulate import tabulate

from fairseq_posenc.catalogue.listing import COLUMNS, as_markdown, find
from fairseq_posenc.catalogue.parameters import COSTS, costs

ROOT = Path(__file__).parents[1]


def order_task() -> str:
    """Return how soon each architecture learned the order task, as a table."""
    table = runpy.run_path(str(ROOT / "scripts" / "order_task.py"))["table"]
    return table(json.loads((ROOT / "docs" / "order_task.json").read_text(encoding="utf-8")))


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
