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

from dataclasses import dataclass

from ..commands import option, show
from ..errors import InputError
from .properties import PROPERTIES


@dataclass
class Options:
    """The command's flags."""

    name: str | None = option(
        "an architecture, a scheme or a sum, or a part of names", None, names=("name",), nargs="?", metavar="NAME"
    )
    property: list[str] | None = option(
        f"only those with this property: {', '.join(PROPERTIES)}; may be repeated", None, choices=PROPERTIES, metavar="PROPERTY"
    )
    inductive: bool = option("only those that take any length: --property inductive", False)
    markdown: bool = option("as a table for a Markdown file, with all columns", False)
    csv: bool = option("as comma-separated values, with all columns", False)
    json: bool = option("as JSON, with all columns", False)


def main(options: Options) -> None:
    """Run the command."""
    from . import listing

    forms = [name for name in listing.FORMS if getattr(options, name)]
    if len(forms) > 1:
        raise InputError(f"--{forms[0]} and --{forms[1]} exclude each other")
    rows = listing.find(options.name, [*(options.property or ()), *(["inductive"] if options.inductive else [])])
    if forms:
        show(listing.FORMS[forms[0]](rows))
    else:
        show(listing.card(rows[0]) if len(rows) == 1 else listing.as_table(rows))
