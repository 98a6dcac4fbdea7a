"""Pictures that compare models, from their numbers, and scores to compare these with."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import InputError
from ..plotting import grid, line_figure, line_style
from .examine import EXACT, HEADS, PROBES, VECTORS
from .offsets import KINDS, RULE
from .pictures import Picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Score(NamedTuple):
    """The score of a model on a task; an arrow leads to it from the model labelled ``after``, its earlier version."""

    model: str
    score: float
    after: str | None


def read_scores(path: Path, labels: Sequence[str]) -> list[Score]:
    """Return the rows of these models from a CSV file with the columns ``model``, ``score`` and, for versions, ``after``.

    Raises:
        InputError, OSError: the file cannot be read, a score is not finite, or a model or its earlier version has not one row.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            lines = list(csv.DictReader(stream, strict=True))
        rows, names = {row["model"]: row for row in lines}, [row["model"] for row in lines]
        scores = [Score(label, float(rows[label]["score"]), rows[label].get("after") or None) for label in labels]
        if not all(math.isfinite(score.score) for score in scores):
            raise ValueError("a score is not finite")
        for name in [*labels, *(score.after for score in scores if score.after)]:
            if names.count(name) != 1:
                raise ValueError(f"it has {names.count(name)} rows of {name}")
    except (UnicodeDecodeError, csv.Error, TypeError, ValueError, KeyError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else error
        raise InputError(
            f"--scores {path}: {reason}. A CSV file in UTF-8 with the columns model and score (and after, for versions) is "
            "needed, with a row and a finite score for each model, by the LABEL of LABEL=MODEL."
        ) from None
    return scores


def comparisons(models: Sequence[Mapping[str, Any]], scores: Sequence[Score]) -> Iterator[Picture]:
    """Yield the pictures that compare models.

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


def score_figure(scores: Sequence[Score], r2: Mapping[str, float | None]) -> Figure:
    """Draw R² against the score, with an arrow from each model to its later version."""
    figure, (panel,) = grid([""], (5.2, 3.6), x_label="score", y_label="R²")
    points = {score.model: (score.score, value) for score in scores if (value := r2[score.model]) is not None}
    for number, (label, point) in enumerate(points.items()):
        panel.plot(*point, **line_style(number))
        panel.annotate(label, point, xytext=(5, 5), textcoords="offset points", fontsize="small")
    for score in scores:
        if score.model in points and score.after in points:
            arrow = {"arrowstyle": "->", "color": "0.5", "shrinkA": 6, "shrinkB": 6}
            panel.annotate("", points[score.model], xytext=points[score.after], arrowprops=arrow)
    panel.margins(0.2)
    return figure
