"""Score minimal pairs: of two sentences, which one does a model find more probable?

    fairseq-posenc pairs checkpoints bert-base-uncased --data blimp/data --out pairs

MODEL is a checkpoint, the folder of a run, or the folder or name of a masked or causal language model of transformers, with
LABEL=MODEL for another name in the report. The pairs are JSON lines as BLiMP's, CSV or TSV with sentence_good and sentence_bad,
and linguistics_term, field and UID where they have them. OUT gets report.html, results.md, results.csv, results.json and a folder
per model; the same command again does only what is not done yet.

Besides the accuracy on all pairs there is that on "word order": the pairs whose sentences have the same words and differ in their
order alone, of which a model without positions must get 50%.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from ...base.commands import existing, option, show
from ...base.errors import InputError, require_extras
from ...base.record import Recorded
from ..engine.grid import Cell, Progress

if TYPE_CHECKING:
    from .data import Pair
    from .scoring import Scorer

METRICS = ("within_word_l2r", "original")


def _paths(text: str) -> tuple[Path, ...]:
    return tuple(map(existing, text.split(",")))


@dataclass(frozen=True, kw_only=True)
class Options:
    """The flags of ``fairseq-posenc pairs``."""

    models: tuple[str, ...] = option("[LABEL=]MODEL", names=("models",), nargs="+", metavar="MODEL")
    data: tuple[Path, ...] = option("files of pairs, or folders with them", parse=_paths, metavar="PATH[,PATH…]")
    out: Path = option("the folder to write", metavar="DIR")
    metric: str = option("what is masked for the score of a token, in masked language models", METRICS[0], choices=METRICS)
    data_bin: Path | None = option(
        "the vocabulary of checkpoints (default: that of their training)", None, parse=existing, metavar="DIR"
    )
    skip_long: bool = option("leave out the pairs that are longer than one of the models takes", False)


class Scores(Recorded):
    """The fields of the result of a cell: the scores of the pairs of a paradigm, and its numbers of tokens."""

    scores: list[Annotated[list[float], Field(min_length=2, max_length=2)]]
    tokens: int
    unknown: int


def main(options: Options) -> None:
    """Run the command."""
    require_extras("compare")
    import numpy as np

    from ..engine.statistics import by
    from ..engine.study import Study
    from .data import read_pairs
    from .models import read
    from .report import report, summarise

    every = read_pairs(options.data)
    pairs = [pair for pair in every if pair.good != pair.bad]
    if not pairs:
        raise InputError(f"--data {', '.join(map(str, options.data))}: the sentences of all pairs are equal")
    scorers = [read(model, options.data_bin) for model in options.models]
    labels = [scorer.label for scorer in scorers]
    if len({*labels}) < len(labels):
        raise InputError("two models have one name: give each its own, as in small=MODEL")
    fitting = _fitting(pairs, scorers, options.skip_long)
    paradigms: dict[str, list[Pair]] = {}
    for pair in fitting:
        paradigms.setdefault(pair.paradigm, []).append(pair)
    cells = {
        Cell(
            {"model": scorer.label, "paradigm": name},
            {"model": scorer.identity, "metric": scorer.metric(options.metric), "pairs": _digest(group)},
            outcome=Scores,
        ): (scorer, group)
        for scorer in scorers
        for name, group in paradigms.items()
    }

    def run(cell: Cell, folder: Path, progress: Progress) -> dict[str, Any]:
        scorer, group = cells[cell]
        return scorer.of_pairs(group, options.metric, progress)

    with Study.open(options.out, "pairs", [("--data", path) for path in options.data]) as study:
        results = by("model", study.run(list(cells), run))
        ordered = [pair for group in paradigms.values() for pair in group]
        scores = {model: np.array([pair for result in group for pair in result["scores"]]) for model, group in results.items()}
        about = {
            "metrics": {scorer.label: scorer.metric(options.metric) for scorer in scorers},
            "equal": len(every) - len(pairs),
            "long": len(pairs) - len(fitting),
            "unknown": {
                model: sum(result["unknown"] for result in group) / sum(result["tokens"] for result in group)
                for model, group in results.items()
            },
        }
        without = [scorer.label for scorer in scorers if not scorer.has_positions]
        show(study.write(report(summarise(ordered, scores, without), about)))


def _digest(pairs: Sequence[Pair]) -> str:
    return hashlib.sha256(json.dumps([(pair.good, pair.bad) for pair in pairs]).encode()).hexdigest()


def _fitting(pairs: Sequence[Pair], scorers: Sequence[Scorer], skip_long: bool) -> list[Pair]:
    """Return the pairs that no model is too short for.

    Raises:
        InputError: there are others, and they are not to be left out; or there are no such pairs.
    """
    fitting = list(pairs)
    for scorer in scorers:
        if scorer.max_length is not None:
            limit = scorer.max_length
            short = [p for p in fitting if max(len(scorer.encode(text).ids) for text in (p.good, p.bad)) <= limit]
            if len(short) < len(fitting) and not (skip_long and short):
                raise InputError(
                    f"{scorer.label} takes {limit} tokens, and {len(fitting) - len(short):,} of {len(fitting):,} pairs are longer"
                    + ": leave them out, for all models, with --skip-long" * bool(short)
                )
            fitting = short
    return fitting
