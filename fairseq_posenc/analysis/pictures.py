"""The pictures of one or several models, by matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from ..plotting import grid, heat_maps, legend, line_style
from ..transformer import Encoder
from .embeddings import Correlations, cosines, position_vectors, products
from .offsets import KINDS, TERMS, OffsetFunction, functions_of_average_word
from .scores import Score
from .toeplitz import r_squared

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS = 5  # of F̂_P, along the sequence
FARTHEST = 32  # offset of those rows
AUDIBLE = 0.02  # share of a function's largest size; farther offsets, at which all are smaller, are not drawn
SQUARE = (2.6, 2.5)  # inches, of a matrix
OFFSET = "offset k from query to key, in tokens"


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture of the page.

    Attributes:
        name: of its files.
        section: of the page, one of :data:`.page.SECTIONS`.
        caption: what it shows.
        figure: the picture.
    """

    name: str
    section: str
    caption: str
    figure: Figure


def of_parameters(encoder: Encoder, n: int) -> dict[str, Figure]:
    """Returns P of the position vectors and every function of the offset on a sequence of n average words, by name."""
    added = position_vectors(encoder, encoder.positions.max_length or n)
    figures = {} if added is None else {"products": products_figure(added)}
    return figures | {term: function_figure(term, each) for term, each in functions_of_average_word(encoder, n).items()}


def products_figure(vectors: Tensor) -> Figure:
    """Draws P = E_P E_Pᵀ and the cosine similarities of (n, E) position vectors."""
    p = products(vectors)
    figure, panels = grid([f"P, R² {r_squared(p).item():.3f}", "cosine similarity"], (3.4, 2.8))
    heat_maps(panels[:1], [p], "p$_i$·p$_j$", "viridis")
    heat_maps(panels[1:], [cosines(vectors)], "cosine similarity")
    return _labelled(figure, "position j", "position i")


def scores_figure(scores: Tensor) -> Figure:
    """Draws F̂_P, (H, n, n), each head's less its mean."""
    titles = [f"{name}, R² {value:.2f}" for name, value in zip(_heads(scores), r_squared(scores).tolist(), strict=True)]
    figure, panels = grid(titles, SQUARE, same_x=True, same_y=True)
    heat_maps(panels, list(_centred(scores)), "F̂$_P$, less the head's mean")
    return _labelled(figure, "key j", "query i")


def rows_figure(scores: Tensor) -> Figure:
    """Draws some rows of F̂_P, (H, n, n), against the offset."""
    n = scores.shape[-1]
    farthest = min(FARTHEST, n - 1)
    figure, panels = grid(_heads(scores), same_x=True)
    for panel, matrix in zip(panels, scores, strict=True):
        for number, i in enumerate(np.linspace(n // 4, n - 1 - n // 4, ROWS).astype(int).tolist()):
            j = np.arange(max(0, i - farthest), min(n, i + farthest + 1))
            panel.plot(j - i, matrix[i, j].numpy(), **line_style(number) | {"marker": ""}, label=f"i = {i}")
        panel.axvline(0, color="0.6", linewidth=0.8, zorder=0)
    legend(figure, panels)
    return _labelled(figure, OFFSET, "F̂$_P$(i, i+k)")


def correlations_figure(parts: Correlations) -> Figure:
    """Draws the mean of each correlation over the heads, less its own mean."""
    named = {field.name.replace("_", " to "): getattr(parts, field.name).mean(0) for field in fields(parts)}
    n = max(matrix.shape[-1] for matrix in named.values())
    matrices = [matrix.expand(n, n) for matrix in named.values()]
    r2 = [f"R² {r_squared(matrix).item():.2f}" if matrix.std() > 0 else "none" for matrix in matrices]
    figure, panels = grid([f"{name}\n{value}" for name, value in zip(named, r2, strict=True)], SQUARE, same_x=True, same_y=True)
    heat_maps(panels, [_centred(matrix) for matrix in matrices], "part of the score")
    return _labelled(figure, "key j", "query i")


def function_figure(term: str, function: OffsetFunction) -> Figure:
    """Draws one panel per layer, or one for all where they have the same function, with one line per head."""
    values = function.values
    layers = [f"layer {layer}" for layer in range(1, len(values) + 1)]
    if len(values) > 1 and bool((values == values[:1]).all()):
        values, layers = values[:1], ["all layers"]
    farthest = largest_visible_offset(values)
    middle = values.shape[-1] // 2
    shown, offsets = values[..., middle - farthest : middle + farthest + 1], range(-farthest, farthest + 1)
    sizes = shown.abs().amax((-2, -1))
    figure, panels = grid(layers, same_x=True, same_y=bool(sizes.max() <= 10 * sizes.min()))
    for panel, of_heads in zip(panels, shown, strict=True):
        panel.axhline(0, color="0.6", linewidth=0.8, zorder=0)
        panel.axvline(0, color="0.6", linewidth=0.8, zorder=0)
        for head, curve in enumerate(of_heads):
            style = line_style(head) | ({} if farthest <= 16 else {"marker": ""})
            panel.plot(offsets, curve.numpy(), **style, label=f"head {head + 1}" if len(of_heads) > 1 else "all heads")
    legend(figure, panels)
    return _labelled(figure, OFFSET, TERMS[term].partition(",")[0])


def largest_visible_offset(values: Tensor) -> int:
    """Returns the largest offset at which any of the functions (…, 2n-1) has a share of :data:`AUDIBLE` of the largest size."""
    sizes = values.abs().flatten(0, -2).amax(0)
    middle = len(sizes) // 2
    heard = (sizes >= AUDIBLE * sizes.max()).nonzero()
    return max(1, int((heard - middle).abs().max()))


def kinds_figure(models: Mapping[str, Sequence[Sequence[str]]]) -> Figure:
    """Draws the kind of every head, by model: the kinds of each layer's heads."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    colours = ListedColormap(["#4477aa", "#66ccee", "#228833", "#ccbb44", "#bbbbbb", "#ee6677"])
    figure, panels = grid(list(models), (2.8, 2.6))
    for panel, kinds in zip(panels, models.values(), strict=True):
        numbers = [[KINDS.index(kind) for kind in layer] for layer in kinds]
        panel.imshow(numbers, cmap=colours, vmin=-0.5, vmax=len(KINDS) - 0.5, aspect="auto", origin="lower")
        for name, axis, count in (("head", panel.xaxis, len(kinds[0])), ("layer", panel.yaxis, len(kinds))):
            axis.set_ticks(range(count), [str(number) for number in range(1, count + 1)])
            axis.set_label_text(name)
        for layer, row in enumerate(kinds):
            for head, kind in enumerate(row):
                panel.text(head, layer, kind.strip("[")[0], ha="center", va="center", fontsize=7)
    patches = [Patch(color=colours(number), label=kind) for number, kind in enumerate(KINDS)]
    figure.legend(handles=patches, loc="outside lower center", ncols=len(KINDS), frameon=False)
    return figure


def score_figure(scores: Sequence[Score], r2: Mapping[str, float | None]) -> Figure:
    """Draws R² against the score, with an arrow from each model to its later version."""
    figure, (panel,) = grid([""], (5.2, 3.6))
    places = {score.model: (score.score, value) for score in scores if (value := r2[score.model]) is not None}
    for number, (label, place) in enumerate(places.items()):
        panel.plot(*place, **line_style(number))
        panel.annotate(label, place, xytext=(5, 5), textcoords="offset points", fontsize=9)
    for score in scores:
        if score.model in places and score.after in places:
            arrow = {"arrowstyle": "->", "color": "0.5", "shrinkA": 6, "shrinkB": 6}
            panel.annotate("", places[score.model], xytext=places[score.after], arrowprops=arrow)
    panel.margins(0.2)
    return _labelled(figure, "score", "R²")


def _labelled(figure: Figure, x_label: str, y_label: str) -> Figure:
    figure.supxlabel(x_label, fontsize=11)
    figure.supylabel(y_label, fontsize=11)
    return figure


def _heads(matrices: Tensor) -> list[str]:
    return [f"head {head}" for head in range(1, len(matrices) + 1)]


def _centred(matrices: Tensor) -> Tensor:
    return matrices - matrices.mean((-2, -1), keepdim=True)
