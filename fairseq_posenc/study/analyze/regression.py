"""Fitting TISA's scoring functions to given scores (Wennberg & Henter 2021, section 4)."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...core.attention.relative import toeplitz
from .toeplitz import diagonal_means, explained

MAX_SHARPNESS = 8.0  # b: such a kernel is one offset wide
WIDTHS = 16  # that are tried first, from less than one offset to all of them
RIDGE = 1e-6  # cost of a squared amplitude, in squared scores: two kernels would cancel each other at any height
Array = NDArray[np.float64]


def fit(scores: Tensor, kernels: int) -> tuple[Tensor, Tensor]:
    """Return the least-squares fit of ``f_θ(j - i)`` plus a constant to (…, n, n) ``scores``, and its R², both float64.

    Only the means of the diagonals matter for a function of the offset, each weighted by the diagonal's length. Kernels are added
    one by one: the best of a grid of widths and offsets for the residual; then all together are improved by Levenberg and
    Marquardt's method. Nothing is random.

    Returns:
        (…, 3, S): amplitudes a, sharpness b > 0 and offsets c of the Gaussian kernels, in the order in which they were found; and
        (…): ``1 - Σ (F - f - constant)² / Σ (F - F̄)²`` over all n² pairs, 1 for constant scores.
    """
    n = scores.shape[-1]
    matrices = scores.detach().double().cpu()
    means = diagonal_means(matrices).flatten(0, -2).numpy()  # (B, 2n-1)
    problem = _Problem(n)
    theta = np.stack([problem.solve(values, kernels) for values in means])  # (B, 3, S)
    functions = torch.from_numpy(np.stack([_function(of_matrix, problem.offsets) for of_matrix in theta]))
    residual = matrices - toeplitz(functions.unflatten(0, scores.shape[:-2]), n)
    parameters = torch.from_numpy(theta).unflatten(0, scores.shape[:-2])
    parameters[..., 1, :].exp_()
    return parameters, explained(matrices, residual - residual.mean((-2, -1), keepdim=True))


def _function(theta: Array, offsets: Array) -> Array:
    """Return ``f_θ`` of eq. 5 at the offsets, (R,), for (3, S) a, log b and c."""
    a, log_b, c = theta[..., None]
    return (a * np.exp(-np.exp(log_b) * (offsets - c) ** 2)).sum(0)


class _Problem:
    """Least squares for a function of the offset in (n, n) scores, up to a constant; θ is (3, S): a, log b, c."""

    def __init__(self, n: int) -> None:
        self.offsets = np.arange(1.0 - n, n)
        self.weights = n - np.abs(self.offsets)
        self._roots = np.sqrt(self.weights)
        self._ridge = np.sqrt(RIDGE * self.weights.sum())
        self._log_b = (-np.log(8.0 * n * n), np.log(MAX_SHARPNESS))
        powers = np.unique(np.round(2 ** np.arange(0, np.log2(max(n, 2)), 0.5)))
        widths = np.geomspace(0.5, max(n, 1), WIDTHS)
        grid = np.meshgrid(-np.log(2 * widths**2), np.concatenate([-powers, [0.0], powers]))
        self._tried = np.stack([x.ravel() for x in grid])  # (2, G): log b, c
        log_b, c = self._tried[..., None]
        self._kernels = self._centred(np.exp(-np.exp(log_b) * (self.offsets - c) ** 2))  # (G, R)
        self._squares = (self.weights * self._kernels**2).sum(-1) + self._ridge**2

    def solve(self, values: Array, kernels: int) -> Array:
        """Return θ, (3, S), for the means of the diagonals, (R,)."""
        from scipy.optimize import least_squares

        theta = np.zeros((3, 0))
        for _ in range(kernels):
            products = self._kernels @ (self.weights * self._centred(values - _function(theta, self.offsets)))
            best = int(np.argmax(products**2 / self._squares))
            theta = np.column_stack([theta, [products[best] / self._squares[best], *self._tried[:, best]]])
            solution = least_squares(self._residual, theta.ravel(), method="lm", x_scale="jac", args=(values,))
            theta = self._bounded(solution.x)
        return theta

    def _residual(self, x: Array, values: Array) -> Array:
        """Return (R + S,): residuals times the roots of their weights, and amplitudes times that of their cost."""
        theta = self._bounded(x)
        return np.concatenate([self._roots * self._centred(_function(theta, self.offsets) - values), self._ridge * theta[0]])

    def _bounded(self, x: Array) -> Array:
        theta = x.reshape(3, -1).copy()
        theta[1] = theta[1].clip(*self._log_b)
        return theta

    def _centred(self, functions: Array) -> Array:
        """Return functions of the offset, (…, R), less their mean over all pairs."""
        return functions - (functions @ self.weights / self.weights.sum())[..., None]
