"""Which differences between schemes are more than chance. Seeds are paired: run s of every scheme has the same batches and masks.

A loss is an array (seeds, items): one row per run, one column per item of the test text, such as a sequence. A difference of two
schemes has two sources of chance, the seeds and the items. Intervals and tests over seeds treat the items as fixed;
:func:`multi_bootstrap` resamples both.

``arch.bootstrap.MCS`` is not used: with seeds as its observations, it excludes a scheme that equals the best in 43 (three seeds)
or 15 (six seeds) of 100 comparisons at a nominal 5, because a bootstrap of so few observations underestimates their variance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy import stats
from statsmodels.stats.multitest import multipletests

LEVEL = 0.05


@dataclass(frozen=True)
class Difference:
    """The mean of a - b over paired seeds.

    Attributes:
        mean: the mean difference.
        low, high: the ends of its 95% interval by Student's t.
        p: the p-value of the paired t test.
        p_permutation: of the exact permutation of signs, whose smallest value is 2 / 2^seeds.
        seeds: the number of pairs.
    """

    mean: float
    low: float
    high: float
    p: float
    p_permutation: float
    seeds: int


def difference(a: np.ndarray, b: np.ndarray) -> Difference:
    """Compare two schemes by their losses, (seeds,) each.

    Raises:
        ValueError: there are fewer than two pairs.
    """
    if len(a) != len(b) or len(a) < 2:
        raise ValueError(f"a paired comparison needs two seeds or more, the same for both schemes: {len(a)} and {len(b)}")
    delta = np.subtract(a, b, dtype=np.float64)
    if not delta.any():
        return Difference(0.0, 0.0, 0.0, 1.0, 1.0, len(delta))
    test = stats.ttest_1samp(delta, 0.0)
    interval = test.confidence_interval(1 - LEVEL)
    permutation = stats.permutation_test((delta,), np.mean, permutation_type="samples", n_resamples=np.inf)
    return Difference(
        float(delta.mean()),
        float(interval.low),
        float(interval.high),
        float(test.pvalue),
        float(permutation.pvalue),
        len(delta),
    )


def mean_interval(losses: np.ndarray) -> tuple[float, float]:
    """The 95% interval of the mean over seeds, (seeds,), by Student's t; infinite for a single seed."""
    if len(losses) < 2:
        return -np.inf, np.inf
    low, high = stats.t.interval(1 - LEVEL, len(losses) - 1, np.mean(losses), stats.sem(losses))
    return float(low), float(high)


def confidence_set(losses: Mapping[str, np.ndarray]) -> list[str]:
    """The schemes that cannot be distinguished from the best, the best first.

    Every pair of schemes is compared by the paired t test, with Holm's correction for all pairs. So the probability that any of
    several equal schemes is excluded is at most :data:`LEVEL`.

    Args:
        losses: (seeds,) per scheme; less is better.
    """
    names = sorted(losses, key=lambda name: float(np.mean(losses[name])))
    pairs = [(a, b) for a, b in combinations(names, 2) if len(losses[a]) == len(losses[b]) > 1]
    tests = [difference(losses[a], losses[b]).p for a, b in pairs]
    rejected = multipletests(tests, LEVEL, "holm")[0] if tests else []
    worse = {b for (a, b), reject in zip(pairs, rejected, strict=True) if reject}
    return [name for name in names if name not in worse]


def multi_bootstrap(a: np.ndarray, b: np.ndarray, weights: np.ndarray, resamplings: int = 2000) -> tuple[float, float]:
    """The 95% interval of the difference a - b over seeds and items, both resampled with replacement, in pairs.

    Sellam et al. 2022, "The MultiBERTs", section 4.2.

    Args:
        a, b: the sum of an item's losses, (seeds, items), with the same seeds and items.
        weights: the number of predictions of an item, (items,).
    """
    rng = np.random.default_rng(0)
    seeds, items = a.shape
    of_seed = rng.multinomial(seeds, np.full(seeds, 1 / seeds), resamplings) / seeds
    of_item = rng.multinomial(items, np.full(items, 1 / items), resamplings)
    delta = np.subtract(a, b, dtype=np.float64)
    means = ((of_seed @ delta) * of_item).sum(1) / (of_item @ weights)
    low, high = np.quantile(means, [LEVEL / 2, 1 - LEVEL / 2])
    return float(low), float(high)
