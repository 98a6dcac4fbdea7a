"""Pictures that compare models, from their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.plotting import grid, line_figure
from .examine import EXACT, HEADS, PROBES, VECTORS
from .offsets import KINDS, RULE
from .pictures import Picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def comparisons(models: Sequence[Mapping[str, Any]]) -> Iterator[Picture]:
    """Yield the pictures that compare models, from their numbers of :func:`.examine.examine`."""
    runs = [model for model in models if len(model["run"]) > 1 and min(model["run"].values()) < 1 - EXACT]
    if runs:
        caption = "R² along the checkpoints of a run: of P, or of the additive biases of models without position vectors."
        yield Picture("run", VECTORS, caption, _lines("updates", "R²", {model["model"]: model["run"] for model in runs}))
    texts = {model["model"]: model["text"] for model in models if model["text"] is not None}
    if texts:
        yield from _on_text(texts)


def _on_text(texts: Mapping[str, Mapping[str, Any]]) -> Iterator[Picture]:
    kinds = {label: text["kinds"] for label, text in texts.items()}
    yield Picture("kinds", HEADS, f"The kind of every head. {RULE}", kinds_figure(kinds))

    def lines_of(part: str, names: Mapping[str, str], x_label: str, first: int) -> Figure:
        """Return one panel per measure, by layer or hidden state."""
        panels = []
        for name, y_label in names.items():
            means = {label: [np.mean(values) for values in text[part][name]] for label, text in texts.items()}  # over heads
            panels.append((x_label, y_label, {label: (range(first, first + len(y)), y) for label, y in means.items()}))
        return line_figure(panels)

    caption = (
        "Attention in sentences that repeat one word, the mean over words and heads. Locality: the share of attention near the "
        "word, halved with each token of distance. Symmetry: 1 where both sides get the same. Invariance: R², 1 where only the "
        "offset counts."
    )
    names = {name: name for name in ("locality", "symmetry", "invariance")}
    yield Picture("identical", PROBES, caption, lines_of("identical_words", names, "layer", 1))
    caption = (
        "What a linear probe reads from hidden states (0 is the input of the first layer) of windows that it was not trained on: "
        "the position of a token, and which of two tokens comes first, where 0.5 is chance."
    )
    names = {"position": "R² of the position", "error": "error, in tokens", "order": "accuracy of the order"}
    yield Picture("linear", PROBES, caption, lines_of("linear_probes", names, "hidden state", 0))
    caption = (
        "How much the last hidden states change when two words are exchanged: the mean of ‖h' - h‖ / ‖h‖, each token compared "
        "with itself wherever it is. 0 means that the model does not use the order."
    )
    swaps = {label: text["swap_change"] for label, text in texts.items()}
    yield Picture("swaps", PROBES, caption, _lines("distance, in tokens", "relative change", swaps))


def _lines(x_label: str, y_label: str, models: Mapping[str, Mapping[str, float]]) -> Figure:
    """Return one panel with a line per model: of numbers by an integer, which is text in JSON."""
    lines = {label: ([int(x) for x in numbers], [*numbers.values()]) for label, numbers in models.items()}
    return line_figure([(x_label, y_label, lines)])


def kinds_figure(models: Mapping[str, Sequence[Sequence[str]]]) -> Figure:
    """Draw the kind of every head, by model: the kinds of each layer's heads."""
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
                panel.text(head, layer, kind.strip("[")[0], ha="center", va="center", fontsize="x-small")
    patches = [Patch(color=colours(number), label=kind) for number, kind in enumerate(KINDS)]
    figure.legend(handles=patches, loc="outside lower center", ncols=len(KINDS), frameon=False)
    return figure
