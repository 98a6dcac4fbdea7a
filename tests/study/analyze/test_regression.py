"""θ is recovered from scores that are such functions, and R² is that of all pairs."""

import pytest
import torch

from fairseq_posenc.core.schemes.tisa import scoring_function
from fairseq_posenc.study.analyze.regression import fit
from fairseq_posenc.study.analyze.toeplitz import r_squared

pytest.importorskip("scipy")
N = 48
OFFSETS = torch.arange(1 - N, N, dtype=torch.float64)


def matrix(function):
    """(…, R) by the offset -> (…, n, n)"""
    positions = torch.arange(N)
    return function[..., positions - positions[:, None] + N - 1]


@pytest.mark.parametrize(
    "theta",
    [
        ([[0.7]], [[0.05]], [[-3.0]]),
        ([[-1.2, 0.4]], [[0.002, 0.6]], [[1.5, -8.0]]),
        ([[2.0, -0.5, 0.3], [0.1, 0.2, -0.3]], [[0.4, 0.01, 1.0], [0.02, 0.3, 0.9]], [[0.5, -12.0, 20.0], [0.0, 7.0, -20.3]]),
    ],
    ids=["1", "2", "3"],
)
def test_theta_is_recovered_up_to_a_constant(theta):
    a, b, c = (torch.tensor(values, dtype=torch.float64) for values in theta)
    scores = matrix(scoring_function(a, b, c, OFFSETS)) + 5
    found, r2 = fit(scores, a.shape[-1])
    order = found[:, 2].argsort()
    for own, expected in zip(found.unbind(1), (a, b, c), strict=True):
        torch.testing.assert_close(own.gather(-1, order), expected.gather(-1, c.argsort()), rtol=1e-3, atol=1e-3)
    assert r2.sub(1).abs().max() < 1e-6


def test_r_squared_is_of_all_pairs():
    torch.manual_seed(0)
    scores = matrix(torch.exp(-0.03 * OFFSETS**2)) + 0.2 * torch.randn(2, N, N, dtype=torch.float64)
    found, r2 = fit(scores, 2)
    functions = matrix(scoring_function(*found.unbind(1), OFFSETS))
    residual = scores - functions
    for number in range(2):
        expected = 1 - residual[number].var(correction=0) / scores[number].var(correction=0)
        assert r2[number].item() == pytest.approx(expected.item(), abs=1e-9)
        assert r_squared(scores)[number] - 0.05 < r2[number] < r_squared(scores)[number]


def test_more_kernels_fit_better():
    torch.manual_seed(0)
    scores = matrix(torch.randn(3, 2 * N - 1, dtype=torch.float64).cumsum(-1))
    found = torch.stack([fit(scores, kernels)[1] for kernels in (1, 3, 5)])
    assert found.diff(dim=0).gt(0).all()
    assert found[-1].gt(0.8).all()


def test_constant_scores_are_fitted():
    _, r2 = fit(torch.full((1, 5, 5), 0.3), 2)
    assert r2.item() == 1
