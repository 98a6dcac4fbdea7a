"""Make a checkpoint with learned positions longer, to train on from there.

The tables of position vectors get N rows instead of n, written to a new checkpoint without the optimizer's state:

    fairseq-posenc grow checkpoints/checkpoint_best.pt --max-positions 4096 --out long/model.pt

--method repeat begins again after the last vector, row i being row i mod n, as Longformer began from RoBERTa (Beltagy et al.
2020, section 5): neighbouring rows are alike, except where a copy ends. --method interpolate stretches the table, row i lying at
i (n-1) / (N-1) on the line between two old ones: no seams, but neighbours are more alike. Either way the model needs training.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base import ownership
from ...base.commands import checkpoint_file, option, show
from ...base.errors import InputError, flag_of, flag_value

if TYPE_CHECKING:
    from torch import Tensor

    from ...plugin.checkpoint.checkpoint import Checkpoint


@dataclass(kw_only=True)
class Options:
    """The flags of ``fairseq-posenc grow``, with their defaults."""

    checkpoint: Path = option(
        "a fairseq checkpoint (.pt), or a run's folder", names=("checkpoint",), parse=checkpoint_file, metavar="CHECKPOINT"
    )
    max_positions: int = option("rows of the new tables", metavar="N")
    method: str = option("how the new rows are made", "repeat", choices=("repeat", "interpolate"))
    out: Path = option("the checkpoint to write (.pt)", metavar="FILE")
    overwrite: bool = option("replace an existing file", False)


def main(options: Options) -> None:
    """Write the longer checkpoint, and print how training continues from it.

    Raises:
        InputError, OSError: a flag, or a file that it names, cannot be used.
    """
    from ...base.files import report_full_disk
    from ...plugin.checkpoint.checkpoint import Checkpoint
    from ...plugin.checkpoint.trust import user_dir

    out, n = options.out, options.max_positions
    ownership.require_free(out, "--out", options.overwrite, [("CHECKPOINT", options.checkpoint)])
    checkpoint = Checkpoint(options.checkpoint)
    state, kept = grown(checkpoint, n, options.method)
    out.parent.mkdir(parents=True, exist_ok=True)
    with report_full_disk(out):
        checkpoint.write(out, state, max_positions=n, **kept)
    show(f"{out}: {n} positions. Continue from it with")
    options_of_run = {"positions": checkpoint.positions, "max_positions": n, "tokens_per_sample": n, **kept}
    flags = [part for name, value in options_of_run.items() for part in (flag_of(name), flag_value(value))]
    flags = [*user_dir(), "--arch", checkpoint.arch, "--finetune-from-model", str(out), *flags]
    show(f"  fairseq-train … {shlex.join(flags)}")


def grown(checkpoint: Checkpoint, n: int, method: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the parameters of a checkpoint, with ``n`` rows in its tables of position vectors, and options that must be given.

    These are the options of which the checkpoint has other values than the defaults with so many positions.

    Raises:
        InputError: the model takes any length, or learns something else per position, or has as many rows already.
    """
    from ...core.transformer import PositionSampling, build_positions
    from ...plugin.checkpoint.state_dict import MASK_POSITIONS, POSITIONS
    from ...plugin.options.option_set import field_errors_as_flags

    path, config = checkpoint.path, checkpoint.config
    if checkpoint.is_stock:
        raise InputError(f"{path} is fairseq's own RoBERTa: turn it into one of this package's first, with import-hf")
    positions = build_positions(config)
    if positions.inductive and MASK_POSITIONS not in checkpoint.state:
        raise InputError(f"{path}: positions {config.positions} take any length, so there is no table to make longer")
    for scheme in positions.schemes:
        if not scheme.takes_any_length and not scheme.position_vectors:
            raise InputError(
                f"{path}: {scheme.name} learns no vector per position that could be repeated or interpolated. Train it at the "
                "new length, or, where it learns offsets, with --max-relative-position, which lets it take any length."
            )
    if n <= config.max_positions:
        raise InputError(f"--max-positions {n}: {path} has {config.max_positions} positions already. Name a larger number.")
    sampling = PositionSampling.parse(config.position_sampling, config.position_evaluation)
    if sampling is not None and sampling.kind == "random" and n > sampling.numbers[0]:
        raise InputError(f"--max-positions {n}: {path} has --position-sampling {config.position_sampling}: train with a larger L")
    with field_errors_as_flags():
        defaults = build_positions(replace(config, max_positions=n, position_options={})).effective_options
        kept = {name: value for name, value in positions.effective_options.items() if defaults.get(name) != value}
        longer = build_positions(replace(config, max_positions=n, position_options={**config.position_options, **kept}))
    state = dict(checkpoint.state)
    if diverged := next((name for name, value in state.items() if not value.isfinite().all()), None):
        raise InputError(f"{path}: its {diverged} is not finite (NaN or infinity): name a checkpoint from before it diverged")
    vectors = {path: getattr(part, "position_vectors", ()) for path, part in positions.named_modules()}  # by scheme
    names = [f"{POSITIONS}{path}.{name}" for path, tables in vectors.items() for name in tables]
    for name in (*names, *({MASK_POSITIONS} & state.keys())):
        state[name] = lengthened(state[name], n, method)
    for name, parameter in longer.named_parameters():
        if state[POSITIONS + name].shape != parameter.shape:
            raise InputError(f"{path}: positions.{name} depends on --max-positions too, and is no table of positions")
    return state, kept


def lengthened(table: Tensor, n: int, method: str) -> Tensor:
    """Return a table with n > m rows: (…, m, width) -> (…, n, width)."""
    import torch

    if method == "repeat":
        return table[..., torch.arange(n) % table.shape[-2], :]
    columns = table.double().mT
    lines = torch.nn.functional.interpolate(columns.flatten(0, -2)[None], n, mode="linear", align_corners=True)
    return lines.view(*columns.shape[:-1], n).mT.to(table.dtype)
