"""List the schemes by families: the expression to type, its parameters and equation, and a line of advice.

A NAME is a scheme, a sum such as absolute+tisa, an architecture, a part of such names, or a model: a checkpoint, a run's folder,
or a model of transformers as FOLDER/ or OWNER/NAME.

    fairseq-posenc schemes                         all
    fairseq-posenc schemes tisa                    everything about one, with its options
    fairseq-posenc schemes albert_tisa_xlarge      the same at another size
    fairseq-posenc schemes synth                   those with synth in their name
    fairseq-posenc schemes --property inductive --property translation-invariant --json
    fairseq-posenc schemes shaw t5 --plot both.png
                                                   what they add to the scores, by query and key and by the offset
    fairseq-posenc schemes checkpoints/tisa tisa --plot trained.pdf
    fairseq-posenc schemes --gallery pictures      a picture of each

An expression is trained by --arch roberta_posenc --positions EXPRESSION, and where it is a scheme's name, also by --arch
roberta_NAME; other architectures follow the advice. Each also exists with _large and _tiny, and in two other families: as
modernbert_ with _large and _tiny, and as albert_ with _large, _xlarge, _xxlarge and _tiny.

The properties are those of Wennberg & Henter 2021, Table 1, taken from the live modules at base size (12 layers, 12 heads,
D = 768, n = 512) unless another is named. Parameter-efficient means fewer parameters than learned absolute positions have.
docs/schemes.md names the properties of which a paper has the opposite, and why.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...base import ownership
from ...base.commands import option, show
from ...base.errors import InputError, flag_of, require_extras

if TYPE_CHECKING:
    from .listing import Row

PROPERTIES = ("inductive", "data-driven", "parameter-efficient", "translation-invariant", "parallelisable", "interpretable")
MAKER = "schemes"  # in the record of a gallery
FORMATS = (".png", ".pdf", ".svg")
OF_PICTURES = ("layers", "overwrite")
AT_MOST = 6


@dataclass
class Options:
    """The command's flags."""

    names: list[str] = option("schemes, sums, architectures, parts of names, or models", (), names=("names",), nargs="*",
                              metavar="NAME")  # fmt: skip
    property: list[str] | None = option(
        f"only those with this property: {', '.join(PROPERTIES)}; may be repeated", None, choices=PROPERTIES, metavar="PROPERTY"
    )
    markdown: bool = option("as a table for a Markdown file, with all columns", False)
    json: bool = option("as JSON, with all columns", False)
    plot: Path | None = option(
        "draw these schemes, or models, one below the other, as .png, .pdf or .svg", None, group="pictures", metavar="FILE"
    )
    gallery: Path | None = option("draw each scheme that is listed, as a PNG", None, group="pictures", metavar="DIR")
    layers: tuple[int, ...] = option("which layers of a model to draw, from 1 (default: the first, and of alternating ones each)",
                                     (), group="pictures", minimum=1, metavar="N,N")  # fmt: skip
    length: int = option("tokens of a sequence", 32, group="pictures", minimum=2, maximum=2048, metavar="N")
    heads: int = option("attention heads of the untrained layer", 4, group="pictures", minimum=1, maximum=64, metavar="N")
    overwrite: bool = option("replace the FILE of --plot", False, group="pictures")


def main(options: Options) -> None:
    """Run the command."""
    from . import listing

    forms = [*(f"--{name}" for name in (*listing.FORMS, "plot", "gallery") if getattr(options, name))]
    if len(forms) > 1:
        raise InputError(f"{forms[0]} and {forms[1]} exclude each other")
    if idle := [name for name in OF_PICTURES if getattr(options, name) and options.plot is None]:
        raise InputError(f"{flag_of(idle[0])} means nothing without --plot")
    if options.plot or options.gallery:
        require_extras("plots")
    models = [name for name in options.names if _is_model(name)]
    names = [name for name in options.names if name not in models]
    if options.plot is not None:
        _check_plot(options.plot, options)
    rows = listing.find(names, options.property or ()) if names or not models else []
    if options.plot is not None:
        _plot(rows, models, options, options.plot)
        return
    if models:
        from ..analyze.models import read

        rows += [listing.describe("", read(model, None, with_text=False).encoder.positions) for model in models]
    if options.gallery is not None:
        _draw_all(rows, options, options.gallery)
    elif forms:
        show(listing.FORMS[forms[0].removeprefix("--")](rows))
    else:
        show(listing.card(rows[0]) if len(rows) == 1 else listing.as_table(rows))


def _is_model(name: str) -> bool:
    """Return whether a name is that of a model's file or folder, or on the Hugging Face hub."""
    from .listing import is_scheme

    return not is_scheme(name) and ("/" in name or Path(name).exists())


def _check_plot(path: Path, options: Options) -> None:
    """Refuse a file that cannot be written, and a picture of nothing."""
    if path.suffix not in FORMATS:
        raise InputError(f"--plot {path}: name a file that ends in {', '.join(FORMATS)}")
    if not options.names:
        raise InputError("--plot draws the schemes or models that are named: give a NAME")
    ownership.require_free(path, "--plot", options.overwrite)


def _plot(rows: "Sequence[Row]", models: Sequence[str], options: Options, path: Path) -> None:
    """Draw untrained schemes and models, one below the other."""
    from . import pictures

    if len(rows) + len(models) > AT_MOST:
        raise InputError(f"--plot draws {AT_MOST} at most, and these are {len(rows) + len(models)}: use --gallery")
    read_models = []
    if models:
        from ..analyze.models import read

        read_models = [read(model, None, with_text=False) for model in models]
    n = min([options.length, *(model.fitting_length(options.length) for model in read_models)])
    encoders = {row["positions"]: pictures.untrained(row["positions"], n, options.heads) for row in rows}
    origins = [*([pictures.UNTRAINED] if rows else []), *(f"in {name}" for name in models)]
    show(pictures.MEANING.format(n=n, origin=", and ".join(origins)))
    encoders |= {name: model.encoder for name, model in zip(models, read_models, strict=True)}
    pictures.write(path, encoders, n, options.layers)


def _draw_all(rows: "Sequence[Row]", options: Options, folder: Path) -> None:
    """Draw each of these schemes."""
    from . import listing, pictures

    n = options.length
    with ownership.output(folder, MAKER):
        show(pictures.MEANING.format(n=n, origin=pictures.UNTRAINED))
        for row in rows:
            name = re.sub(r"[^+\w]+", "-", listing.scheme_name(row))
            path = ownership.own(folder / f"{name}.png")
            pictures.write(path, {row["positions"]: pictures.untrained(row["positions"], n, options.heads)}, n, ())
