"""Pictures that compare models, from their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..plotting import Points, line_figure
from .examine import EXACT, HEADS, PROBES, VECTORS
from .offsets import RULE
from .pictures import Picture, kinds_figure, score_figure
from .scores import Score


def comparisons(models: Sequence[Mapping[str, Any]], scores: Sequence[Score]) -> Iterator[Picture]:
    """Draws what there is to compare.

    Args:
        models: numbers of :func:`.examine.examine`.
        scores: of the models, to be compared with their R²; may be empty.
    """
    if scores:
        caption = "R² against the score in the CSV file; an arrow leads from each model to its later version."
        r2 = {model["model"]: model["r_squared"] for model in models}
        yield Picture("score", VECTORS, caption, score_figure(scores, r2))
    runs = [model for model in models if len(model["run"]) > 1 and min(model["run"].values()) < 1 - EXACT]
    if runs:
        caption = "R² along the checkpoints of a run: of P, or of the additive biases of models without position vectors."
        lines = {model["model"]: ([int(updates) for updates in model["run"]], [*model["run"].values()]) for model in runs}
        yield Picture("run", VECTORS, caption, line_figure([("updates", "R²", lines)]))
    texts = {model["model"]: model["text"] for model in models if model["text"] is not None}
    if texts:
        yield from _on_text(texts)


def _on_text(texts: Mapping[str, Mapping[str, Any]]) -> Iterator[Picture]:
    kinds = {label: text["kinds"] for label, text in texts.items()}
    yield Picture("kinds", HEADS, f"The kind of every head. {RULE}", kinds_figure(kinds))

    def panels(x_label: str, first: int, names: Mapping[str, str], part: str) -> list[tuple[str, str, dict[str, Points]]]:
        """One panel per measure, by layer or hidden state; of numbers per head, their mean."""
        values = {y_label: {label: text[part][name] for label, text in texts.items()} for name, y_label in names.items()}
        return [
            (x_label, y_label, {label: (list(range(first, first + len(each))), [_mean(value) for value in each])
                                for label, each in lines.items()})
            for y_label, lines in values.items()
        ]  # fmt: skip

    caption = (
        "Attention in sentences that repeat one word, the mean over words and heads. Locality: the share of attention near the "
        "word, halved with each token of distance. Symmetry: 1 where both sides get the same. Invariance: R², 1 where only the "
        "offset counts."
    )
    names = {name: name for name in ("locality", "symmetry", "invariance")}
    yield Picture("identical", PROBES, caption, line_figure(panels("layer", 1, names, "identical_words")))
    caption = (
        "What a linear probe reads from hidden states (0 is the input of the first layer) of windows that it was not trained on: "
        "the position of a token, and which of two tokens comes first, where 0.5 is chance."
    )
    names = {"position": "R² of the position", "error": "error, in tokens", "order": "accuracy of the order"}
    yield Picture("linear", PROBES, caption, line_figure(panels("hidden state", 0, names, "linear_probes")))
    caption = (
        "How much the last hidden states change when two words are exchanged: the mean of ‖h' - h‖ / ‖h‖, each token compared "
        "with itself wherever it is. 0 is a model that sees no order."
    )
    swaps = {label: ([*map(int, text["swap_change"])], [*text["swap_change"].values()]) for label, text in texts.items()}
    yield Picture("swaps", PROBES, caption, line_figure([("distance, in tokens", "relative change", swaps)]))


def _mean(value: Any) -> float:
    return sum(value) / len(value) if isinstance(value, list) else value
