"""Measure the masked-LM loss by the length of the sequences and by the position in them.

The text of the data-bin's validation set, with the masks of validation, is cut into sequences of each length, as the checkpoint's
task cuts its samples. So what differs between two lengths is how much context each masked token has, and whether the positions
still mean what they did. At the length of pretraining, the loss of the whole text is the one that fairseq-validate reports.

    fairseq-posenc extrapolate checkpoints/checkpoint_best.pt --data data-bin --lengths 128,256,512,1024 --out longer

OUT gets results.json, results.md, extrapolation.png (needs matplotlib), and a folder per length. The same command again does only
what is not done yet. The options of schemes are flags too, where they leave the parameters as they are, so that RoPE's extensions
can be tried on a model as it is:

    fairseq-posenc extrapolate … --rope-type yarn --rope-factor 4 --rope-original-positions 128 --out longer-yarn
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import ownership
from ..commands import show
from ..errors import InputError, flag_of

if TYPE_CHECKING:
    from fairseq.models import BaseFairseqModel

    from ..models.checkpoint import Checkpoint

COMMAND = "fairseq-posenc extrapolate"
MIN_LENGTH = 16
LENGTHS = (128, 256, 512, 1024, 2048, 4096)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's flags."""
    parser.add_argument("checkpoint", metavar="CHECKPOINT", type=Path, help="a fairseq checkpoint (.pt)")
    parser.add_argument("--data", "--data-bin", required=True, metavar="DATA_BIN", type=Path,
                        help="a data-bin with its vocabulary, whose validation text is read")  # fmt: skip
    parser.add_argument("--lengths", type=_lengths, default=LENGTHS, metavar="N[,N…]", help="tokens per sequence, <s> included, "
                        f"ascending (default: {','.join(map(str, LENGTHS))})")  # fmt: skip
    parser.add_argument("--tokens", type=int, default=1 << 17, metavar="T", help="of the text (default: %(default)s, or all)")
    parser.add_argument("--out", required=True, metavar="DIR", type=Path, help="the folder to write")


def add_scheme_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of all schemes."""
    from ..models.option_set import add_position_flags

    add_position_flags(parser.add_argument_group("positions", "another value than the checkpoint's"))


def main(args: argparse.Namespace) -> None:
    """Run the command.

    Raises:
        InputError, OSError: the checkpoint has no language model's head or does not take such lengths, the data do not fit it
            or are too short, or an option means nothing to its positions.
    """
    import torch

    from ..models.checkpoint import Checkpoint
    from ..models.option_set import position_options
    from ..plotting import require_matplotlib
    from ..runs.grid import Cell, run_grid
    from . import loss_report, losses

    require_matplotlib()  # fails now rather than after the work
    changes = position_options(args)
    checkpoint = Checkpoint(args.checkpoint, args.data)
    model = _model(checkpoint, changes, args.lengths[-1])
    text = losses.read(checkpoint, args.data, args.tokens, args.lengths[-1])
    configuration = {"checkpoint": checkpoint.digest, "text": text.digest, "options": changes}
    cells = [Cell({"length": n}, configuration) for n in args.lengths]
    read = [("CHECKPOINT", args.checkpoint), ("--data", args.data / "dict.txt")]
    with ownership.output(args.out, COMMAND, read):
        model.to("cuda" if torch.cuda.is_available() else "cpu")
        measured = run_grid(
            cells,
            args.out,
            lambda cell, folder, progress: losses.measure(model, text, int(cell.key["length"]), progress),
        )
        found = {
            "checkpoint": {"sha256": checkpoint.digest, "arch": checkpoint.arch, "positions": checkpoint.positions},
            "options": changes,
            "pretrained_on": checkpoint.length,
            "tokens": len(text.tokens),
            "lengths": measured,
        }
        show(loss_report.write(found, args.out))


def _model(checkpoint: Checkpoint, changes: dict[str, Any], longest: int) -> BaseFairseqModel:
    """The checkpoint's model with other options of its positions.

    Raises:
        InputError: an option means nothing to them, or they have fewer positions, or there is no language model.
    """
    import dataclasses

    from ..models.option_set import naming_flags
    from ..models.state import LANGUAGE_MODEL, POSITIONS
    from ..transformer import build_positions

    if f"{LANGUAGE_MODEL}dense.weight" not in checkpoint.state:
        raise InputError(f"{checkpoint.path} has no language model's head, whose loss is measured: name another")
    config = checkpoint.config
    with naming_flags():
        positions = build_positions(dataclasses.replace(config, position_options={**config.position_options, **changes}))
    max_length = positions.max_length or (config.max_positions if config.mask_decoder_steps else None)
    if max_length is not None and longest > max_length:
        what = f"positions {config.positions}" if positions.max_length else "the enhanced mask decoder"
        raise InputError(
            f"--lengths {longest}: {checkpoint.path} learned {max_length} positions and has none beyond ({what}). Name "
            "lengths up to that, make its table longer with fairseq-posenc grow, or use a checkpoint with an inductive scheme."
        )
    given = ", ".join(flag_of(option) for option in changes)
    for name, parameter in positions.named_parameters() if changes else ():
        if parameter.shape != checkpoint.state[f"{POSITIONS}{name}"].shape:
            raise InputError(f"{given}: {checkpoint.path} was trained with another shape of positions.{name}. Leave it out.")
    return checkpoint.build_model(
        **{name: str(value).lower() if isinstance(value, bool) else value for name, value in changes.items()}
    )


def _lengths(text: str) -> tuple[int, ...]:
    try:
        found = tuple(int(number) for number in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of whole numbers: write them as 128,256,512") from None
    if found[0] < MIN_LENGTH:
        raise argparse.ArgumentTypeError(f"{found[0]} is too short: name lengths of at least {MIN_LENGTH} tokens")
    if any(after <= before for before, after in pairwise(found)):
        raise argparse.ArgumentTypeError(f"{text} is not ascending: name each length once, the shortest first")
    return found
