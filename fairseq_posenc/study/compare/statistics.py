"""Which differences between schemes are more than chance.

Seeds are paired: run s of every scheme has the same batches and masks, and the same initial weights where shapes agree, except
those of positions. A comparison of two schemes, or of several, is a number per seed (:func:`estimate`). With few seeds a
permutation of signs decides nothing: of n pairs its p-value is 2 / 2^n or more, 0.25 for three and 0.0625 for five. So Student's
t does, which assumes that these numbers are normal.

A difference has two sources of chance, the seeds and the items of the test text. :func:`estimate` takes the items as fixed;
:func:`multi_bootstrap` resamples both.

The set of the best is not that of ``arch.bootstrap.MCS``: with seeds as its observations, that excludes a scheme that equals the
best in 43 (three seeds) or 15 (six seeds) of 100 comparisons at a nominal 5, because a bootstrap of so few underestimates their
variance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy import stats
from statsmodels.stats.multitest import multipletests

LEVEL = 0.05
MIN_SEEDS = 3
"""Runs, with fewer of which a scheme is not tested: Student's t with one degree of freedom decides nothing."""
PERMUTATIONS = 10_000
"""Above so many, a sample of the permutations is drawn; six seeds have 64."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds.

    Attributes:
        mean: the mean.
        low, high: the ends of its 95% interval by Student's t.
        p: the p-value of the t test of the mean 0; of the permutation, where all values are equal.
        p_permutation: of the exact permutation of signs.
        seeds: the number of seeds.
    """

    mean: float
    low: float
    high: float
    p: float
    p_permutation: float
    seeds: int


def estimate(values: np.ndarray) -> Estimate:
    """Return the mean of a number per seed, (seeds,): a loss, or the difference of two schemes' losses with the same seed.

    Raises:
        ValueError: there are fewer than two.
    """
    values = np.asarray(values, np.float64)
    if len(values) < 2:
        raise ValueError(f"an interval needs two seeds or more: {len(values)}")
    mean = float(values.mean())
    signs = stats.permutation_test((values,), np.mean, permutation_type="samples", n_resamples=PERMUTATIONS, rng=0)
    if np.ptp(values) == 0:  # where Student's t is not defined
        return Estimate(mean, mean, mean, float(signs.pvalue), float(signs.pvalue), len(values))
    test = stats.ttest_1samp(values, 0.0)
    low, high = test.confidence_interval(1 - LEVEL)
    return Estimate(mean, float(low), float(high), float(test.pvalue), float(signs.pvalue), len(values))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for the number of tests (Holm 1979)."""
    return multipletests(p_values, LEVEL, "holm")[1].tolist() if len(p_values) else []


def confidence_set(losses: Mapping[str, np.ndarray]) -> list[str]:
    """Return the schemes that cannot be distinguished from the best, the best first.

    Every pair of schemes is compared by Welch's t test, with Holm's correction for all pairs. A scheme that is worse than any
    other is excluded, so that the probability that any of several schemes with equal means is excluded is about :data:`LEVEL` at
    most; it is twice that where schemes with fewer seeds also vary more. This test does not use that seeds are paired: three
    pairs leave a paired test 2 degrees of freedom, with which a difference must be 62 standard errors to count among the 190
    pairs of 20 schemes, and Welch's 4, with which it must be 12.

    Args:
        losses: (seeds,) per scheme, of any number of seeds; less is better. A scheme with a single seed is not excluded.
    """
    names = sorted(losses, key=lambda name: float(np.mean(losses[name])))
    pairs = [(a, b) for a, b in combinations(names, 2) if min(len(losses[a]), len(losses[b])) > 1]
    if not pairs:
        return names
    samples = [[losses[name] for name in side] for side in zip(*pairs, strict=True)]
    moments = [np.array([[np.mean(x), np.std(x, ddof=1), len(x)] for x in side]).T for side in samples]
    with np.errstate(invalid="ignore", divide="ignore"):
        p_values = stats.ttest_ind_from_stats(*moments[0], *moments[1], equal_var=False).pvalue
    equal = moments[0][0] == moments[1][0]
    p_values = np.where(np.isnan(p_values), equal, p_values)  # neither varies
    worse = {b for (_, b), p in zip(pairs, holm(p_values), strict=True) if p < LEVEL}
    return [name for name in names if name not in worse]


def multi_bootstrap(a: np.ndarray, b: np.ndarray, weights: np.ndarray, resamplings: int = 2000) -> tuple[float, float]:
    """Return the 95% interval of the difference a - b over seeds and items, both resampled with replacement, in pairs.

    Sellam et al. 2022, "The MultiBERTs", section 3. With three seeds it is too narrow: a resampling often has one of them only.

    Args:
        a, b: the sum of an item's losses, (seeds, items), with the same seeds and items.
        weights: the number of predictions of an item, (items,).
        resamplings: of which the quantiles are taken.
    """
    rng = np.random.default_rng(0)
    seeds, items = a.shape
    of_seed = rng.multinomial(seeds, np.full(seeds, 1 / seeds), resamplings) / seeds
    of_item = rng.multinomial(items, np.full(items, 1 / items), resamplings)
    delta = np.subtract(a, b, dtype=np.float64)
    means = ((of_seed @ delta) * of_item).sum(1) / (of_item @ weights)
    low, high = np.quantile(means, [LEVEL / 2, 1 - LEVEL / 2])
    return float(low), float(high)
