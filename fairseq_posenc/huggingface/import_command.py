"""Turn RoBERTa, BERT, ALBERT or DeBERTa into a fairseq checkpoint, with its own positions or others, to be trained further.

The source is a folder or name of a transformers model (RoBERTa, BERT, ALBERT, DeBERTa v2 or v3, ELECTRA without its heads, an
export of this project), or a folder with the model.pt and dict.txt that fairseq released. dict.txt and the tokenizer's files are
written to the checkpoint's folder.

    fairseq-posenc import-hf FacebookAI/roberta-base --positions absolute+tisa --out roberta-tisa/model.pt
    fairseq-posenc import-hf roberta.base --positions tisa --tisa-kernels 3 --out roberta-tisa/model.pt

The source and its equivalent here are run on the same tokens and must agree; no code of the source's folder is run. The options
of schemes are flags too, as for fairseq-train: 'fairseq-posenc schemes tisa' lists those of TISA.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's flags."""
    parser.add_argument("source", metavar="SOURCE", help="a folder, or the name of a transformers model")
    parser.add_argument("--out", required=True, metavar="CHECKPOINT", type=Path, help="the file to write (.pt)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="seed for new parameters (default: %(default)s)")
    parser.add_argument("--tolerance", type=float, default=1e-4, metavar="D",
                        help="greatest allowed difference of an output if the positions stay (default: %(default)s)")  # fmt: skip
    parser.add_argument("--overwrite", action="store_true", help="replace an existing checkpoint")
    group = parser.add_argument_group("positions", "the source's own, with its options, if nothing is given")
    group.add_argument("--positions", metavar="EXPRESSION", help="a scheme, or a sum of them such as absolute+tisa")
    group.add_argument(
        "--max-positions", type=int, metavar="N", help="length of schemes that learn each position (default: the source's)"
    )


def add_scheme_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of all schemes."""
    from ..models.option_set import add_position_flags

    add_position_flags(parser)


def main(args: argparse.Namespace) -> None:
    """Run the command."""
    from ..models.option_set import naming_flags, position_options
    from .importing import read_encoder, require_free, write_converted
    from .new_positions import convert

    options = position_options(args)
    require_free(args.source, args.out, args.overwrite)
    source = read_encoder(args.source)
    positions = args.positions or source.config.positions
    with naming_flags():
        converted = convert(source.config, source.state, positions, options, args.max_positions, args.seed)
    write_converted(args.source, source, converted, args.out, args.seed, args.tolerance)
