"""Export a checkpoint to Hugging Face: config, safetensors weights, tokenizer, modelling code and model card.

The folder loads with transformers 4.57 and later, 5 included, where neither fairseq nor this package is installed:

    fairseq-posenc export-hf checkpoints/checkpoint_best.pt --data data-bin --out my-model
    python -c 'from transformers import pipeline
    print(pipeline("fill-mask", "my-model", trust_remote_code=True)("The <mask> is blue."))'

Models with absolute positions become transformers' own RoBERTa or ALBERT, and models with the positions of DeBERTa v2 and v3
become its DeBERTa v2; these need no modelling code. Before the folder gets its name, both models are run on text of the data-bin.
If their outputs differ by more than --tolerance, nothing is exported.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's flags."""
    parser.add_argument("checkpoint", metavar="CHECKPOINT", type=Path, help="a fairseq checkpoint (.pt)")
    parser.add_argument("--data", "--data-bin", required=True, metavar="DATA_BIN", type=Path,
                        help="the data-bin it was pretrained on, with its dictionary and tokenizer")  # fmt: skip
    parser.add_argument("--out", required=True, metavar="DIR", type=Path, help="the folder to write")
    parser.add_argument("--head", metavar="NAME", help="the classification head to export, or lm for the "
                        "language model's (default: the only one, classification first)")  # fmt: skip
    parser.add_argument("--tolerance", type=float, default=1e-4, metavar="D",
                        help="greatest allowed difference of an output (default: %(default)s)")  # fmt: skip
    parser.add_argument("--language", metavar="CODES", help="the data's languages for the model card, such as en,de")
    parser.add_argument("--license", metavar="NAME", help="the model's licence for the model card, such as mit or cc-by-4.0")
    parser.add_argument("--no-tokenizer", action="store_true", help="export no tokenizer")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing export")


def main(args: argparse.Namespace) -> None:
    """Run the command."""
    from .export import export

    options = (args.head, args.tolerance, not args.no_tokenizer, args.overwrite, args.language, args.license)
    export(args.checkpoint, args.data, args.out, *options)
