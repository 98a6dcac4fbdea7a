"""Measure the masked-LM loss by the length of the sequences and by the position in them.

The text of the data-bin's validation set, with the masks of validation, is cut into sequences of each length, as the checkpoint's
task cuts its samples. So two lengths differ in how much context each masked token has, and in whether the scheme extrapolates. At
the length of pretraining, the loss of the whole text is the one that fairseq-validate reports.

    fairseq-posenc extrapolate checkpoints/checkpoint_best.pt --data data-bin --lengths 128,256,512,1024 --out longer

OUT gets results.json, results.md, extrapolation.png (needs matplotlib), and a folder per length. The same command again does only
what is not done yet. The options of schemes are flags too, where they leave the parameters as they are, so that RoPE's extensions
can be tried on a trained model:

    fairseq-posenc extrapolate … --rope-type yarn --rope-factor 4 --rope-original-positions 128 --out longer-yarn
"""

from __future__ import annotations

import dataclasses
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base import ownership
from ...base.commands import checkpoint_file, existing, option, show
from ...base.errors import InputError, flag_of, flag_value, require_extras

if TYPE_CHECKING:
    from fairseq.models import BaseFairseqModel

    from ...plugin.models.checkpoint import Checkpoint

COMMAND = "fairseq-posenc extrapolate"


@dataclass(kw_only=True)
class Options:
    """The command's flags, without the options of schemes."""

    checkpoint: Path = option(
        "a fairseq checkpoint (.pt), or a run's folder", names=("checkpoint",), parse=checkpoint_file, metavar="CHECKPOINT"
    )
    data: Path | None = option("a data-bin, whose validation text is read (default: that of the checkpoint's training)", None,
                               names=("--data", "--data-bin"), parse=existing, metavar="DATA_BIN")  # fmt: skip
    lengths: tuple[int, ...] = option("tokens, <s> included", (128, 256, 512, 1024, 2048, 4096), minimum=16, metavar="N[,N…]")
    tokens: int = option("tokens of the text that are read, at most", 1 << 17, metavar="T")
    out: Path = option("the folder to write", metavar="DIR")
    flags: Namespace


def add_scheme_arguments(parser: ArgumentParser) -> None:
    """Declare the options of all schemes."""
    from ...plugin.options.option_set import add_position_flags

    add_position_flags(parser.add_argument_group("positions", "another value than the checkpoint's"))


def main(options: Options) -> None:
    """Run the command."""
    import torch

    from ...plugin.models.checkpoint import Checkpoint
    from ...plugin.options.option_set import position_options
    from ..engine.grid import Cell, run_grid
    from . import losses

    require_extras("plots")
    lengths, changes = sorted(set(options.lengths)), position_options(options.flags)
    checkpoint = Checkpoint(options.checkpoint, options.data)
    model = _model(checkpoint, changes, lengths[-1])
    data = checkpoint.vocabulary.folder
    text = losses.read(checkpoint, data, options.tokens, lengths[-1])
    configuration = {"checkpoint": checkpoint.digest, "text": text.digest, "options": changes}
    cells = [Cell({"length": n}, configuration) for n in lengths]
    inputs = [("CHECKPOINT", options.checkpoint), ("--data", data / "dict.txt")]
    with ownership.output(options.out, COMMAND, inputs):
        model.to("cuda" if torch.cuda.is_available() else "cpu")
        results = {
            "checkpoint": {"sha256": checkpoint.digest, "arch": checkpoint.arch, "positions": checkpoint.positions},
            "options": changes,
            "pretrained_on": checkpoint.length,
            "tokens": len(text.tokens),
            "lengths": run_grid(
                cells,
                options.out,
                lambda cell, _, progress: losses.predict(model, text, int(cell.key["length"]), progress).summary(),
            ),
        }
        show(losses.write(results, options.out))


def _model(checkpoint: Checkpoint, changes: dict[str, Any], length: int) -> BaseFairseqModel:
    """Return the checkpoint's model with other options of its positions, for sequences of up to ``length`` tokens.

    Raises:
        InputError: an option does not apply to them, or they have fewer positions, or there is no language model.
    """
    from ...core.transformer import PositionSampling, build_positions
    from ...plugin.checkpoint.state_dict import LANGUAGE_MODEL, POSITIONS
    from ...plugin.options.option_set import field_errors_as_flags

    if f"{LANGUAGE_MODEL}weight" not in checkpoint.state:
        raise InputError(f"{checkpoint.path} has no language model's head, whose loss is measured: name another")
    config = checkpoint.config
    with field_errors_as_flags():
        positions = build_positions(dataclasses.replace(config, position_options={**config.position_options, **changes}))
    sampling = PositionSampling.parse(config.position_sampling, config.position_evaluation)
    limits = {
        f"positions {config.positions}": positions.max_length,
        "the enhanced mask decoder": config.max_positions if config.mask_decoder_steps else None,
        f"--position-sampling {config.position_sampling}": sampling.max_length if sampling else None,
    }
    if beyond := [(cause, limit) for cause, limit in limits.items() if limit is not None and length > limit]:
        raise InputError(
            f"--lengths {length}: {checkpoint.path} learned {beyond[0][1]} positions and has none beyond ({beyond[0][0]}). Name "
            "lengths up to that, make its table longer with fairseq-posenc grow, or use a checkpoint with an inductive scheme."
        )
    for name, parameter in positions.named_parameters() if changes else ():
        if parameter.shape != checkpoint.state[f"{POSITIONS}{name}"].shape:
            flags = ", ".join(map(flag_of, changes))
            raise InputError(f"{flags}: {checkpoint.path} was trained with another shape of positions.{name}. Leave it out.")
    return checkpoint.build_model(
        **{name: flag_value(value) if isinstance(value, bool) else value for name, value in changes.items()}
    )
