"""Pictures of what schemes add to the scores, by query and key and by the offset.

They show the scores of a sequence that repeats one word, the average of all, as :data:`MEANING` has it: one definition for every
scheme, whether its scores depend on the words or not, and for every model.
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor

from ...base.commands import show
from ...base.errors import InputError
from ...base.plotting import heat_maps, new_figure, save
from ...core.schemes.positions import sums_of
from ...core.transformer import Encoder, EncoderConfig
from ..analyze.embeddings import average_word, repeated_symbol
from ..analyze.offsets import OffsetFunction, has_own_cls, offset_functions
from ..analyze.pictures import offset_lines
from ..analyze.trace import Layer, trace

SEED, SYMBOLS, HEAD_DIM = 0, 8, 64  # of an untrained encoder
DECIMALS = 9  # of the scores in float64; beyond them is rounding
MAP, LINES, HEIGHT = 1.35, 3.2, 2.0  # inches: the side of a heat map, the width of the panel with lines, and the height of a row
UNTRAINED = "before training, with one random projection for queries and keys"
MEANING = (
    "The scores of {n} equal words {origin}. They differ by their positions only; products of queries and keys are shown less "
    "their mean, which the softmax ignores. Maps are by query i (downwards) and key j, grey outside of the window; lines are the "
    "mean over all pairs of an offset. R² is the share of the variance that the offset alone explains."
)


class LayerScores(NamedTuple):
    """The scores of one layer."""

    number: int  # from 1
    matrices: Tensor  # (H, n, n), or (1, n, n) if all heads have the same
    function: OffsetFunction  # of the offset


def untrained(expression: str, n: int, heads: int) -> Encoder:
    """Return a freshly initialised encoder, always the same, with a layer for each sum of the expression.

    The projection of queries is that of keys, too. Two random ones would make a query and a key that are independent of each
    other out of equal words, and waves at random phases out of RoPE's scores, for example.

    Raises:
        InputError: an expression without meaning.
    """
    config = EncoderConfig(
        vocab_size=SYMBOLS,
        layers=len(sums_of(expression)),
        dim=heads * HEAD_DIM,
        ffn_dim=HEAD_DIM,
        heads=heads,
        max_positions=n,
        positions=expression,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        encoder = Encoder(config)
    for layer in encoder.layers_in_order:
        layer.self_attn.k_proj.load_state_dict(layer.self_attn.q_proj.state_dict())
    return encoder


def write(path: Path, encoders: Mapping[str, Encoder], n: int, layers: Sequence[int]) -> None:
    """Draw what positions add to the scores in some layers, a heat map per head and all heads as lines, and show the captions.

    Args:
        path: the picture.
        encoders: what is drawn, one below the other, by the names above; they are converted to float64.
        n: the number of words, which the encoders take.
        layers: their numbers, from 1; if there are none, the first layer with each different sum of the expression.

    Raises:
        InputError: an encoder has no such layer.
    """
    drawings = {}
    for name, encoder in encoders.items():
        expression = encoder.positions.expression
        sums = sums_of(expression)[: encoder.config.layers]
        if beyond := [number for number in layers if number > encoder.config.layers]:
            raise InputError(f"--layers {beyond[0]}: {name} has {encoder.config.layers} layers")
        numbers = layers or [sums.index(part) + 1 for part in dict.fromkeys(sums)]
        drawings[name if name == expression else f"{name}: {expression}"] = scores(encoder, n, numbers)
    save(_figure(drawings), path)
    for title, drawn in drawings.items():
        show(f"{path}: {title}. {_remark(drawn)}")


@torch.no_grad()
def scores(encoder: Encoder, n: int, layers: Sequence[int]) -> list[LayerScores]:
    """Return what :data:`MEANING` describes; the arguments are as those of :func:`write`."""
    encoder = encoder.double().eval()
    traced = trace(encoder, repeated_symbol(encoder, n), average_word(encoder).expand(1, n, -1)).layers
    return [_scores(number, traced[number - 1]) for number in layers]


def _scores(number: int, layer: Layer) -> LayerScores:
    matrices = layer.centred_scores[0].round(decimals=DECIMALS)
    if torch.equal(matrices.nan_to_num(), matrices[:1].nan_to_num().expand_as(matrices)):
        matrices = matrices[:1]
    return LayerScores(number, matrices, offset_functions({"": matrices[None]}, has_own_cls([layer]))[""])


def _remark(drawn: Sequence[LayerScores]) -> str:
    if not any(layer.matrices.nan_to_num().any() for layer in drawn):
        return "It adds nothing to the scores."
    r2 = torch.cat([layer.function.r_squared[0] for layer in drawn])
    low, high = f"{r2.min().item():.2f}", f"{r2.max().item():.2f}"
    remark = f"R² is {low if low == high else f'{low} to {high}'}"
    without_cls = any(layer.function.cls is not None for layer in drawn)
    return f"{remark}{' without position 0, which has terms of its own' if without_cls else ''}."


def _figure(drawings: Mapping[str, Sequence[LayerScores]]) -> Figure:
    """Draw a row for each layer: a map per head, and the lines of all heads under the name of what is drawn."""
    rows = [(name, len(drawn) > 1, layer) for name, drawn in drawings.items() for layer in drawn]
    heads = max(len(layer.matrices) for *_, layer in rows)
    figure = new_figure(1.6 + MAP * heads + LINES, 0.6 + HEIGHT * len(rows))
    axes = figure.subplots(len(rows), heads + 1, squeeze=False, width_ratios=[*[MAP] * heads, LINES])
    for (name, has_layers, layer), (*maps, lines) in zip(rows, axes, strict=True):
        count = len(layer.matrices)
        for panel in maps[count:]:
            panel.set_visible(False)
        heat_maps(maps[:count], list(layer.matrices), "score e$_{ij}$")
        for head, panel in enumerate(maps[:count], 1):
            which = f"layer {layer.number}, " if has_layers else ""
            panel.set_title(which + (f"head {head}" if count > 1 else "all heads"), fontsize="small")
            panel.tick_params(labelsize="x-small", length=2)
            panel.locator_params(nbins=3, integer=True)
        maps[0].set_ylabel("query i")
        maps[0].set_xlabel("key j")
        lines.set_title(textwrap.fill(name, 40), fontsize="large")
        offset_lines(lines, layer.function.values[0])
        if count > 1:
            lines.legend(fontsize="x-small", frameon=False, handlelength=3, ncols=math.ceil(count / 6))
    axes[-1, -1].set_xlabel("offset j - i, in tokens")
    return figure
