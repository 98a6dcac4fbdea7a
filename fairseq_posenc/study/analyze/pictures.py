"""The pictures of one model, for ``analyze``."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn import functional as F

from ...base.plotting import grid, heat_maps, legend, line_style
from .offsets import TERMS, OffsetFunction
from .toeplitz import r_squared

ROWS = 5  # of F̂_P, along the sequence
MAX_OFFSET = 32  # of those rows
MANY_OFFSETS = 16  # lines through more of them have no markers
MIN_SHARE = 0.02  # of a function's largest size; offsets beyond which all sizes are smaller are not drawn
SQUARE = (2.6, 2.5)  # inches, of a matrix
OFFSET = "offset r from query to key, in tokens"


def products_figure(vectors: Tensor) -> Figure:
    """Draw P = E_P E_Pᵀ and the cosine similarities of (n, E) position vectors."""
    p, directions = vectors @ vectors.mT, F.normalize(vectors, dim=-1)
    titles = [f"P, R² {r_squared(p).item():.3f}", "cosine similarity"]
    figure, panels = grid(titles, (3.4, 2.8), x_label="position j", y_label="position i")
    heat_maps(panels[:1], [p], "p$_i$·p$_j$", "viridis")
    heat_maps(panels[1:], [directions @ directions.mT], "cosine similarity")
    return figure


def scores_figure(scores: Tensor) -> Figure:
    """Draw F̂_P, (H, n, n), each head's less its mean."""
    titles = [f"head {head}, R² {value:.2f}" for head, value in enumerate(r_squared(scores).tolist(), 1)]
    return _matrices_figure(titles, list(scores), r"$\hat{F}_P$, less the head's mean")


def rows_figure(scores: Tensor) -> Figure:
    """Draw some rows of F̂_P, (H, n, n), against the offset."""
    n = scores.shape[-1]
    farthest = min(MAX_OFFSET, n - 1)
    titles = [f"head {head}" for head in range(1, len(scores) + 1)]
    figure, panels = grid(titles, same_x=True, x_label=OFFSET, y_label=r"$\hat{F}_P$(i, i+r)")
    for panel, matrix in zip(panels, scores, strict=True):
        for number, i in enumerate(np.linspace(n // 4, n - 1 - n // 4, ROWS).astype(int).tolist()):
            j = np.arange(max(0, i - farthest), min(n, i + farthest + 1))
            panel.plot(j - i, matrix[i, j].numpy(), **line_style(number) | {"marker": ""}, label=f"i = {i}")
        panel.axvline(0, color="0.6", linewidth=0.8, zorder=0)
    legend(figure, panels)
    return figure


def correlations_figure(correlations: Mapping[str, Tensor]) -> Figure:
    """Draw the mean of each correlation over the heads, less its own mean."""
    n = max(matrix.shape[-1] for matrix in correlations.values())
    matrices = [matrix.mean(0).expand(n, n) for matrix in correlations.values()]
    r2 = [f"R² {r_squared(matrix).item():.2f}" if matrix.std() > 0 else "none" for matrix in matrices]
    titles = [f"{name}\n{value}" for name, value in zip(correlations, r2, strict=True)]
    return _matrices_figure(titles, matrices, "part of the score")


def function_figure(term: str, function: OffsetFunction) -> Figure:
    """Draw one panel per layer with the term, or one for all if they have the same function, with one line per head."""
    present = ~function.values.isnan().all(-1).all(-1)
    values, layers = function.values[present], [f"layer {index + 1}" for index in present.nonzero()[:, 0].tolist()]
    if len(values) > 1 and bool(values.isclose(values[:1], rtol=0, atol=0, equal_nan=True).all()):
        values, layers = values[:1], ["all layers" if present.all() else "all layers with it"]
    farthest = largest_visible_offset(values)
    middle = values.shape[-1] // 2
    visible = values[..., middle - farthest : middle + farthest + 1]
    sizes = visible.abs().nan_to_num().amax((-2, -1))
    same_y = bool(sizes.max() <= 10 * sizes.min())
    figure, panels = grid(layers, same_x=True, same_y=same_y, x_label=OFFSET, y_label=TERMS[term].partition(",")[0])
    for panel, of_heads in zip(panels, visible, strict=True):
        offset_lines(panel, of_heads)
    legend(figure, panels)
    return figure


def offset_lines(panel: Axes, functions: Tensor) -> None:
    """Draw functions of the offset, (H, 2n-1), one line per head; those of many offsets have no markers."""
    farthest = functions.shape[-1] // 2
    panel.axhline(0, color="0.6", linewidth=0.8, zorder=0)
    panel.axvline(0, color="0.6", linewidth=0.8, zorder=0)
    for head, values in enumerate(functions, 1):
        style = line_style(head - 1) | ({} if farthest <= MANY_OFFSETS else {"marker": ""})
        label = f"head {head}" if len(functions) > 1 else "all heads"
        panel.plot(range(-farthest, farthest + 1), values.numpy(), **style, label=label)


def largest_visible_offset(values: Tensor) -> int:
    """Return the largest offset at which one of the functions (…, 2n-1) has :data:`MIN_SHARE` of the largest size."""
    sizes = values.abs().nan_to_num().flatten(0, -2).amax(0)
    offsets = (sizes >= MIN_SHARE * sizes.max()).nonzero() - len(sizes) // 2
    return max(1, int(offsets.abs().max()))


def _matrices_figure(titles: list[str], matrices: list[Tensor], label: str) -> Figure:
    """Draw (n, n) matrices of queries and keys, each less its mean."""
    figure, panels = grid(titles, SQUARE, same_x=True, same_y=True, x_label="key j", y_label="query i")
    heat_maps(panels, [matrix - matrix.mean() for matrix in matrices], label)
    return figure
