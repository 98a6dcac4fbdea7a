"""Which differences between schemes are more than chance.

Seeds are paired: run s of every scheme has the same batches and masks, and the same initial weights where shapes agree, except
those of positions. A comparison of two schemes, or of several, is a number per seed, whose mean is tested by Student's t. The
text on which losses are measured is taken as fixed.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats
from statsmodels.stats.multitest import multipletests

LEVEL = 0.05
MIN_SEEDS = 3
"""Runs, with fewer of which a scheme is not tested: Student's t with one degree of freedom decides nothing."""


def estimate(values: np.ndarray) -> dict[str, Any]:
    """Return an estimate of the mean of a number per seed: a loss, or the difference of two schemes' losses with the same seed.

    It has the ``mean``; ``low`` and ``high``, the ends of its 95% interval by Student's t; ``p``, the p-value of the t test of
    the mean 0; and ``seeds``, their number.

    Args:
        values: (seeds,).

    Raises:
        ValueError: there are fewer than two.
    """
    values = np.asarray(values, np.float64)
    if len(values) < 2:
        raise ValueError(f"an interval needs two seeds or more: {len(values)}")
    mean = float(values.mean())
    if np.ptp(values) == 0:  # where Student's t is not defined
        return {"mean": mean, "low": mean, "high": mean, "p": float(mean == 0), "seeds": len(values)}
    test = stats.ttest_1samp(values, 0.0)
    low, high = map(float, test.confidence_interval(1 - LEVEL))
    return {"mean": mean, "low": low, "high": high, "p": float(test.pvalue), "seeds": len(values)}


def geometric(ratios: Sequence[float]) -> dict[str, Any]:
    """Return an :func:`estimate` of a ratio per seed on a logarithmic scale; ``mean`` is then the geometric one.

    Raises:
        ValueError: there are fewer than two.
    """
    found = estimate(np.log(ratios))
    return found | {name: math.exp(found[name]) for name in ("mean", "low", "high")}


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for the number of tests (Holm 1979)."""
    return multipletests(p_values, LEVEL, "holm")[1].tolist() if len(p_values) else []


def against(name: str, losses: Mapping[str, np.ndarray]) -> dict[str, dict[str, Any]]:
    """Return the difference of each other scheme's loss from that of one: an :func:`estimate` with ``p_holm``.

    That is the p-value corrected for the number of these schemes. If the one is the best of equal schemes, each of the others has
    a p-value below 0.05 in at most 5 of 100 comparisons. Some scheme has in more, because chance also decides which is the best:
    of 17 equal schemes with six seeds, in 15.

    Args:
        name: of the scheme.
        losses: (seeds,) per scheme, of the same seeds.
    """
    found = {other: estimate(values - losses[name]) for other, values in losses.items() if other != name}
    corrected = holm([difference["p"] for difference in found.values()])
    return {other: {**found[other], "p_holm": p} for other, p in zip(found, corrected, strict=True)}
