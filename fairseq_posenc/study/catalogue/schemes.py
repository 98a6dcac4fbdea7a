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

An expression is trained by --arch roberta_posenc --positions EXPRESSION, and where it is a scheme's name, also by --arch
roberta_NAME; other architectures follow the advice. Each also exists with _large and _tiny, and in other families: as
modernbert_ with _large and _tiny, as albert_ with _large, _xlarge, _xxlarge and _tiny, and, with a causal form, as transformer_
and transformer_lm_.

The properties are those of Wennberg & Henter 2021, Table 1, taken from the live modules at base size (12 layers, 12 heads,
D = 768, n = 512) unless another is named. Parameter-efficient means fewer parameters than learned absolute positions have.
docs/schemes.md names the properties of which a paper has the opposite, and why.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...base import ownership
from ...base.commands import option, show
from ...base.errors import InputError, require_extras
from . import PROPERTIES

if TYPE_CHECKING:
    from ...core.transformer import Encoder
    from .listing import Row

FORMATS = (".png", ".pdf", ".svg")


@dataclass
class Options:
    """The flags of ``fairseq-posenc schemes``, with their defaults."""

    names: list[str] = option("schemes, sums, architectures, parts of names, or models", (), names=("names",), nargs="*",
                              metavar="NAME")  # fmt: skip
    property: list[str] | None = option(
        f"only those with this property: {', '.join(PROPERTIES)}; may be repeated", None, choices=PROPERTIES, metavar="PROPERTY"
    )
    json: bool = option("as JSON, with all columns", False)
    plot: Path | None = option(
        "draw these schemes, or models, one below the other, as .png, .pdf or .svg", None, group="pictures", metavar="FILE"
    )
    layers: tuple[int, ...] = option("which layers of a model to draw, from 1 (default: the first, and of alternating ones each)",
                                     (), group="pictures", minimum=1, metavar="N,N")  # fmt: skip
    length: int = option("tokens of a sequence", 32, group="pictures", minimum=2, maximum=2048, metavar="N")
    heads: int = option("attention heads of the untrained layer", 4, group="pictures", minimum=1, maximum=64, metavar="N")
    overwrite: bool = option("replace the FILE of --plot", False, group="pictures")


def main(options: Options) -> None:
    """Print the rows of schemes and models in the form that the flags name, or draw them.

    Raises:
        InputError, OSError: a flag, or a file that it names, cannot be used.
    """
    from . import listing

    if options.plot is not None:
        require_extras("plots")
        if options.plot.suffix not in FORMATS:
            raise InputError(f"--plot {options.plot}: name a file that ends in {', '.join(FORMATS)}")
        ownership.require_free(options.plot, "--plot", options.overwrite)  # before anything is read
    names = [name for name in options.names if listing.is_scheme(name) or not ("/" in name or Path(name).exists())]
    encoders = {}
    if len(names) < len(options.names):
        from ..analyze.models import read

        encoders = {name: read(name, None, with_text=False).encoder for name in options.names if name not in names}
    rows = listing.find(names, options.property or ()) if names or not encoders else []
    if options.plot is not None:
        _plot(options.plot, rows, encoders, options)
        return
    of_models = [listing.describe("", encoder.positions) for encoder in encoders.values()]
    rows += [row for row in of_models if all(row[name] for name in options.property or ())]
    if options.json:
        show(json.dumps(rows, indent=1, ensure_ascii=False))
    else:
        show(listing.card(rows[0]) if len(rows) == 1 else listing.as_table(rows))


def _plot(path: Path, rows: Sequence[Row], models: Mapping[str, Encoder], options: Options) -> None:
    """Draw untrained schemes and models, one below the other."""
    from . import pictures

    n = min([options.length, *(encoder.max_length or options.length for encoder in models.values())])
    untrained = {row["positions"]: pictures.untrained(row["positions"], n, options.heads) for row in rows}
    origins = [*([pictures.UNTRAINED] if rows else []), *(f"in {name}" for name in models)]
    show(pictures.MEANING.format(n=n, origin=", and ".join(origins)))
    pictures.write(path, {**untrained, **models}, n, options.layers)
