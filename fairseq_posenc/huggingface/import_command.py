"""Turn RoBERTa, BERT, ModernBERT and others into a fairseq checkpoint, with their own positions or others, to be trained further.

The source is a folder or name of a transformers model (RoBERTa, BERT, ALBERT, MPNet, DeBERTa v2 or v3, ModernBERT, NomicBERT,
EuroBERT, GTE, Jina Embeddings v3, RoFormer, ESM, ELECTRA and UltraBERT without their heads, an export of this project), or a
folder with the model.pt and dict.txt that fairseq released. dict.txt and the tokenizer's files go to the checkpoint's folder.

    fairseq-posenc import-hf FacebookAI/roberta-base --positions absolute+tisa --out roberta-tisa/model.pt
    fairseq-posenc import-hf roberta.base --positions tisa --tisa-kernels 3 --out roberta-tisa/model.pt

The source and its equivalent here are run on the same tokens and must agree; no code of the source's folder is run. The options
of schemes are flags too, as for fairseq-train: 'fairseq-posenc schemes tisa' lists those of TISA.
"""

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path

from ..base.commands import option
from . import TOLERANCE


@dataclass(kw_only=True)
class Options:
    """The flags of ``import-hf``, but for the options of schemes, which ``flags`` has."""

    source: str = option("a folder, or the name of a transformers model", names=("source",), metavar="SOURCE")
    out: Path = option("the file to write (.pt)", metavar="CHECKPOINT")
    seed: int = option("seed for new parameters", 1, metavar="S")
    tolerance: float = option(
        "greatest allowed difference of an output from the source's, with its own positions", TOLERANCE, metavar="D"
    )
    overwrite: bool = option("replace an existing checkpoint", False)
    positions: str | None = option(
        "a scheme, or a sum of them such as absolute+tisa (default: the source's own, with its options)", None,
        metavar="EXPRESSION",
    )  # fmt: skip
    max_positions: int | None = option("length of schemes that learn each position (default: the source's)", None, metavar="N")
    flags: Namespace


def add_scheme_arguments(parser: ArgumentParser) -> None:
    """Declare the options of all schemes."""
    from ..plugin.options.option_set import add_position_flags

    add_position_flags(parser)


def main(options: Options) -> None:
    """Write the checkpoint of a source, and print the next commands; raises InputError or OSError where that is not possible."""
    from ..plugin.options.option_set import field_errors_as_flags, position_options
    from .importing import read_encoder, require_free, write_converted
    from .new_positions import convert

    scheme_options = position_options(options.flags)
    require_free(options.source, options.out, options.overwrite)
    source, _ = read_encoder(options.source, options.tolerance)
    positions = options.positions or source.config.positions
    with field_errors_as_flags():
        converted = convert(source.config, source.state, positions, scheme_options, options.max_positions, options.seed)
    write_converted(options.source, source, converted, options.out, options.overwrite, options.seed, options.tolerance)
