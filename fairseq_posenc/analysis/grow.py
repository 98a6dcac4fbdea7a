"""Make a checkpoint with learned positions longer, to train on from there.

The tables of position vectors get N rows instead of n, written to a new checkpoint without the optimizer's state:

    fairseq-posenc grow checkpoints/checkpoint_best.pt --max-positions 4096 --out long/model.pt

--method repeat begins again after the last vector, row i being row i mod n, as Longformer began from RoBERTa (Beltagy et al.
2020, section 5): neighbours stay neighbours, except where a copy ends. --method interpolate stretches the table, row i standing
at i (n-1) / (N-1) on the line between two old ones: no seams, but neighbours are more alike. Either way the model needs training.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from .. import ownership
from ..commands import show
from ..errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from ..models.checkpoint import Checkpoint
    from ..schemes import Scheme

METHODS = ("repeat", "interpolate")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's flags."""
    parser.add_argument("checkpoint", metavar="CHECKPOINT", type=Path, help="a fairseq checkpoint (.pt)")
    parser.add_argument("--max-positions", required=True, metavar="N", type=int, help="rows of the new tables")
    parser.add_argument("--method", choices=METHODS, default=METHODS[0], help="what the new rows are (default: %(default)s)")
    parser.add_argument("--out", required=True, metavar="FILE", type=Path, help="the checkpoint to write (.pt)")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing file")


def main(args: argparse.Namespace) -> None:
    """Run the command.

    Raises:
        InputError, OSError: the checkpoint has no such tables or cannot be read, or the file cannot be written.
    """
    from ..files import full_disk_named
    from ..models.checkpoint import Checkpoint

    ownership.require_free(args.out, "--out", args.overwrite, [("CHECKPOINT", args.checkpoint)])
    n = args.max_positions
    checkpoint = Checkpoint(args.checkpoint)
    state = grown(checkpoint, n, args.method)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with full_disk_named(args.out):
        checkpoint.write(args.out, state, max_positions=n)
    show(f"{args.out}: {n} positions. Continue from it with")
    show(
        f"  fairseq-train … --arch {checkpoint.arch} --finetune-from-model {args.out} --max-positions {n} --tokens-per-sample {n}"
    )


def grown(checkpoint: Checkpoint, n: int, method: str) -> dict[str, Tensor]:
    """The parameters of a checkpoint whose tables of position vectors have ``n`` rows.

    Raises:
        InputError: the model takes any length, or learns something else per position, or has as many rows already.
    """
    from ..models.option_set import naming_flags
    from ..models.state import MASK_POSITIONS, POSITIONS
    from ..transformer import build_positions

    path = checkpoint.path
    if checkpoint.is_stock:
        raise InputError(f"{path} is fairseq's own RoBERTa: turn it into one of this package's first, with import-hf")
    config = checkpoint.config
    positions = build_positions(config)
    if positions.inductive and MASK_POSITIONS not in checkpoint.state:
        raise InputError(f"{path}: positions {config.positions} take any length as they are, so there is nothing to make longer")
    for scheme in positions.schemes:
        _require_vectors(scheme, path)
    before = config.max_positions
    if n <= before:
        raise InputError(f"--max-positions {n}: {path} has {before} positions already. Name a greater number.")
    with naming_flags():
        longer = build_positions(dataclasses.replace(config, max_positions=n))
    state = dict(checkpoint.state)
    if diverged := next((name for name, value in state.items() if not value.isfinite().all()), None):
        raise InputError(f"{path}: its {diverged} is not finite (NaN or infinity): name a checkpoint from before it diverged")
    names = [f"{POSITIONS}{scheme.name}.{name}" for scheme in positions.schemes for name in scheme.position_vectors]
    for name in (*names, *({MASK_POSITIONS} & state.keys())):
        state[name] = lengthened(state[name], n, method)
    for name, parameter in longer.named_parameters():
        if state[POSITIONS + name].shape != parameter.shape:
            raise InputError(
                f"{path}: positions.{name} depends on --max-positions too, and is no table of positions. Train it with "
                "--max-relative-position, which makes it the same at every length."
            )
    return state


def lengthened(table: Tensor, n: int, method: str) -> Tensor:
    """(…, m, width) -> (…, n, width), n > m."""
    import torch

    m = table.shape[-2]
    if method == "repeat":
        return table[..., torch.arange(n) % m, :]
    places = torch.linspace(0, m - 1, n, dtype=torch.float64)
    left = places.long().clamp(max=m - 2) if m > 1 else places.long()
    right = (left + 1).clamp(max=m - 1)
    share = (places - left)[:, None]
    return ((1 - share) * table[..., left, :] + share * table[..., right, :]).to(table.dtype)


def _require_vectors(scheme: Scheme, path: Path) -> None:
    if not scheme.takes_any_length and not scheme.position_vectors:
        raise InputError(
            f"{path}: {scheme.name} learns no vector per position that could be repeated or interpolated. Train it at the new "
            "length, or, where it learns offsets, with --max-relative-position, which lets it take any length."
        )
