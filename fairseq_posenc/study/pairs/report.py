"""From the scores of sentences to accuracies, and their report."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Drawing
from scipy.stats import bootstrap
from statsmodels.stats.proportion import proportion_confint

from ...base.plotting import grid
from ...base.record import FORMAT
from ..engine.report import Figure, Part, Report, Table, number, with_ends, with_interval
from .data import Pair

TIE = 1e-4
"""The share of a score below which a difference is a tie."""
ALL, ORDER = "all pairs", "word order"
MEANING = (
    "The accuracy is the share of the pairs, in per cent, of which a model finds the acceptable sentence more probable; a tie, a "
    f"difference below {TIE:g} of the scores, counts as one half. {ORDER.capitalize()}: the pairs whose sentences have the same "
    "words and differ in their order alone, of which an encoder without positions must get 50. What follows ± is half of the 95% "
    "interval over pairs (Wilson 1927). A difference is that from the first model on the same pairs, with its 95% interval by a "
    "paired bootstrap over pairs."
)

PERPLEXITY = (
    "The perplexity of a text is exp(-Σ log p / tokens), with the log-probabilities of the metric; of a masked model it is a "
    "pseudo-perplexity (Salazar et al. 2020, for the metric original). Bits per character compare models with one metric and "
    "other tokenizers."
)
KINDS = {"phenomena": "phenomenon", "paradigms": "paradigm"}
"""Of groups of pairs, with the field of a pair that names its group."""


def choices(scores: np.ndarray) -> np.ndarray:
    """Return 1 for pairs whose first sentence is more probable, 0 for others and 0.5 for ties, from scores (pairs, 2)."""
    good, bad = scores.T
    tie = np.abs(good - bad) <= TIE * np.maximum(np.abs(good), np.abs(bad))
    return np.where(tie, 0.5, good > bad)


def accuracy(chosen: np.ndarray) -> dict[str, Any]:
    """Return the accuracy of choices in per cent with its 95% interval, and the numbers of pairs and of ties."""
    if not len(chosen):
        return {**dict.fromkeys(("accuracy", "low", "high")), "pairs": 0, "ties": 0}
    low, high = (100 * float(end) for end in proportion_confint(chosen.sum(), len(chosen), method="wilson"))
    shares = {"accuracy": 100 * float(chosen.mean()), "low": low, "high": high}
    return {**shares, "pairs": len(chosen), "ties": int((chosen == 0.5).sum())}


def difference(chosen: np.ndarray, baseline: np.ndarray) -> dict[str, Any] | None:
    """Return the mean difference of choices on the same pairs, in per cent, and its 95% interval; None for less than two."""
    deltas = 100 * (chosen - baseline)
    if len(deltas) < 2:
        return None
    if np.ptp(deltas) == 0:
        return dict.fromkeys(("mean", "low", "high"), float(deltas[0]))
    ends = bootstrap((deltas,), np.mean, n_resamples=2000, batch=50, method="percentile", rng=0).confidence_interval
    return {"mean": float(deltas.mean()), "low": float(ends.low), "high": float(ends.high)}


def perplexity(result: Mapping[str, Any], characters: int) -> dict[str, float]:
    """Return the perplexity per token, exp(-Σ log p / tokens), and the bits per character, of a text's scores."""
    nats, tokens = -sum(score for (score,) in result["scores"]), result["tokens"]
    per_token, bits = math.exp(min(nats / tokens, 700)), nats / math.log(2) / characters
    return {"tokens": tokens, "per_token": per_token, "bits_per_character": bits}


def summarise(pairs: Sequence[Pair], scores: Mapping[str, np.ndarray], without_positions: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row per model: ``model``; the accuracy on :data:`ALL` and :data:`ORDER`, by phenomenon and by paradigm.

    Args:
        pairs: that all models have scored.
        scores: (pairs, 2) by model.
        without_positions: models that cannot tell the order of words.
    """
    groups = {ALL: np.ones(len(pairs), bool), ORDER: np.array([pair.only_order_differs for pair in pairs], bool)}
    by_kind = {kind: _groups([getattr(pair, name) for pair in pairs]) for kind, name in KINDS.items()}
    baseline, rows = None, []
    for model, values in scores.items():
        chosen = choices(values)
        row: dict[str, Any] = {"model": model, "has_positions": model not in without_positions}
        for name, group in groups.items():
            row[name] = accuracy(chosen[group])
            row[f"{name}, difference"] = None if baseline is None else difference(chosen[group], baseline[group])
        row |= {kind: {name: accuracy(chosen[group]) for name, group in of.items()} for kind, of in by_kind.items()}
        baseline = chosen if baseline is None else baseline
        rows.append(row)
    return rows


def report(rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> Report:
    """Return the report of :func:`summarise`'s rows.

    Args:
        rows: one per model.
        about: ``metrics`` by model, and the numbers of pairs that were left out: ``equal``, ``long``; ``unknown``, the share of
            tokens that a vocabulary lacks, and the results of :func:`perplexity`, if any, by model.
    """
    head = ["model", "metric", ALL, "difference", ORDER, "difference", "ties"]
    lines = []
    for row in rows:
        cells = [row["model"], about["metrics"][row["model"]]]
        for name in (ALL, ORDER):
            shown = "" if (change := row[f"{name}, difference"]) is None else with_ends(change, form="+.1f", to=" to ")
            cells += [with_interval(row[name], ".1f", "accuracy"), shown]
        lines.append([*cells, f"{row[ALL]['ties']:,}"])
    has_pairs = rows[0][ALL]["pairs"] > 0
    summary: list[Part] = [Table(head, lines), MEANING] if has_pairs else []
    summary += [*_perplexities(about.get("perplexity", {}), about["metrics"]), *_warnings(rows, about)]
    tables = {}
    for kind, title in KINDS.items():
        head = [title, "pairs", *(row["model"] for row in rows)]
        named = {name: [row[kind][name] for row in rows] for name in rows[0][kind]}
        lines = [[name or "–", f"{of[0]['pairs']:,}", *(number(x["accuracy"], ".1f") for x in of)] for name, of in named.items()]
        tables[kind] = Table(head, lines)
    caption = "Accuracy by phenomenon, with the 95% interval over pairs. The dotted line is chance."
    sections: dict[str, list[Part]] = {
        "Phenomena": [Figure("phenomena", caption, _bars(rows)), tables["phenomena"]] if len(rows[0]["phenomena"]) > 1 else [],
        "Paradigms": [tables["paradigms"]] if has_pairs else [],
    }
    flat = [{key: value for key, value in row.items() if key not in KINDS} for row in rows]
    return Report("Minimal pairs", summary, {"format": FORMAT, **about, "models": rows}, flat, sections)


def _perplexities(texts: Mapping[str, Mapping[str, float]], metrics: Mapping[str, str]) -> list[Part]:
    lines = [
        [model, metrics[model], f"{text['tokens']:,}", f"{text['per_token']:.4g}", f"{text['bits_per_character']:.3f}"]
        for model, text in texts.items()
    ]
    head = ["model", "metric", "tokens", "perplexity per token", "bits per character"]
    return [Table(head, lines), PERPLEXITY] if lines else []


def _groups(names: Sequence[str]) -> dict[str, np.ndarray]:
    column = np.array(names, object)
    return {name: column == name for name in sorted(set(names))}


def _warnings(rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> list[str]:
    sentences = [f"{about[name]:,} {words}" for name, words in LEFT_OUT.items() if about[name]]
    for model, share in about["unknown"].items():
        if share > 0.05:
            sentences.append(f"{model}: {share:.0%} of its tokens are unknown symbols, so that its scores say little.")
    for row in rows:
        order = row[ORDER]
        if not row["has_positions"] and order["pairs"] and not order["low"] <= 50 <= order["high"]:
            sentences.append(f"{row['model']} has no positions, and does not get 50 of {ORDER}: something is wrong.")
    return sentences


LEFT_OUT = {
    "equal": "pairs of equal sentences were left out.",
    "long": "pairs that are longer than a model takes, or than --max-length, were left out for all.",
    "long_lines": "lines that are longer than a model takes, or than --max-length, were left out for all.",
}


def _bars(rows: Sequence[Mapping[str, Any]]) -> Drawing:
    """Draw a bar per phenomenon and model."""
    names = list(rows[0]["phenomena"])
    figure, (panel,) = grid([""], (6.4, 0.9 + 0.16 * len(names) * (len(rows) + 1)))
    height = 0.8 / len(rows)
    for i, row in enumerate(rows):
        values = [row["phenomena"][name] for name in names]
        shares = [value["accuracy"] for value in values]
        errors = [[v["accuracy"] - v["low"] for v in values], [v["high"] - v["accuracy"] for v in values]]
        places = np.arange(len(names)) + (i - (len(rows) - 1) / 2) * height
        panel.barh(places, shares, height, xerr=errors, label=row["model"], error_kw={"elinewidth": 0.7})
    panel.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
    panel.invert_yaxis()
    panel.axvline(50, color="0.4", linewidth=0.9, linestyle=":")
    panel.set(xlim=(0, 100), xlabel="accuracy, per cent")
    panel.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure
