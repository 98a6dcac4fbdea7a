"""What was measured, as JSON, as a table to be read, and as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabulate import tabulate
from typing_extensions import TypedDict

from ..files import atomic_write
from ..ownership import own
from ..plotting import grid, line_style, save
from ..runs.grid import FINISHED
from ..runs.record import write_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Measured(TypedDict):
    """Of one length: see :func:`.losses.measure`."""

    length: int
    sequences: int
    loss: float
    error: float
    predicted: int
    parts: list[dict[str, Any]]


def write(found: Mapping[str, Any], out: Path) -> str:
    """Write results.json, results.md and extrapolation.png into ``out``; returns the tables.

    Args:
        found: ``lengths`` holds a result per length, ``pretrained_on`` the tokens of a sample in pretraining.
    """
    measured = [each for each in found["lengths"] if each["status"] == FINISHED]
    text = "\n\n".join([_by_length(found["lengths"]), *([_by_part(measured)] if measured else [])])
    write_json(own(out / "results.json"), found)
    with atomic_write(own(out / "results.md")) as stream:
        stream.write(f"{text}\n")
    save(picture(measured, found["pretrained_on"], found["checkpoint"]["positions"]), own(out / "extrapolation.png"))
    return text


def picture(measured: Sequence[Measured], pretrained_on: int, title: str) -> Figure:
    """The loss against the length, and against the position in sequences of each length."""
    figure, (by_length, by_position) = grid(["", ""], (4.6, 3.2), same_y=True)
    lengths = [each["length"] for each in measured]
    losses, errors = ([each[name] for each in measured] for name in ("loss", "error"))
    by_length.errorbar(lengths, losses, errors, **line_style(0), capsize=3)
    by_length.set_xscale("log", base=2)
    by_length.set_xticks(lengths, [str(length) for length in lengths])
    by_length.set_xlabel("tokens per sequence")
    by_length.set_ylabel("masked-LM loss, bits per token")
    for number, each in enumerate(measured):
        parts = [part for part in each["parts"] if part["loss"] is not None]
        middles = [(part["from"] + part["to"]) / 2 for part in parts]
        losses, errors = ([part[name] for part in parts] for name in ("loss", "error"))
        by_position.errorbar(middles, losses, errors, **line_style(number), capsize=2, elinewidth=0.7, label=str(each["length"]))
    by_position.set_xscale("log", base=2)
    by_position.xaxis.set_major_formatter("{x:g}")
    by_position.set_xlabel("position in the sequence")
    if measured:
        by_position.legend(
            title="tokens per\nsequence", frameon=False, loc="center left", bbox_to_anchor=(1, 0.5), handlelength=3.2
        )
    for panel in (by_length, by_position):
        panel.axvline(pretrained_on, color="0.6", linewidth=0.9, linestyle=":", zorder=0)
    figure.suptitle(f"{title}; dotted: the {pretrained_on} tokens of a sample in pretraining", fontsize=11)
    return figure


def _by_length(lengths: Sequence[Mapping[str, Any]]) -> str:
    head = ["tokens per sequence", "sequences", "loss (bits per token)", "±", "perplexity"]
    rows = [
        [each["length"], f"{each['sequences']:,}", f"{each['loss']:.3f}", f"{each['error']:.3f}", f"{2 ** each['loss']:,.1f}"]
        if each["status"] == FINISHED
        else [each["length"], "", "not finite", "", ""]
        for each in lengths
    ]
    return _markdown(rows, head)


def _by_part(measured: Sequence[Measured]) -> str:
    """The loss in each part of a sequence, a column per length."""
    count = len(measured[0]["parts"])
    losses = [[each["parts"][number]["loss"] for each in measured] for number in range(count)]
    rows = [
        [f"{number}/{count}", *("–" if loss is None else f"{loss:.2f}" for loss in row)] for number, row in enumerate(losses, 1)
    ]
    return _markdown(rows, ["part of the sequence", *(str(each["length"]) for each in measured)])


def _markdown(rows: Sequence[Sequence[Any]], head: Sequence[str]) -> str:
    return tabulate(rows, head, "pipe", disable_numparse=True, colalign=["right"] * len(head))
