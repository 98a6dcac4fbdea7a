"""Toeplitz-ness: R² of eq. 6-8 of Wennberg & Henter 2021, written out again in loops."""

import numpy as np
import pytest
import torch

from fairseq_posenc.study.analyze.toeplitz import block_r_squared, diagonal_means, of_noise, of_random_vectors, r_squared


def r_squared_in_loops(matrix):
    """1 - RSS/TSS, the best Toeplitz matrix being the mean of each diagonal, and TSS about the mean of all entries."""
    n = len(matrix)
    means = {r: np.mean([matrix[i, i + r] for i in range(n) if 0 <= i + r < n]) for r in range(1 - n, n)}
    residual = sum((matrix[i, j] - means[j - i]) ** 2 for i in range(n) for j in range(n))
    return 1 - residual / ((matrix - matrix.mean()) ** 2).sum(), [means[r] for r in range(1 - n, n)]


@pytest.mark.parametrize("n", [1, 2, 7])
def test_it_is_the_papers_formula(n):
    matrix = np.random.default_rng(0).normal(size=(n, n)) + np.arange(n)
    expected, means = r_squared_in_loops(matrix) if n > 1 else (1.0, [matrix[0, 0]])
    assert r_squared(torch.from_numpy(matrix)).item() == pytest.approx(expected, abs=1e-12)
    assert diagonal_means(torch.from_numpy(matrix)).tolist() == pytest.approx(means, abs=1e-12)


def test_a_toeplitz_matrix_has_1_whatever_is_added_to_it():
    torch.manual_seed(0)
    offsets = torch.arange(20) - torch.arange(20)[:, None] + 19
    for table in (torch.randn(39), torch.randn(39) + 100, torch.full((39,), 0.3)):
        assert r_squared(table[offsets]).item() == pytest.approx(1, abs=1e-6)


def test_noise_is_near_its_expectation():
    """E[R²] = 2/(n+1). R² is beta-distributed with a = n-1 and b = (n-1)²/2, whose variance gives the mean's error."""
    n, matrices = 30, 200
    torch.manual_seed(0)
    found = r_squared(torch.randn(matrices, n, n))
    a, b = n - 1, (n - 1) ** 2 / 2
    error = (a * b / ((a + b) ** 2 * (a + b + 1)) / matrices) ** 0.5
    assert of_noise(n) == pytest.approx(a / (a + b))
    assert abs(found.mean().item() - of_noise(n)) < 4 * error


@pytest.mark.parametrize(("n", "width"), [(30, 8), (20, 100)])
def test_products_of_random_vectors_are_near_theirs(n, width):
    torch.manual_seed(0)
    vectors = torch.randn(200, n, width)
    found = r_squared(vectors @ vectors.mT)
    assert abs(found.mean().item() - of_random_vectors(n, width)) < 0.01


def test_blocks_are_those_on_the_diagonal():
    torch.manual_seed(0)
    matrix = torch.randn(3, 11, 11)
    expected = [r_squared(matrix[:, start : start + 4, start : start + 4]) for start in (0, 4)]
    assert torch.allclose(block_r_squared(matrix, 4), torch.stack(expected, dim=-1))
