"""When a run begins to use word order: until then, its loss shows nothing about its positions.

At every validation, the loss is also measured with the visible words of each sample permuted. It is that in order as long as the
model uses no word order.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, takewhile
from statistics import fmean, median
from typing import Any

import numpy as np

from ...base.record import FINISHED
from ...core.families import architectures, tells_order
from .plan import LEFT_TO_RIGHT
from .statistics import geometric

USED = 0.1
"""Bits by which the loss of a model that uses word order is less than that on permuted words."""

Run = Mapping[str, Any]
"""The result of a cell."""


def is_measured(runs: Iterable[Run]) -> bool:
    """Return whether all of these runs that finished have a loss on permuted words, as those of older releases have not."""
    return all(run.get("permuted") is not None for run in runs if run["status"] == FINISHED)


def start(run: Run) -> float:
    """Return the updates from which a run used word order until its end; infinity if it did not.

    They are where the line between two validations passes :data:`USED`: the first from which all are above it, and that before,
    if there is one. A run that failed or diverged did not start.
    """
    if run["status"] != FINISHED:
        return math.inf
    points = [point for point in run["curve"] if point.get("permuted") is not None]
    saved = [*(point["permuted"] - point["loss"] for point in points[:-1]), run["permuted"] - run["loss"]]
    used = sum(1 for _ in takewhile(lambda bits: bits > USED, reversed(saved)))
    if not used or not points:
        return math.inf
    both = [max(0, len(saved) - used - 1), len(saved) - used]
    return float(np.interp(USED, [saved[place] for place in both], [points[place]["updates"] for place in both]))


def last_update(runs: Iterable[Run]) -> int:
    """Return the updates at the last validation of those of these runs that finished; 0 if none did."""
    return max((run["curve"][-1]["updates"] for run in runs if run["status"] == FINISHED), default=0)


def never_starts(run: Run) -> bool:
    """Return whether the model cannot use word order, whatever the budget: a masked language model without positions."""
    given = dict(pairwise(run["configuration"]["flags"]))
    architecture = architectures().get(given.get("--arch", ""))
    expression = given.get("--positions") or (architecture and architecture.expression) or ""
    return given.get("--task") != LEFT_TO_RIGHT and not tells_order(expression, int(given.get("--mask-decoder-steps", 0)))


def is_late(runs: Sequence[Run]) -> bool:
    """Return whether most runs of a scheme that can have not begun to use word order, as far as that was measured."""
    done = [run for run in runs if run["status"] == FINISHED]
    if not done or not is_measured(done) or any(map(never_starts, done)):
        return False
    return 2 * sum(start(run) < math.inf for run in runs) < len(runs)


def ratio(runs: Sequence[Run], others: Sequence[Run]) -> dict[str, Any] | None:
    """Return the ratio of the starts of two schemes, as :func:`.statistics.geometric`; None below two seeds.

    A run that did not start counts with the budget, which moves the ratio towards 1.
    """
    planned = [dict(pairwise(run["configuration"]["flags"])).get("--max-update", 0) for run in (*runs, *others)]
    budget = max(last_update([*runs, *others]), *map(int, planned))
    both = [{run["seed"]: min(start(run), budget) for run in group} for group in (runs, others)]
    ratios = [both[0][seed] / both[1][seed] for seed in both[0].keys() & both[1].keys()]
    return geometric(ratios) if len(ratios) > 1 else None


def summary(runs: Sequence[Run], reference: Sequence[Run], age: int) -> dict[str, Any]:
    """Return what :func:`.results.summarise` describes as ``start``.

    Args:
        runs: of a scheme.
        reference: those of the reference; none for the reference itself.
        age: the updates after the start at which runs are compared.
    """
    starts = [start(run) for run in runs]
    begun = [run for run, at in zip(runs, starts, strict=True) if at < math.inf]
    older = [run for run in begun if start(run) + age <= last_update([run])]
    at_age = [float(np.interp(start(run) + age, *_curve([run]))) for run in older]
    ends = {"median": median(starts), "first": min(starts), "last": max(starts)}
    x, y = _curve([run for run in runs if run["status"] == FINISHED])
    points = np.unique(x)
    last = x >= points[-max(2, len(points) // 5) :][0]
    return {
        **{name: value if value < math.inf else None for name, value in ends.items()},
        "ratio": ratio(runs, reference) if begun else None,
        "started": len(begun),
        "of": len(runs),
        "loss": fmean(run["loss"] for run in begun) if begun else None,
        "age": age,
        "loss_at_age": fmean(at_age) if at_age else None,
        "slope": -100 * float(np.polyfit(x[last], y[last], 1)[0]) if np.ptp(x[last]) else 0.0,
    }


def _curve(runs: Sequence[Run]) -> tuple[np.ndarray, np.ndarray]:
    """The updates and the losses of all validations, (points,) each."""
    points = np.array([(point["updates"], point["loss"]) for run in runs for point in run["curve"]], np.float64)
    return points[:, 0], points[:, 1]
