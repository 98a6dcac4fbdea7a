"""From the runs of a comparison to one row per scheme."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from ...base.record import DIVERGED, FAILED, FINISHED
from ..engine.statistics import by
from . import starts
from .plan import SELECTION, Plan
from .starts import Run
from .statistics import LEVEL, MIN_SEEDS, against, estimate

TOLERANCE = 0.05
"""Bits by which a larger learning rate must be better than a smaller one to be chosen."""
MARGIN = 0.1
"""Bits; a scheme is among the best if its loss is larger than the least by less than this with 95% confidence."""
AGE = 4
"""Runs are compared at a quarter of the budget after their start."""
ACCURACIES = ("all pairs", "word order")
"""The results of ``pairs`` that are part of a row: over all pairs, and over those whose order alone differs."""
BEST, WORSE, UNDECIDED = "best", "worse", "undecided"


def choose(runs: Sequence[Run]) -> dict[str, float | None]:
    """Return the learning rate of each scheme; None if a run failed or diverged at each rate.

    It is the least of the rates whose loss on the first half of the text, the mean over the seeds :data:`.plan.SELECTION`, is
    within :data:`TOLERANCE` of the least. A rate at which one of these runs failed or diverged is left out, except a single one.
    """
    chosen: dict[str, float | None] = {}
    for scheme, group in by("scheme", runs).items():
        rates = by("lr", (run for run in group if run["seed"] in SELECTION))
        sound = {lr: of_rate for lr, of_rate in rates.items() if {run["status"] for run in of_rate} == {FINISHED}}
        means = {lr: fmean(run["selection"] for run in of_rate) for lr, of_rate in sound.items()}
        near = [lr for lr, mean in means.items() if mean <= min(means.values()) + TOLERANCE]
        chosen[scheme] = min(rates if len(rates) == 1 else near, default=None)
    return chosen


def counted(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Return the runs of each scheme with its chosen learning rate, by seed; with the least rate where none was chosen."""
    chosen, groups = choose(runs), by("scheme", runs)
    rates = {scheme: chosen[scheme] or min(run["lr"] for run in group) for scheme, group in groups.items()}
    return {
        scheme: sorted((run for run in group if run["lr"] == rates[scheme]), key=lambda run: run["seed"])
        for scheme, group in groups.items()
    }


def finished(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Return those of :func:`counted` that finished, none for some schemes."""
    return {scheme: [run for run in group if run["status"] == FINISHED] for scheme, group in counted(runs).items()}


def shared_seeds(groups: Mapping[str, Sequence[Run]]) -> set[int]:
    """Return the seeds with which more than half of the schemes have a run: those of the table.

    Runs of a seed share batches, masks and weights, so that means over different seeds do not compare.
    """
    counts = Counter(run["seed"] for group in groups.values() for run in group)
    return {seed for seed, count in counts.items() if 2 * count > len(groups)}


def summarise(plan: Plan, runs: Sequence[Run], costs: Sequence[Run] = (), scores: Sequence[Run] = ()) -> list[dict[str, Any]]:
    """Return one row per scheme in JSON's types, the best first.

    All columns are of the runs with the chosen learning rate and the seeds of :func:`shared_seeds`. A scheme is tested if it has
    a run of each that finished; others come last. A run that failed or diverged has no loss, and did not start. No run has a loss
    where the plan ends runs early (``stop``), and the scheme that starts first is the best.

    - ``scheme``, its name; ``positions``, its expression or architecture; ``lr``, the learning rate, or None; ``runs``, those
      that finished; ``diverged`` and ``failed``, with any learning rate and seed; ``parameters`` of the positions.
    - ``losses`` by seed, bits per predicted token of the second half of the validation text; ``loss``, their mean, with its 95%
      interval from ``low`` to ``high``, None for a single seed.
    - ``state``: ``best``, ``worse`` or ``undecided`` (:func:`_state`); ``from_best``, of :func:`.statistics.against`;
      ``late``, see :func:`.starts.is_late`.
    - ``difference`` from the reference, of :func:`.statistics.against`; its p-values are None where most runs of one of both have
      not started.
    - ``start``: the ``median``, ``first`` and ``last`` of the starts in updates (:func:`.starts.start`), None for infinity;
      ``ratio`` to the reference (:func:`.starts.ratio`); ``started``, the number of runs that did, of ``of``; ``loss``, theirs;
      ``age`` and ``loss_at_age``, their loss so many updates after the start; ``slope``, the decrease of the loss in bits per 100
      updates over the last fifth of the validations. None where it was not measured.
    - ``all pairs`` and ``word order``: the ``mean`` accuracy on minimal pairs in per cent, and its 95% interval over seeds, from
      ``low`` to ``high``; None where it was not measured.
    - ``cost``: the ``median`` time of a training step relative to the reference (see :func:`.costs.measure`), and its range from
      ``low`` to ``high``; None where it has not been measured.
    """
    every = counted(runs)
    seeds = shared_seeds(every)
    groups = {scheme: [run for run in group if run["seed"] in seeds] for scheme, group in every.items()}
    done = {scheme: [run for run in group if run["status"] == FINISHED] for scheme, group in groups.items()}
    losses = {scheme: np.array([run["loss"] for run in group if not plan.stop]) for scheme, group in done.items()}
    whole = [scheme for scheme, group in done.items() if group and {run["seed"] for run in group} == seeds]
    with_losses = [] if plan.stop else whole
    tested = [scheme for scheme in with_losses if len(seeds) >= MIN_SEEDS and not starts.is_late(groups[scheme])]
    with_p = {scheme: losses[scheme] for scheme in tested}
    from_best = against(min(tested, key=lambda scheme: with_p[scheme].mean()), with_p) if len(tested) > 1 else {}
    from_reference = {
        scheme: {**estimate(losses[scheme] - losses[plan.reference]), "p": None, "p_holm": None}
        for scheme in with_losses
        if plan.reference in whole and scheme != plan.reference and len(seeds) > 1
    } | (against(plan.reference, with_p) if plan.reference in tested else {})
    age = min((starts.last_update([run]) for group in done.values() for run in group), default=0) // AGE
    reference = groups.get(plan.reference, [])
    ratios = {cost["cost"]: {"low": None, "high": None, **cost["ratio"]} for cost in costs if cost["status"] == FINISHED}
    ratios |= {plan.reference: {"median": 1.0, "low": None, "high": None}} if ratios else {}
    without_losses = dict.fromkeys(("loss", "loss_at_age") if plan.stop else ())
    rows = [
        {
            "scheme": scheme,
            "positions": plan.schemes[scheme].arch or plan.schemes[scheme].positions or scheme,
            "lr": group[0]["lr"] if done[scheme] else None,
            "runs": len(done[scheme]),
            **{status: sum(run["status"] == status for run in runs if run["scheme"] == scheme) for status in (DIVERGED, FAILED)},
            "parameters": done[scheme][0]["parameters"] if done[scheme] else None,
            "losses": {str(run["seed"]): run["loss"] for run in done[scheme] if not plan.stop},
            **level(losses[scheme]),
            "state": _state(scheme, from_best) if scheme in tested and from_best else UNDECIDED,
            "from_best": from_best.get(scheme),
            "late": starts.is_late(group),
            "difference": from_reference.get(scheme),
            "start": starts.summary(group, [] if group is reference else reference, age) | without_losses
            if done[scheme] and starts.is_measured([*group, *reference])
            else None,
            **{name: _accuracy(scores, scheme, name, seeds) for name in ACCURACIES},
            "cost": {name: ratios[scheme][name] for name in ("median", "low", "high")} if scheme in ratios else None,
        }
        for scheme, group in groups.items()
    ]
    order = {row["scheme"]: row["loss"] or (row["start"] or {}).get("median") or math.inf for row in rows}
    return sorted(rows, key=lambda row: (row["scheme"] not in whole, order[row["scheme"]]))


def level(values: np.ndarray, name: str = "loss") -> dict[str, Any]:
    """Return the mean of a number per seed as ``name``, with the ends of its interval, ``low`` and ``high``; or None."""
    if len(values) > 1:
        found = estimate(values)
        return {name: found["mean"], "low": found["low"], "high": found["high"]}
    return {name: float(values[0]) if len(values) else None, "low": None, "high": None}


def _accuracy(scores: Sequence[Run], scheme: str, name: str, seeds: Collection[int]) -> dict[str, Any] | None:
    found = [run["scores"].get(name) for run in scores if run["scheme"] == scheme and run["seed"] in seeds and "scores" in run]
    values = np.array([value for value in found if value is not None])
    return level(values, "mean") if len(values) else None


def _state(scheme: str, from_best: Mapping[str, Mapping[str, Any]]) -> str:
    """Among the best, within the margin; else worse by more than chance; or neither, since its difference varies too much."""
    difference = from_best.get(scheme)
    if difference is None or difference["high"] < MARGIN:
        return BEST
    return WORSE if difference["p_holm"] < LEVEL else UNDECIDED
