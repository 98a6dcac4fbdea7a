"""Scores of models out of a small CSV file, to be compared with their R² (Wennberg & Henter 2021, figure 2)."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError


@dataclass(frozen=True)
class Score:
    """The score of a model on some task; ``after`` is the label of the version before, from which an arrow leads to it."""

    model: str
    score: float
    after: str | None


def read_scores(path: Path, labels: Sequence[str]) -> list[Score]:
    """Returns the rows of these models from a CSV file with the columns ``model``, ``score`` and, for versions, ``after``.

    Raises:
        InputError, OSError: the file cannot be read, a score is not a finite number, or a model has no row.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = {row["model"]: row for row in csv.DictReader(stream, strict=True)}
        scores = [Score(label, float(rows[label]["score"]), rows[label].get("after") or None) for label in labels]
    except (UnicodeDecodeError, csv.Error, TypeError, ValueError) as error:
        raise InputError(f"--scores {path} is not a CSV file of scores in UTF-8: {error}") from None
    except KeyError as error:
        raise InputError(
            f"--scores {path} has no {error}: it needs the columns model and score (and after, for versions), and a row for each "
            "model, by the LABEL of LABEL=MODEL"
        ) from None
    if bad := next((score for score in scores if not math.isfinite(score.score)), None):
        raise InputError(f"--scores {path}: the score of {bad.model} is {bad.score}: a finite number is needed")
    return scores
