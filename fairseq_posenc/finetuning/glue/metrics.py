"""GLUE's metrics, in per cent, by scikit-learn and scipy."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from scipy import stats
from sklearn import metrics

from .tasks import GlueTask


def _correlation(measure: Callable[..., tuple[float, float]]) -> Callable[[np.ndarray, np.ndarray], float]:
    def correlation(targets: np.ndarray, predictions: np.ndarray) -> float:
        with warnings.catch_warnings():  # of constant predictions, which are uncorrelated with anything
            warnings.simplefilter("ignore", stats.ConstantInputWarning)
            value = float(measure(targets, predictions)[0])
        return 0.0 if np.isnan(value) else value

    return correlation


METRICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": metrics.accuracy_score,
    "f1": lambda targets, predictions: metrics.f1_score(targets, predictions, zero_division=0.0),
    "matthews": metrics.matthews_corrcoef,
    "pearson": _correlation(stats.pearsonr),
    "spearman": _correlation(stats.spearmanr),
}
"""(targets, predictions), each (N,) -> score, 1 at best. f1 is of class 1. A correlation with a constant is 0."""


def score(task: GlueTask, targets: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """The task's metrics in per cent."""
    return {name: 100 * float(METRICS[name](targets, predictions)) for name in task.metrics}
