"""The page of ``analyze``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

from ..engine import page
from .examine import FUNCTIONS, HEADS, PROBES, SCORES, VECTORS, WORDS_AND_POSITIONS

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
FOOTER = "Made by fairseq-posenc analyze. Numbers are in analysis.json; each picture is a PNG and a PDF in figures/ or models/."


def write(path: Path, models: Sequence[Mapping[str, Any]], pictures: Sequence[tuple[str, str, Path]]) -> None:
    """Write the page.

    Args:
        path: the file.
        models: the numbers of :func:`.examine.examine`.
        pictures: of each, the section, the caption and the PNG file.
    """
    sections = []
    for name, introduction in SECTIONS.items():
        if figures := "".join(page.figure(caption, file) for section, caption, file in pictures if section == name):
            sections.append((name, page.paragraph(introduction) + figures))
    title = "Positions: " + ", ".join(model["model"] for model in models)
    page.write(path, title, "What the models learned about position", _overview(models), sections, FOOTER)


def _overview(models: Sequence[Mapping[str, Any]]) -> str:
    head = ["model", "positions", "R²", "rank (99%)", *MEASURES, "position R²", "order", "swap"]
    table = tabulate(map(_row, models), head, "html", disable_numparse=True, colalign=["left"] * 2 + ["right"] * 8)
    text = "" if all(model["text"] is not None for model in models) else f"<p>{NO_TEXT}</p>"
    return f'{page.scroll(table)}<p class="soft">{MEANING}</p>{text}'


def _row(model: Mapping[str, Any]) -> list[str]:
    vectors, text = model["vectors"], model["text"]
    numbers: list[float | None] = [None] * 6
    if text is not None:
        heads = [[value for layer in text["identical_words"][name] for value in layer] for name in MEASURES]
        numbers = [sum(values) / len(values) for values in heads]
        numbers += [text["linear_probes"]["position"][-1], text["linear_probes"]["order"][-1]]
        numbers += [next(iter(text["swap_change"].values()), None)]
    ranks = "–" if vectors is None else f"{vectors['rank']['full']} ({vectors['rank']['effective']})"
    r2, *others = ("–" if value is None else f"{value:.3f}" for value in (model["r_squared"], *numbers))
    return [model["model"], model["positions"], r2, ranks, *others]
