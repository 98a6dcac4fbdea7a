"""The share of a matrix that depends on the offset ``j - i`` alone (Wennberg & Henter 2021, appendix B)."""

import torch
from torch import Tensor

from ...core.attention.relative import toeplitz, unskew

CONSTANT = 1e-10
"""A matrix whose variance is a smaller part of its mean square than this counts as constant in float32."""


def diagonal_means(matrix: Tensor) -> Tensor:
    """Return the mean of each diagonal, by the offset ``j - i`` from ``-(n-1)`` to ``n-1``: (…, n, n) -> (…, 2n-1), float64.

    The means are the entries of the Toeplitz matrix that is nearest in squares (eq. 6).
    """
    n = matrix.shape[-1]
    sums = unskew(matrix.double()).sum(-2)
    lengths = unskew(matrix.new_ones(n, n).double()).sum(-2)
    return sums / lengths


def r_squared(matrix: Tensor) -> Tensor:
    """Return the share of the variance that the nearest Toeplitz matrix explains, in O(n²): (…, n, n) -> (…), float64.

    ``R² = 1 - Σ (A - A_T)² / Σ (A - Ā)²`` (eq. 6-8), with A_T of :func:`diagonal_means` and Ā the mean over all n² entries. It is
    1 for a Toeplitz matrix, which includes a constant one; 2/(n+1) is expected of independent noise (:func:`of_noise`). Entries
    that are NaN are left out, whole diagonals each; R² is NaN where all are.
    """
    matrix = matrix.double()
    return explained(matrix, matrix - toeplitz(diagonal_means(matrix), matrix.shape[-1]))


def explained(matrix: Tensor, residual: Tensor) -> Tensor:
    """Return ``1 - Σ residual² / Σ (A - Ā)²``, or 1 if A is constant, without entries that are NaN: (…, n, n) each -> (…)."""
    total = (matrix - matrix.nanmean((-2, -1), keepdim=True)).square().nansum((-2, -1))
    constant = total <= CONSTANT * matrix.square().nansum((-2, -1))
    share = (1 - residual.square().nansum((-2, -1)) / total.masked_fill(constant, 1)).masked_fill(constant, 1)
    return share.masked_fill(matrix.isnan().all(-1).all(-1), torch.nan)


def of_noise(n: int) -> float:
    """Return the expected R² of an (n, n) matrix of independent normal noise.

    ``RSS / σ²`` is χ² with ``n² - (2n-1)`` degrees of freedom, ``TSS / σ²`` with ``n² - 1``, and their ratio is beta-distributed
    with the mean ``(n-1)² / (n²-1)``, so that ``E[R²] = (2n-2) / (n²-1) = 2 / (n+1)``.
    """
    return 2 / (n + 1)


def of_random_vectors(n: int, width: int) -> float:
    """Return the expected R² of ``P = E Eᵀ`` for n independent normal vectors, which differs from that of noise.

    With unit variance, the diagonal of P has the mean ``width`` and the variance ``2 width``, and the other entries 0 and
    ``width``. So ``E[RSS] = n(n-1) width`` and ``E[TSS] ≈ n(n+1) width + (n-1) width²``; R² is about ``width / (width + n)``.
    """
    return 1 - n * (n - 1) / (n * (n + 1) + (n - 1) * width)


def block_r_squared(matrix: Tensor, size: int) -> Tensor:
    """Return R² of each whole (size, size) block on the diagonal, from the upper left: (…, n, n) -> (…, n // size)."""
    blocks = matrix.unfold(-2, size, size).unfold(-2, size, size)  # (…, n // size, n // size, size, size)
    return r_squared(blocks.diagonal(dim1=-4, dim2=-3).movedim(-1, -3))
