"""List every architecture with its equation, source, properties, backends and number of position parameters.

If an architecture is not named after its positions, they follow after '='. Each also exists with _large and _tiny, and of
ALBERT's family as albert_ with _large, _xlarge, _xxlarge and _tiny; other sums are trained by --arch roberta_posenc
--positions SUM.

    fairseq-posenc schemes                         a table fitted to the terminal
    fairseq-posenc schemes tisa                    everything about one: an architecture, a scheme, or a sum such as absolute+tisa
    fairseq-posenc schemes albert_tisa_xlarge      the same at another size
    fairseq-posenc schemes synth                   those with synth in their name
    fairseq-posenc schemes --inductive --property translation-invariant --csv

The properties are those of Wennberg & Henter 2021, Table 1, taken from the live modules at base size (12 layers, 12 heads,
D = 768, n = 512) unless another is named. Parameter-efficient means fewer parameters than learned absolute positions have. Where
that table or the overview of Dufter et al. 2022 has the opposite of a property, the table with --markdown and the view of one
scheme report it, with the reason.
"""

import argparse

from ..commands import show
from .properties import PROPERTIES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's flags."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="everything about this one, or all with it in their name")
    parser.add_argument("--property", dest="properties", action="append", default=[], choices=PROPERTIES, metavar="PROPERTY",
                        help=f"only those with this property: {', '.join(PROPERTIES)}; may be repeated")  # fmt: skip
    parser.add_argument("--inductive", dest="properties", action="append_const", const="inductive",
                        help="only those that take any length: --property inductive")  # fmt: skip
    form = parser.add_mutually_exclusive_group()
    for name, what in (("markdown", "as a table for a Markdown file"), ("csv", "as comma-separated values"), ("json", "as JSON")):
        form.add_argument(f"--{name}", dest="form", action="store_const", const=name, help=f"{what}, with all columns")


def main(args: argparse.Namespace) -> None:
    """Run the command."""
    from . import listing

    found = listing.find(args.name, args.properties)
    if args.form is None and len(found) == 1:
        show(listing.card(found[0]))
    else:
        show(listing.FORMS[args.form](found))
