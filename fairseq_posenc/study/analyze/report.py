"""The report of an analysis: a table of the models, their pictures, and pictures that compare them."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure as Drawing
from matplotlib.patches import Patch

from ...base.plotting import grid, line_figure
from ...base.record import FORMAT
from ..engine.report import Figure, Part, Report, Table, number
from .examine import EXACT, FUNCTIONS, HEADS, PROBES, SCORES, VECTORS, WORDS_AND_POSITIONS
from .offsets import KINDS, RULE

SECTIONS = {
    VECTORS: "R² is the share of a matrix's variance that the nearest Toeplitz matrix explains, one whose entries depend on the "
    "offset j - i alone (Wennberg & Henter 2021).",
    SCORES: "Which positions attend to which where words contribute nothing: F̂_P of the first layer, in which the average word "
    "embedding replaces every word. Query i runs from top to bottom, key j from left to right.",
    WORDS_AND_POSITIONS: "A score is the sum of four correlations (Ke et al. 2021): of words with words, words with positions, "
    "positions with words, and positions with positions.",
    FUNCTIONS: "The positional terms of each layer as functions of the offset r from query to key.",
    HEADS: "What heads attend to on average.",
    PROBES: "What hidden states reveal about positions.",
}
"""Names and introductions of the page's sections."""
NO_TEXT = "No text was read (--text): no kinds of heads, correlations and probes, and |q·a| and |k·b| are of average words."
MEANING = (
    "R² is that of P = E_P E_Pᵀ, or of the additive biases of models without position vectors. The rank is that of the position "
    "vectors; in brackets, how many dimensions hold 99% of them. Position R² and order are what a linear probe reads from the "
    "last hidden states."
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
    head = ["model", "positions", "R²", "rank (99%)", "position R²", "order"]
    summary: list[Part] = [Table(head, [_row(model) for model in models]), MEANING]
    summary += [] if all(model["text"] is not None for model in models) else [NO_TEXT]
    data = {"format": FORMAT, "models": [{name: value for name, value in model.items() if name != "figures"} for model in models]}
    rows = [{name: model[name] for name in ("model", "positions", "layers", "heads", "window", "r_squared")} for model in models]
    return Report("What the models learned about position", summary, data, rows, sections)


def _row(model: Mapping[str, Any]) -> list[str]:
    vectors, text = model["vectors"], model["text"]
    probes = (None, None) if text is None else (text["linear_probes"][name][-1] for name in ("position", "order"))
    ranks = "–" if vectors is None else f"{vectors['rank']['full']} ({vectors['rank']['effective']})"
    return [model["model"], model["positions"], number(model["r_squared"]), ranks, *map(number, probes)]


def _of_runs(models: Sequence[Mapping[str, Any]]) -> dict[str, list[Figure]]:
    runs = {m["model"]: m["run"] for m in models if len(m["run"]) > 1 and min(m["run"].values()) < 1 - EXACT}
    caption = "R² along the checkpoints of a run: of P, or of the additive biases of models without position vectors."
    lines = {label: ([int(updates) for updates in run], [*run.values()]) for label, run in runs.items()}
    return {VECTORS: [Figure("figures/run", caption, line_figure([("updates", "R²", lines)]))]} if runs else {}


def _on_text(texts: Mapping[str, Mapping[str, Any]]) -> dict[str, list[Figure]]:
    if not texts:
        return {}
    kinds = {label: text["kinds"] for label, text in texts.items()}
    of_kinds = Figure("figures/kinds", f"The kind of every head. {RULE}", kinds_figure(kinds))
    caption = (
        "What a linear probe reads from hidden states (0 is the input of the first layer) of windows that it was not trained on: "
        "the position of a token, and which of two tokens comes first, where 0.5 is chance."
    )
    names = {"position": "R² of the position", "error": "error, in tokens", "order": "accuracy of the order"}
    panels = []
    for name, y_label in names.items():
        values = {label: text["linear_probes"][name] for label, text in texts.items()}
        panels.append(("hidden state", y_label, {label: (range(len(y)), y) for label, y in values.items()}))
    return {HEADS: [of_kinds], PROBES: [Figure("figures/linear", caption, line_figure(panels))]}


def kinds_figure(models: Mapping[str, Sequence[Sequence[str]]]) -> Drawing:
    """Draw the kind of every head, by model: the kinds of each layer's heads."""
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
