"""Measure the loss of a language model by the length of the sequences and by the position in them.

The text of the data-bin's validation set, with the masks of validation or for a model that reads from left to right, is cut
into sequences of each length, as the checkpoint's task cuts its samples. So two lengths differ in how much context each predicted
token has, and in whether the scheme extrapolates. At the length of pretraining, the loss of the whole text is the one that
fairseq-validate reports.

    fairseq-posenc extrapolate checkpoints/checkpoint_best.pt --data data-bin --lengths 128,256,512,1024 --out longer

OUT gets report.html, results.md, results.csv, results.json, extrapolation.png (needs matplotlib), and a folder per length. The
same command again does only what is not done yet. The options of schemes are flags too, where they leave the parameters as they
are, so that RoPE's extensions can be tried on a trained model:

    fairseq-posenc extrapolate … --rope-type yarn --rope-factor 4 --rope-original-positions 128 --out longer-yarn
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.commands import checkpoint_file, existing, option, show
from ...base.errors import InputError, flag_of, require_extras
from ...base.record import FINISHED, FORMAT

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import nn

    from ...plugin.checkpoint.checkpoint import Checkpoint
    from ..engine.report import Report

COMMAND = "fairseq-posenc extrapolate"


@dataclass(kw_only=True)
class Options:
    """The command's flags, without the options of schemes."""

    checkpoint: Path = option(
        "a fairseq checkpoint (.pt), or a run's folder", names=("checkpoint",), parse=checkpoint_file, metavar="CHECKPOINT"
    )
    data: Path | None = option("a data-bin, whose validation text is read (default: that of the checkpoint's training)", None,
                               names=("--data", "--data-bin"), parse=existing, metavar="DATA_BIN")  # fmt: skip
    lengths: tuple[int, ...] = option(
        "tokens, <s> included where sequences begin with it", (128, 256, 512, 1024, 2048, 4096), minimum=16, metavar="N[,N…]"
    )
    tokens: int = option("tokens of the text that are read, at most", 1 << 17, metavar="T")
    out: Path = option("the folder to write", metavar="DIR")
    flags: Namespace


def add_scheme_arguments(parser: ArgumentParser) -> None:
    """Declare the options of all schemes."""
    from ...plugin.options.option_set import add_position_flags

    add_position_flags(parser.add_argument_group("positions", "another value than the checkpoint's"))


def main(options: Options) -> None:
    """Measure the lengths that are not done, and print the tables.

    Raises:
        InputError, OSError: a flag, or a file that it names, cannot be used.
    """
    from ...plugin.checkpoint.checkpoint import Checkpoint
    from ...plugin.options.option_set import position_options
    from ..engine.grid import Cell
    from ..engine.study import Study
    from . import losses
    from .work import default_device

    require_extras("plots")
    lengths, changes = sorted(set(options.lengths)), position_options(options.flags)
    checkpoint = Checkpoint(options.checkpoint, options.data, may_be_causal=True)
    model = _model(checkpoint, changes, lengths[-1])
    data = checkpoint.vocabulary.folder
    text = losses.read(checkpoint, data, options.tokens, lengths[-1])
    configuration = {"checkpoint": checkpoint.digest, "text": text.digest, "options": changes}
    cells = [Cell({"length": n}, configuration) for n in lengths]
    inputs = [("CHECKPOINT", options.checkpoint), ("--data", data / "dict.txt")]
    with Study.open(options.out, COMMAND, inputs) as study:
        model.to(default_device())
        results = study.run(cells, lambda cell, _, tell: losses.predict(model, text, int(cell.key["length"]), tell).summary())
        content = {
            "format": FORMAT,
            "checkpoint": {"sha256": checkpoint.digest, "arch": checkpoint.arch, "positions": checkpoint.positions},
            "options": changes,
            "pretrained_on": checkpoint.length,
            "tokens": len(text.tokens),
            "lengths": results,
        }
        show(_report(content).write(study.out))


def _model(checkpoint: Checkpoint, changes: dict[str, Any], length: int) -> nn.Module:
    """Return the checkpoint's model with other options of its positions, for sequences of up to ``length`` tokens.

    Raises:
        InputError: an option does not apply to them, or they have fewer positions, or there is no language model.
    """
    from ...core.transformer import PositionSampling, build_positions
    from ...plugin.checkpoint.state_dict import LANGUAGE_MODEL
    from ...plugin.options.option_set import field_errors_as_flags

    if not checkpoint.is_causal and f"{LANGUAGE_MODEL}weight" not in checkpoint.state:
        raise InputError(f"{checkpoint.path} has no language model's head, whose loss is measured: name another")
    config = checkpoint.config
    with field_errors_as_flags():
        changed = replace(config, position_options={**config.position_options, **changes})
        positions = build_positions(changed)
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
    shapes = {name.partition(".positions.")[2]: value.shape for name, value in checkpoint.state.items()}
    for name, parameter in positions.named_parameters() if changes else ():
        if parameter.shape != shapes.get(name):
            flags = ", ".join(map(flag_of, changes))
            raise InputError(f"{flags}: {checkpoint.path} was trained with another shape of positions.{name}. Leave it out.")
    return checkpoint.build_model(changed)


def _report(data: Mapping[str, Any]) -> Report:
    """Return the loss by length, and by the part of a sequence; ``data`` has a summary of :mod:`.losses` per length."""
    from ..engine.report import Figure, Report, Table, number

    measured = [result for result in data["lengths"] if result["status"] == FINISHED]
    rows = [[str(result["length"]), "", "not finite", "", ""] for result in data["lengths"]]
    for row, result in zip(rows, data["lengths"], strict=True):
        if result["status"] == FINISHED:
            loss, error = (number(result[name]) for name in ("loss", "error"))
            row[1:] = f"{result['sequences']:,}", loss, error, f"{2 ** result['loss']:,.1f}"
    parts = zip(*(result["parts"] for result in measured), strict=True)
    by_part = [[str(place), *(number(part["loss"], ".2f") for part in of_lengths)] for place, of_lengths in enumerate(parts, 1)]
    summary = [Table(["tokens per sequence", "sequences", "loss (bits per token)", "±", "perplexity"], rows)]
    if measured:
        summary.append(Table(["eighth of the sequence", *(str(result["length"]) for result in measured)], by_part))
    caption = f"Loss by length and by position. Dotted: the {data['pretrained_on']} tokens of a sample in pretraining."
    drawing = picture(measured, data["pretrained_on"], data["checkpoint"]["positions"])
    sections = {"Loss": [Figure("extrapolation", caption, drawing)]}
    return Report("Loss on longer sequences", summary, data, data["lengths"], sections)


def picture(results: Sequence[Mapping[str, Any]], pretrained_on: int, title: str) -> Figure:
    """Draw the loss against the length, and against the position in sequences of each length."""
    from ...base.plotting import grid, line_style

    figure, (by_length, by_position) = grid(["", ""], (4.6, 3.2), same_y=True)
    lengths = [result["length"] for result in results]
    losses, errors = ([result[name] for result in results] for name in ("loss", "error"))
    by_length.errorbar(lengths, losses, errors, **line_style(0), capsize=3)
    by_length.set_xscale("log", base=2)
    by_length.set_xticks(lengths, [str(length) for length in lengths])
    by_length.set(xlabel="tokens per sequence", ylabel="loss, bits per predicted token")
    for number, result in enumerate(results):
        parts = [part for part in result["parts"] if part["loss"] is not None]
        middles = [(part["from"] + part["to"]) / 2 for part in parts]
        losses, errors = ([part[name] for part in parts] for name in ("loss", "error"))
        by_position.errorbar(middles, losses, errors, **line_style(number), capsize=2, elinewidth=0.7, label=result["length"])
    by_position.set_xscale("log", base=2)
    by_position.xaxis.set_major_formatter("{x:g}")
    by_position.set_xlabel("position in the sequence")
    if results:
        by_position.legend(
            title="tokens per\nsequence", frameon=False, loc="center left", bbox_to_anchor=(1, 0.5), handlelength=3.2
        )
    for panel in (by_length, by_position):
        panel.axvline(pretrained_on, color="0.6", linewidth=0.9, linestyle=":", zorder=0)
    figure.suptitle(f"{title}; dotted: the {pretrained_on} tokens of a sample in pretraining", fontsize=11)
    return figure
