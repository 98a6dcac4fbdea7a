"""List every architecture with its equation, source, properties, backends and number of position parameters.

If an architecture is not named after its positions, they follow after '='. Each also exists with _large and _tiny, and in two
other families: as modernbert_ with _large and _tiny, and as albert_ with _large, _xlarge, _xxlarge and _tiny. Other sums are
trained by --arch roberta_posenc --positions SUM.

    fairseq-posenc schemes                         a table fitted to the terminal
    fairseq-posenc schemes tisa                    everything about one: an architecture, a scheme, or a sum such as absolute+tisa
    fairseq-posenc schemes albert_tisa_xlarge      the same at another size
    fairseq-posenc schemes synth                   those with synth in their name
    fairseq-posenc schemes --property inductive --property translation-invariant --json
    fairseq-posenc schemes absolute+tisa --plot tisa.png
                                                   what it adds to the scores, by query and key and by the offset
    fairseq-posenc schemes --checkpoint checkpoints/tisa --plot trained.pdf
    fairseq-posenc schemes --gallery pictures      a picture of each

The properties are those of Wennberg & Henter 2021, Table 1, taken from the live modules at base size (12 layers, 12 heads,
D = 768, n = 512) unless another is named. Parameter-efficient means fewer parameters than learned absolute positions have. Where
that table or the overview of Dufter et al. 2022 has the opposite of a property, the table with --markdown and the view of one
scheme report it, with the reason.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .. import ownership
from ..commands import option, show
from ..errors import InputError, flag_of
from .properties import PROPERTIES

if TYPE_CHECKING:
    from .listing import Row

MAKER = "schemes"  # in the record of a gallery
FORMATS = (".png", ".pdf", ".svg")
OF_PICTURES = ("checkpoint", "layers", "overwrite")


@dataclass
class Options:
    """The command's flags."""

    name: str | None = option(
        "an architecture, a scheme or a sum, or a part of names", None, names=("name",), nargs="?", metavar="NAME"
    )
    property: list[str] | None = option(
        f"only those with this property: {', '.join(PROPERTIES)}; may be repeated", None, choices=PROPERTIES, metavar="PROPERTY"
    )
    markdown: bool = option("as a table for a Markdown file, with all columns", False)
    json: bool = option("as JSON, with all columns", False)
    plot: Path | None = option("draw one scheme, as .png, .pdf or .svg", None, group="pictures", metavar="FILE")
    gallery: Path | None = option("draw each scheme that is listed, as a PNG", None, group="pictures", metavar="DIR")
    checkpoint: str | None = option("for --plot in place of NAME: a checkpoint, a run's folder or a Hugging Face model (default: "
                                    "an untrained layer)", None, group="pictures", metavar="MODEL")  # fmt: skip
    layers: tuple[int, ...] = option("which layers of MODEL to draw, from 1 (default: the first, and of alternating ones each)",
                                     (), group="pictures", minimum=1, metavar="N,N")  # fmt: skip
    length: int = option("tokens of a sequence", 32, group="pictures", minimum=2, maximum=2048, metavar="N")
    heads: int = option("attention heads of the untrained layer", 4, group="pictures", minimum=1, maximum=64, metavar="N")
    overwrite: bool = option("replace the FILE of --plot", False, group="pictures")


def main(options: Options) -> None:
    """Run the command."""
    from ..plotting import require_matplotlib
    from . import listing

    forms = [*(f"--{name}" for name in (*listing.FORMS, "plot", "gallery") if getattr(options, name))]
    if len(forms) > 1:
        raise InputError(f"{forms[0]} and {forms[1]} exclude each other")
    if idle := [name for name in OF_PICTURES if getattr(options, name) and options.plot is None]:
        raise InputError(f"{flag_of(idle[0])} means nothing without --plot")
    if options.plot or options.gallery:
        require_matplotlib()
    if options.plot is not None:
        _check_plot(options.plot, options)
        if options.checkpoint is not None:
            _plot_trained(options.checkpoint, options, options.plot)
            return
    rows = listing.find(options.name, options.property or ())
    if options.plot is not None:
        _plot(rows, options, options.plot)
    elif options.gallery is not None:
        _draw_all(rows, options, options.gallery)
    elif forms:
        show(listing.FORMS[forms[0].removeprefix("--")](rows))
    else:
        show(listing.card(rows[0]) if len(rows) == 1 else listing.as_table(rows))


def _check_plot(path: Path, options: Options) -> None:
    """Refuse a file that cannot be written, and a picture of nothing or of several schemes."""
    if path.suffix not in FORMATS:
        raise InputError(f"--plot {path}: name a file that ends in {', '.join(FORMATS)}")
    if (options.name is None) == (options.checkpoint is None):
        raise InputError("--plot draws one scheme: give NAME or --checkpoint")
    ownership.require_free(path, "--plot", options.overwrite)


def _plot(rows: "Sequence[Row]", options: Options, path: Path) -> None:
    """Draw one untrained scheme."""
    from . import pictures

    if len(rows) > 1:
        positions = ", ".join(row["positions"] for row in rows)
        raise InputError(
            f"--plot draws one scheme, and {options.name} is in the names of {positions}: name one, or use --gallery"
        )
    show(pictures.MEANING.format(n=options.length, origin=pictures.UNTRAINED))
    pictures.write(path, pictures.untrained(rows[0]["positions"], options.length, options.heads), options.length, options.layers)


def _plot_trained(model: str, options: Options, path: Path) -> None:
    """Draw layers of a model."""
    from ..analysis.subjects import read
    from . import pictures

    subject = read(model, None, with_text=False)
    n = subject.fitting_length(options.length)
    show(pictures.MEANING.format(n=n, origin=f"in {subject.label}"))
    pictures.write(path, subject.encoder, n, options.layers)


def _draw_all(rows: "Sequence[Row]", options: Options, folder: Path) -> None:
    """Draw each of these schemes."""
    from . import listing, pictures

    n = options.length
    with ownership.output(folder, MAKER):
        show(pictures.MEANING.format(n=n, origin=pictures.UNTRAINED))
        for row in rows:
            name = re.sub(r"[^+\w]+", "-", listing.scheme_name(row))
            path = ownership.own(folder / f"{name}.png")
            pictures.write(path, pictures.untrained(row["positions"], n, options.heads), n, ())
