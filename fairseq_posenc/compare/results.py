"""From the runs of a comparison to one row per scheme."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from ..runs.grid import FINISHED
from ..runs.statistics import by
from .cells import losses_of
from .plan import Plan
from .statistics import confidence_set, difference, mean_interval, multi_bootstrap


def choose(runs: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """The learning rate of each scheme whose run with seed 1 has the least loss on the first half; None if all diverged."""
    chosen = {}
    for scheme, tried in by("scheme", [run for run in runs if run["seed"] == 1]).items():
        done = [run for run in tried if run["status"] == FINISHED]
        chosen[scheme] = min(done, key=lambda run: run["selection"])["lr"] if done else None
    return chosen


def summarise(plan: Plan, runs: Sequence[Mapping[str, Any]], out: Path) -> list[dict[str, Any]]:
    """One row per scheme, the best first, in JSON's types; those of which a run diverged come last.

    A row has ``scheme``, ``positions``, ``lr``, ``runs`` (finished), ``diverged``, ``losses`` by seed, ``loss``, their mean in
    bits per predicted token of the second half of the validation text, its ``interval``, ``perplexity``, ``parameters`` of the
    positions, ``speed``, the time per update relative to that of the reference, ``in_set``, whether it is in the set of
    :func:`.statistics.confidence_set`, and ``difference`` from the reference over the seeds that both have: None for the
    reference and where fewer than two seeds are there.
    """
    chosen = choose(runs)
    of_scheme = {
        scheme: {run["seed"]: run for run in group if run["lr"] == chosen[scheme] and run["status"] == FINISHED}
        for scheme, group in by("scheme", runs).items()
    }
    diverged = {
        scheme: sum(run["status"] != FINISHED and chosen[scheme] in (None, run["lr"]) for run in group)
        for scheme, group in by("scheme", runs).items()
    }
    sound = {scheme: done for scheme, done in of_scheme.items() if done and not diverged[scheme]}
    best = confidence_set({scheme: _losses(done.values()) for scheme, done in sound.items()})
    reference = of_scheme.get(plan.reference, {})
    rows = [
        {
            "scheme": scheme,
            "positions": plan.schemes[scheme].arch or plan.schemes[scheme].positions or scheme,
            "lr": chosen[scheme],
            "runs": len(done),
            "diverged": diverged[scheme],
            "losses": {str(seed): run["loss"] for seed, run in sorted(done.items())},
            **_level(done),
            "speed": _seconds(done) / _seconds(reference) if done and reference else None,
            "in_set": scheme in best,
            "difference": None if scheme == plan.reference else _difference(done, reference, out),
        }
        for scheme, done in of_scheme.items()
    ]
    return sorted(rows, key=lambda row: (row["scheme"] not in sound, row["loss"] is None, row["loss"]))


def _losses(runs: Any) -> np.ndarray:
    return np.array([run["loss"] for run in sorted(runs, key=lambda run: run["seed"])])


def _level(done: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    if not done:
        return {"loss": None, "interval": None, "perplexity": None, "parameters": None}
    losses = _losses(done.values())
    interval = mean_interval(losses) if len(losses) > 1 else None
    loss = float(losses.mean())
    return {"loss": loss, "interval": interval, "perplexity": 2**loss, "parameters": next(iter(done.values()))["parameters"]}


def _seconds(done: Mapping[int, Mapping[str, Any]]) -> float:
    """The median time per update."""
    return median(run["curve"][-1]["seconds"] / run["curve"][-1]["updates"] for run in done.values())


def _difference(done: Mapping[int, Any], reference: Mapping[int, Any], out: Path) -> dict[str, Any] | None:
    seeds = sorted(done.keys() & reference.keys())
    if len(seeds) < 2:
        return None
    pair = [[runs[seed] for seed in seeds] for runs in (done, reference)]
    (a, weights), (b, _) = (losses_of(runs, out) for runs in pair)
    return {**vars(difference(*map(_losses, pair))), "multi_bootstrap": multi_bootstrap(a, b, weights)}
