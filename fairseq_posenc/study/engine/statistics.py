"""Statistics over the runs of a grid, of which some may have diverged."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

Run = TypeVar("Run", bound=Mapping[str, Any])


def spread(values: Sequence[float], diverged: int = 0) -> dict[str, float | None]:
    """Return ``median``, ``mean``, ``std``, ``min`` and ``max`` of the scores of the runs that finished.

    Only the median also counts the ``diverged`` runs, as worse than any score; it is None where it falls on one of them. The
    standard deviation of a single run is None.
    """
    median = statistics.median([*[-math.inf] * diverged, *values])
    return {
        "median": median if math.isfinite(median) else None,
        "mean": statistics.fmean(values),
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "min": min(values),
        "max": max(values),
    }


def by(name: str, runs: Iterable[Run]) -> dict[Any, list[Run]]:
    """Group runs by one value of their key, such as ``seed``; both keep the order in which they come."""
    groups: dict[Any, list[Run]] = {}
    for run in runs:
        groups.setdefault(run[name], []).append(run)
    return groups
