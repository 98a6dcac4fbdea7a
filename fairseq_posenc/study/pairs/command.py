"""Score minimal pairs: of two sentences, which one does a model find more probable?

    fairseq-posenc pairs checkpoints bert-base-uncased --data blimp/data --out pairs

MODEL is a checkpoint, the folder of a run, or the folder or name of a masked or causal language model of transformers, with
LABEL=MODEL for another name in the report. The pairs are JSON lines as BLiMP's, CSV or TSV with sentence_good and sentence_bad,
and linguistics_term, field and UID where they have them. OUT gets report.html, results.md, results.csv, results.json and a folder
per model; the same command again does only what is not done yet.

--perplexity FILE, with or without --data, gives the pseudo-perplexity of the lines of a text by the same scores.

Besides the accuracy on all pairs there is that on "word order": the pairs whose sentences have the same words and differ in their
order alone, of which an encoder without positions must get 50%.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import Field

from ...base.commands import existing, option, show
from ...base.errors import InputError, require_extras
from ...base.record import Recorded
from ..engine.grid import Cell, Progress

if TYPE_CHECKING:
    from .data import Pair
    from .scoring import Scorer

Texts = tuple[str, ...]
"""A pair, which begins with its two sentences, or a line alone."""
Row = TypeVar("Row", bound=Texts)
METRICS = ("within_word_l2r", "original")


def _paths(text: str) -> tuple[Path, ...]:
    return tuple(map(existing, text.split(",")))


@dataclass(frozen=True, kw_only=True)
class Options:
    """The flags of ``fairseq-posenc pairs``."""

    models: tuple[str, ...] = option("[LABEL=]MODEL", names=("models",), nargs="+", metavar="MODEL")
    data: tuple[Path, ...] = option("files of pairs, or folders with them", (), parse=_paths, metavar="PATH[,PATH…]")
    perplexity: Path | None = option("a text whose perplexity is measured, each line alone", None, parse=existing, metavar="FILE")
    out: Path = option("the folder to write", metavar="DIR")
    metric: str = option("what is masked for the score of a token, in masked language models", METRICS[0], choices=METRICS)
    data_bin: Path | None = option(
        "the vocabulary of checkpoints (default: that of their training)", None, parse=existing, metavar="DIR"
    )
    skip_long: bool = option("leave out the pairs that are longer than one of the models takes", False)
    max_length: int | None = option("leave out the pairs that are longer than N tokens of a model", None, minimum=1, metavar="N")
    limit: int | None = option("read the first N pairs of each paradigm only", None, minimum=1, metavar="N")


class Scores(Recorded):
    """The fields of the result of a cell: scores of the pairs of a paradigm, or of the lines of a text, and numbers of tokens."""

    scores: list[Annotated[list[float], Field(min_length=1, max_length=2)]]
    tokens: int
    unknown: int


def main(options: Options) -> None:
    """Run the command."""
    require_extras("compare")
    import numpy as np

    from ..engine.statistics import by
    from ..engine.study import Study
    from .data import read_lines
    from .models import read
    from .report import perplexity, report, summarise

    every, lines = pairs_of(options), [] if options.perplexity is None else read_lines(options.perplexity)
    pairs = [pair for pair in every if pair.good != pair.bad]
    if not (every or lines):
        raise InputError("there is nothing to score: give --data, --perplexity or both")
    if every and not pairs:
        raise InputError(f"--data {', '.join(map(str, options.data))}: the sentences of all pairs are equal")
    scorers = [read(model, options.data_bin) for model in options.models]
    labels = [scorer.label for scorer in scorers]
    if len({*labels}) < len(labels):
        raise InputError("two models have one name: give each its own, as in small=MODEL")
    fitting, fitting_lines = _fitting(pairs, scorers, options), _fitting(lines, scorers, options)
    paradigms = groupby(fitting, lambda pair: pair.paradigm)  # in whose order the pairs are
    groups: list[tuple[dict[str, str], Sequence[Texts]]] = [({"paradigm": name}, [*group]) for name, group in paradigms]
    inputs = [("--data", path) for path in options.data]
    if options.perplexity is not None:
        groups.append(({"text": options.perplexity.name}, fitting_lines))
        inputs.append(("--perplexity", options.perplexity))
    cells = {
        Cell(
            {"model": scorer.label, **key},
            {"model": scorer.identity, "metric": scorer.metric(options.metric), "pairs": _digest(group)},
            within="texts" if "text" in key else "runs",  # a paradigm may have the name of the text
            outcome=Scores,
        ): (scorer, group)
        for scorer in scorers
        for key, group in groups
    }

    def run(cell: Cell, folder: Path, progress: Progress) -> dict[str, Any]:
        scorer, group = cells[cell]
        return scorer.of_texts(group, options.metric, progress)

    with Study.open(options.out, "pairs", inputs) as study:
        every_result = by("model", study.run(list(cells), run))
        results = {model: group for model, group in every_result.items() if len(group) == len(groups)}  # none of which failed
        if not results:
            return
        scores = {
            model: np.array([pair for result in group if "paradigm" in result for pair in result["scores"]]).reshape(-1, 2)
            for model, group in results.items()
        }
        about: dict[str, Any] = {
            "metrics": {scorer.label: scorer.metric(options.metric) for scorer in scorers},
            "equal": len(every) - len(pairs),
            "long": len(pairs) - len(fitting),
            "long_lines": len(lines) - len(fitting_lines),
            "unknown": {
                model: sum(result["unknown"] for result in group) / max(1, sum(result["tokens"] for result in group))
                for model, group in results.items()
            },
        }
        if lines:
            characters = sum(len(line) for (line,) in fitting_lines)
            for model, group in results.items():
                if not group[-1]["tokens"]:
                    raise InputError(f"--perplexity {options.perplexity} has no token that {model} predicts")
            about["perplexity"] = {model: perplexity(group[-1], characters) for model, group in results.items()}
        without = [scorer.label for scorer in scorers if not scorer.has_positions]
        show(report(summarise(fitting, scores, without), about).write(study.out))


def pairs_of(options: Options) -> list[Pair]:
    """Return the pairs that are read; raises InputError or OSError as :func:`.data.read_pairs`."""
    from .data import read_pairs

    return read_pairs(options.data, options.limit)


def _digest(rows: Sequence[Texts]) -> str:
    return hashlib.sha256(json.dumps([row[:2] for row in rows]).encode()).hexdigest()


def _fitting(rows: Sequence[Row], scorers: Sequence[Scorer], options: Options) -> list[Row]:
    """Return the pairs, or lines, that no model is too short for, and that are no longer than ``--max-length``.

    Raises:
        InputError: there are others, and they are not to be left out; or there are no such pairs.
    """
    fitting = list(rows)
    for scorer in scorers:
        if (limit := min(filter(None, (scorer.max_length, options.max_length)), default=None)) is not None:
            short = [row for row in fitting if max(len(scorer.encode(text).ids) for text in row[:2]) <= limit]
            allowed = options.skip_long or limit == options.max_length
            if len(short) < len(fitting) and not (allowed and short):
                name = "pairs" if len(rows[0]) > 1 else "lines"
                longer = f"{len(fitting) - len(short):,} of {len(fitting):,} {name} are longer"
                limited = f"--max-length {limit}" if limit == options.max_length else f"{scorer.label} takes {limit} tokens"
                raise InputError(f"{limited}: {longer}" + "; leave them out, for all models, with --skip-long" * bool(short))
            fitting = short
    return fitting
