"""The report of an analysis: a table of the models, their pictures, and pictures that compare them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.plotting import grid, line_figure
from ...base.record import FORMAT
from ..engine.report import Figure, Part, Report, Table, number
from .examine import EXACT, FUNCTIONS, HEADS, PROBES, SCORES, VECTORS, WORDS_AND_POSITIONS
from .offsets import KINDS, RULE

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

SECTIONS = {
    VECTORS: "R² is the share of a matrix's variance that the nearest Toeplitz matrix explains, one whose entries depend on the "
    "offset j - i alone (Wennberg & Henter 2021).",
    SCORES: "Which positions attend to which where words contribute nothing: F̂_P of the first layer, in which the average word "
    "embedding replaces every word. Query i runs from top to bottom, key j from left to right.",
    WORDS_AND_POSITIONS: "A score is the sum of four correlations (Ke et al. 2021): of words with words, words with positions, "
    "positions with words, and positions with positions.",
    FUNCTIONS: "The positional terms of each layer as functions of the offset r from query to key.",
    HEADS: "What heads attend to on average.",
    PROBES: "What attention and hidden states reveal about positions.",
}
"""Names and introductions of the page's sections."""
MEASURES = ("locality", "symmetry", "invariance")  # of attention between identical words
NO_TEXT = "No text was read (--text): no kinds of heads, correlations and probes, and |q·a| and |k·b| are of average words."
MEANING = (
    "R² is that of P = E_P E_Pᵀ, or of the additive biases of models without position vectors. The rank is that of the position "
    "vectors; in brackets, how many dimensions hold 99% of them. Locality, symmetry and invariance describe attention between "
    "identical words, averaged over all heads. Position R² and order are what a linear probe reads from the last hidden states. "
    "Swap is how much these states change when two neighbours are exchanged."
)


def report(models: Sequence[Mapping[str, Any]]) -> Report:
    """Return the report of models.

    Args:
        models: the numbers of :func:`.examine.examine`, and their ``figures`` by section: names and captions.
    """
    compared = {**_of_runs(models), **_on_text({model["model"]: model["text"] for model in models if model["text"] is not None})}
    sections: dict[str, list[Part]] = {}
    for title, introduction in SECTIONS.items():
        own = [Figure(*figure) for model in models for figure in model["figures"].get(title, ())]
        if figures := [*own, *compared.get(title, ())]:
            sections[title] = [introduction, *figures]
    head = ["model", "positions", "R²", "rank (99%)", *MEASURES, "position R²", "order", "swap"]
    summary: list[Part] = [Table(head, [_row(model) for model in models]), MEANING]
    summary += [] if all(model["text"] is not None for model in models) else [NO_TEXT]
    data = {"format": FORMAT, "models": [{name: value for name, value in model.items() if name != "figures"} for model in models]}
    rows = [{name: model[name] for name in ("model", "positions", "layers", "heads", "window", "r_squared")} for model in models]
    return Report("What the models learned about position", summary, data, rows, sections)


def _row(model: Mapping[str, Any]) -> list[str]:
    vectors, text = model["vectors"], model["text"]
    numbers: list[float | None] = [None] * 6
    if text is not None:
        heads = [[value for layer in text["identical_words"][name] for value in layer] for name in MEASURES]
        numbers = [sum(values) / len(values) for values in heads]
        numbers += [text["linear_probes"]["position"][-1], text["linear_probes"]["order"][-1]]
        numbers += [next(iter(text["swap_change"].values()), None)]
    ranks = "–" if vectors is None else f"{vectors['rank']['full']} ({vectors['rank']['effective']})"
    r2, *others = map(number, (model["r_squared"], *numbers))
    return [model["model"], model["positions"], r2, ranks, *others]


def _of_runs(models: Sequence[Mapping[str, Any]]) -> dict[str, list[Figure]]:
    runs = {m["model"]: m["run"] for m in models if len(m["run"]) > 1 and min(m["run"].values()) < 1 - EXACT}
    caption = "R² along the checkpoints of a run: of P, or of the additive biases of models without position vectors."
    return {VECTORS: [Figure("figures/run", caption, _lines("updates", "R²", runs))]} if runs else {}


def _on_text(texts: Mapping[str, Mapping[str, Any]]) -> dict[str, list[Figure]]:
    if not texts:
        return {}
    kinds = {label: text["kinds"] for label, text in texts.items()}
    of_kinds = Figure("figures/kinds", f"The kind of every head. {RULE}", kinds_figure(kinds))

    def lines_of(part: str, names: Mapping[str, str], x_label: str, first: int) -> Drawing:
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
    identical = Figure("figures/identical", caption, lines_of("identical_words", names, "layer", 1))
    caption = (
        "What a linear probe reads from hidden states (0 is the input of the first layer) of windows that it was not trained on: "
        "the position of a token, and which of two tokens comes first, where 0.5 is chance."
    )
    names = {"position": "R² of the position", "error": "error, in tokens", "order": "accuracy of the order"}
    linear = Figure("figures/linear", caption, lines_of("linear_probes", names, "hidden state", 0))
    caption = (
        "How much the last hidden states change when two words are exchanged: the mean of ‖h' - h‖ / ‖h‖, each token compared "
        "with itself wherever it is. 0 means that the model does not use the order."
    )
    swaps = {label: text["swap_change"] for label, text in texts.items()}
    of_swaps = Figure("figures/swaps", caption, _lines("distance, in tokens", "relative change", swaps))
    return {HEADS: [of_kinds], PROBES: [identical, linear, of_swaps]}


def _lines(x_label: str, y_label: str, models: Mapping[str, Mapping[str, float]]) -> Drawing:
    """Return one panel with a line per model: of numbers by an integer, which is text in JSON."""
    lines = {label: ([int(x) for x in numbers], [*numbers.values()]) for label, numbers in models.items()}
    return line_figure([(x_label, y_label, lines)])


def kinds_figure(models: Mapping[str, Sequence[Sequence[str]]]) -> Drawing:
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
