"""Shared plotting helpers: panels, lines that differ by more than their colour, heat maps with one colour scale, and files.

It imports matplotlib, so only commands with pictures import it.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, SymLogNorm
from matplotlib.figure import Figure  # pyplot would need a window system
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from .files import atomic_write

DPI = 110
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's palette, which is legible with any colour vision, without its yellow, which is too light for lines."""
DASHES = ("-", "--", "-.", ":")
MARKERS = "osD^vPX*"

Points = tuple[Sequence[float], Sequence[float]]
"""The x and y values of a line."""


def line_style(number: int) -> dict[str, Any]:
    """Return matplotlib's options of line ``number``: neighbours differ in colour, dashes and marker."""
    color, dashes, marker = (options[number % len(options)] for options in (COLOURS, DASHES, MARKERS))
    return {"color": color, "linestyle": dashes, "marker": marker, "markersize": 3.5, "linewidth": 1.4}


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches."""
    return Figure(figsize=(width, height), layout="constrained")


def grid(
    titles: Sequence[str],
    size: tuple[float, float] = (4.2, 2.9),
    columns: int = 4,
    same_x: bool = False,
    same_y: bool = False,
    x_label: str = "",
    y_label: str = "",
) -> tuple[Figure, list[Axes]]:
    """Return a figure with one panel per title.

    Args:
        size: of a panel, in inches.
        columns: panels in a row, at most.
        same_x, same_y: whether the panels share that axis; then only the outer ones have tick labels.
        x_label, y_label: of the whole figure.
    """
    columns = min(len(titles), columns)
    rows = math.ceil(len(titles) / columns)
    figure = new_figure(0.8 + size[0] * columns, 0.9 + size[1] * rows)
    axes = figure.subplots(rows, columns, sharex=same_x, sharey=same_y, squeeze=False)
    panels = list(axes.flat[: len(titles)])
    for panel in axes.flat[len(titles) :]:
        panel.set_visible(False)
    for panel, title in zip(panels, titles, strict=True):
        panel.set_title(title, fontsize=11)
        panel.spines[["top", "right"]].set_visible(False)
    for panel in panels[-columns:]:  # the lowest of each column
        panel.xaxis.set_tick_params(labelbottom=True)
    for label, write in ((x_label, figure.supxlabel), (y_label, figure.supylabel)):
        if label:
            write(label, fontsize=11)
    return figure, panels


def line_figure(panels: Sequence[tuple[str, str, Mapping[str, Points]]]) -> Figure:
    """Return panels with one line per model. A panel is its x label, its y label and its lines by model.

    An axis of integers, such as layers, has integer ticks.
    """
    figure, axes = grid([""] * len(panels), size=(3.6, 2.8))
    for panel, (x_label, y_label, lines) in zip(axes, panels, strict=True):
        for number, (label, points) in enumerate(lines.items()):
            panel.plot(*points, **line_style(number), label=label)
        if all(isinstance(x, int) for xs, _ in lines.values() for x in xs):
            panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        panel.set_xlabel(x_label)
        panel.set_ylabel(y_label)
    legend(figure, axes)
    return figure


def legend(figure: Figure, panels: Sequence[Axes]) -> None:
    """Add one legend for all panels, which have the same lines."""
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, ncols=math.ceil(len(labels) / 20), handlelength=3.2)


def heat_maps(panels: Sequence[Axes], matrices: Sequence[Tensor], label: str, colours: str = "RdBu_r") -> None:
    """Draw (n, n) matrices, rows from top to bottom, on one colour scale, which a bar next to the panels shows.

    A few entries, such as those of [CLS], are often far from all others: the scale covers 98% of the entries of each matrix. The
    diverging default is symmetric around 0, and logarithmic where the matrices' sizes differ by more than a factor of ten.
    Entries that are NaN are grey.
    """
    sampled = [matrix.flatten()[:: max(1, matrix.numel() // 10**6)].float() for matrix in matrices]
    if colours == "RdBu_r":
        sizes = [max(torch.nanquantile(values.abs(), 0.98).item(), 1e-9) for values in sampled]
        high, least = max(sizes), min(sizes)
        norm = SymLogNorm(max(least, high / 1000), vmin=-high, vmax=high) if high > 10 * least else Normalize(-high, high)
    else:
        norm = Normalize(*torch.nanquantile(torch.cat(sampled), torch.tensor([0.01, 0.99])).tolist())
    for panel, matrix in zip(panels, matrices, strict=True):
        interpolation = "nearest" if len(matrix) < 200 else "antialiased"
        image = panel.imshow(matrix.numpy(), cmap=colours, norm=norm, interpolation=interpolation)
        panel.spines[:].set_visible(False)
        panel.set_facecolor("0.85")
    bar = panels[0].figure.colorbar(image, ax=panels, label=label, extend="both", shrink=0.8, aspect=30)
    if isinstance(norm, SymLogNorm):
        unit = 10.0 ** math.floor(math.log10(high))  # of its first digit; a tick beyond the scale would extend the bar
        sizes = [size for k in range(4) if (size := high // unit * unit / 10**k) > 2 * norm.linthresh]
        ticks = [-size for size in sizes] + [0.0] + sizes[::-1]
        bar.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])


def save(figure: Figure, path: Path) -> None:
    """Write the picture in the format of its name's suffix. A PNG has 256 colours, with which it is a third as large."""
    logging.getLogger("fontTools").setLevel(logging.WARNING)  # it reports each table of a font that it leaves out
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = BytesIO()
    figure.savefig(drawn, dpi=DPI, format=path.suffix.removeprefix("."))
    if path.suffix == ".png":
        drawn = _with_palette(drawn)
    with atomic_write(path, "wb") as stream:
        stream.write(drawn.getvalue())


def _with_palette(png: BytesIO) -> BytesIO:
    """Return the picture in 256 colours: those that cover all, then moved to the means of what they stand for."""
    from PIL import Image

    image, small = Image.open(png).convert("RGB"), BytesIO()
    reduced = image.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE)
    reduced.save(small, "PNG", optimize=True, dpi=(DPI, DPI))
    return small
