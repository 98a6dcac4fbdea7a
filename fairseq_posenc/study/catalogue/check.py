"""Check what a scheme claims, by small models of random weights: for whoever develops an encoding.

    fairseq-posenc check tisa
    fairseq-posenc --user-dir my_schemes check decay 'decay + rope(fraction=0.5)'

Each line of the table is a property. "no" comes with the first counter-example, and "–" with the reason why the scheme need not
have the property. The exit status is 1 if a property does not hold. A scheme that has a method ``reading(layer, i, j)``, which
returns the bias b_ij of every head, (H,), by its equation for one pair of positions, is compared with it. docs/add_a_scheme.md
tells how a scheme is compared with its whole equation.
"""

import sys
from dataclasses import dataclass

from tabulate import tabulate

from ...base.commands import option, show


@dataclass
class Options:
    """The flags of ``fairseq-posenc check``."""

    schemes: list[str] = option("schemes, or sums of them", names=("schemes",), nargs="+", metavar="SCHEME")


def main(options: Options) -> None:
    """Print the table of each scheme, and end with status 1 if a property does not hold."""
    from .checks import Subject, run

    failed = False
    for expression in options.schemes:
        rows = list(run(Subject(expression, {})))
        failed |= any(holds is False for _, holds, _ in rows)
        words = {True: "yes", False: "no", None: "–"}
        table = tabulate([(name, words[holds], text) for name, holds, text in rows], ("property", "holds", ""))
        show(f"{expression}\n\n{table}\n")
    if failed:
        sys.exit(1)
