"""From the runs of a comparison to one row per scheme."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from ...base.record import DIVERGED, FAILED, FINISHED
from ..engine.statistics import by
from .cells import losses_of
from .plan import Plan
from .statistics import MIN_SEEDS, confidence_set, estimate, holm, multi_bootstrap

BELOW_NONE, BELOW_UNIGRAM = 0.1, 0.5
"""Bits by which the loss of a run that has learned word order is less than that of ``none``, and of the frequencies of words."""

Run = Mapping[str, Any]
"""The result of a cell."""


def choose(runs: Sequence[Run]) -> dict[str, float | None]:
    """Return the learning rate of each scheme: that of the run with seed 1 and the least loss on the first half, or None."""
    chosen = {}
    for scheme, group in by("scheme", runs).items():
        done = [run for run in group if run["seed"] == 1 and run["status"] == FINISHED]
        chosen[scheme] = min(done, key=lambda run: run["selection"])["lr"] if done else None
    return chosen


def counted(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Return the runs of each scheme with its chosen learning rate, by seed; all of them where no run with seed 1 finished."""
    chosen = choose(runs)
    return {
        scheme: sorted((run for run in group if chosen[scheme] in (None, run["lr"])), key=lambda run: run["seed"])
        for scheme, group in by("scheme", runs).items()
    }


def finished(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Return those of :func:`counted` that finished, none for some schemes."""
    return {scheme: [run for run in group if run["status"] == FINISHED] for scheme, group in counted(runs).items()}


def order_bound(runs: Sequence[Run]) -> float:
    """Return the loss that a finished run must fall below to count as one that has learned word order.

    A model without positions learns which words occur together, so that only the scheme ``none`` shows how much that is.
    """
    done = [run for run in runs if run["status"] == FINISHED]
    none = [run["loss"] for run in finished(runs).get("none", ())]
    bounds = [run["unigram"] - BELOW_UNIGRAM for run in done[:1] if run.get("unigram") is not None]
    return min([*bounds, *([fmean(none) - BELOW_NONE] if none else [])], default=math.inf)


def common_seeds(groups: Mapping[str, Sequence[Run]]) -> set[int]:
    """Return the seeds with which every scheme has a run that finished, except schemes of which a run failed or diverged.

    Runs of a seed share batches, masks and weights, so that means over different seeds do not compare.
    """
    whole = [{run["seed"] for run in group} for group in groups.values() if {run["status"] for run in group} == {FINISHED}]
    return set.intersection(*whole) if whole else set()


def summarise(plan: Plan, runs: Sequence[Run], out: Path, costs: Sequence[Run] = ()) -> list[dict[str, Any]]:
    """Return one row per scheme in JSON's types, the best first; those of which a run diverged come last.

    Of the runs with the chosen learning rate:

    - ``scheme``, its name; ``positions``, its expression or architecture; ``lr``, the learning rate, or None.
    - ``runs``, those that finished; ``diverged``; ``failed``, with any learning rate; ``unlearned``, finished ones above
      :func:`order_bound`.
    - ``losses`` by seed, bits per predicted token of the second half of the validation text; ``loss``, the mean over
      :func:`common_seeds`, with its 95% interval from ``low`` to ``high``, None for a single seed; ``perplexity``, 2^loss.
    - ``parameters`` of the positions; ``cost``, the median time of a training step relative to the reference (see
      :class:`.costs.Costs`), None where it has not been measured.
    - ``in_set``, whether it is in :func:`.statistics.confidence_set`, by the same seeds; None for a scheme that is not tested,
      since it has fewer than three or a run that diverged.
    - ``difference`` from the reference over the seeds that both have, an :class:`.statistics.Estimate` with ``p_holm``, the
      p-value corrected for the number of schemes, and ``multi_bootstrap``, the interval over seeds and items; None for the
      reference, where there are fewer than two such seeds, and where a run of either diverged.
    """
    groups, done, bound = counted(runs), finished(runs), order_bound(runs)
    reference = done.get(plan.reference, [])
    sound = [scheme for scheme, group in groups.items() if done[scheme] and not _count(group, DIVERGED)]
    common = common_seeds(groups)
    shared = {scheme: [run for run in group if run["seed"] in common] or group for scheme, group in done.items()}
    tested = [scheme for scheme in sound if len(shared[scheme]) >= MIN_SEEDS]
    best = confidence_set({scheme: _losses(shared[scheme]) for scheme in tested})
    failed = {scheme: _count(group, FAILED) for scheme, group in by("scheme", runs).items()}
    ratios = {plan.reference: 1.0, **{cost["cost"]: cost["ratio"]["median"] for cost in costs if cost["status"] == FINISHED}}
    compared = {*sound} - {plan.reference} if plan.reference in sound else set()
    rows = [
        {
            "scheme": scheme,
            "positions": plan.schemes[scheme].arch or plan.schemes[scheme].positions or scheme,
            "lr": group[0]["lr"] if done[scheme] else None,
            "runs": len(done[scheme]),
            "diverged": _count(group, DIVERGED),
            "failed": failed[scheme],
            "unlearned": sum(run["loss"] >= bound for run in done[scheme]),
            "losses": {str(run["seed"]): run["loss"] for run in done[scheme]},
            **_level(shared[scheme]),
            "cost": ratios.get(scheme),
            "in_set": scheme in best if scheme in tested else None,
            "difference": _difference(done[scheme], reference, out) if scheme in compared else None,
        }
        for scheme, group in groups.items()
    ]
    differences = [row["difference"] for row in rows if row["difference"]]
    for difference, p in zip(differences, holm([difference["p"] for difference in differences]), strict=True):
        difference["p_holm"] = p
    return sorted(rows, key=lambda row: (row["scheme"] not in sound, row["loss"] is None, row["loss"]))


def _count(runs: Iterable[Run], status: str) -> int:
    return sum(run["status"] == status for run in runs)


def _losses(runs: Iterable[Run]) -> np.ndarray:
    return np.array([run["loss"] for run in runs])


def _level(done: Sequence[Run]) -> dict[str, Any]:
    if not done:
        return dict.fromkeys(("loss", "low", "high", "perplexity", "parameters"))
    losses = _losses(done)
    interval = estimate(losses) if len(losses) > 1 else None
    loss = float(losses.mean())
    ends = {"low": interval and interval.low, "high": interval and interval.high}
    return {"loss": loss, **ends, "perplexity": 2**loss, "parameters": done[0]["parameters"]}


def _difference(done: Sequence[Run], reference: Sequence[Run], out: Path) -> dict[str, Any] | None:
    seeds = {run["seed"] for run in done} & {run["seed"] for run in reference}
    if len(seeds) < 2:
        return None
    pair = [[run for run in group if run["seed"] in seeds] for group in (done, reference)]
    (a, weights), (b, _) = (losses_of(group, out) for group in pair)
    return {**vars(estimate(_losses(pair[0]) - _losses(pair[1]))), "multi_bootstrap": multi_bootstrap(a, b, weights)}
