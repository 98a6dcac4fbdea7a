"""Every architecture with its equation, source, properties, backends and number of position parameters.

The properties are those of Wennberg & Henter 2021, Table 1, asked of the live modules at base size (12 layers, 12 heads,
D = 768, n = 512). Parameter-efficient means fewer parameters than the n·D of learned absolute positions.
"""

from __future__ import annotations

import argparse

from tabulate import tabulate

from ..architectures import EXPRESSIONS
from ..attention import BACKENDS
from ..schemes import Positions
from .build import count, positions_of

PROPERTIES = ("inductive", "data-driven", "parameter-efficient", "translation-invariant", "parallelisable", "interpretable")
COLUMNS = ("architecture", "positions", "equation", "source", *PROPERTIES, "backends", "parameters")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--markdown", action="store_true", help="as a table for a Markdown file")


def main(args: argparse.Namespace) -> None:
    print(table("github" if args.markdown else "simple"))


def table(format_: str) -> str:
    """The whole table in one of tabulate's formats."""
    rows = [describe(f"roberta_{name}", positions_of(expression)) for name, expression in EXPRESSIONS.items()]
    return tabulate([[row[column] for column in COLUMNS] for row in rows], COLUMNS, format_, disable_numparse=True)


def describe(architecture: str, positions: Positions) -> dict[str, str]:
    """One row: column -> text."""
    schemes, settings = positions.schemes, positions.settings
    parameters = count(positions)
    holds = {
        "inductive": positions.inductive,
        "data-driven": any(scheme.data_driven for scheme in schemes),
        "parameter-efficient": parameters < settings.max_positions * settings.dim,
        "translation-invariant": all(scheme.translation_invariant for scheme in schemes),
        "parallelisable": all(scheme.parallelisable for scheme in schemes),
        "interpretable": all(scheme.interpretable for scheme in schemes),
    }
    return {
        "architecture": architecture,
        "positions": positions.expression,
        "equation": "; ".join(scheme.equation for scheme in schemes).replace("|", "∣"),
        "source": "; ".join(dict.fromkeys(scheme.source for scheme in schemes)),
        **{name: "✓" if value else "–" for name, value in holds.items()},
        "backends": " ".join(name for name, backend in BACKENDS.items() if backend.unsupported(positions.probe()) is None),
        "parameters": f"{parameters:,}",
    }
