"""The statistics against their definitions, and what they conclude where the truth is known."""

import itertools

import numpy as np
import pytest

pytest.importorskip("statsmodels", reason="needs pip install -e '.[compare]'")

from fairseq_posenc.compare.statistics import confidence_set, difference, mean_interval, multi_bootstrap


def test_a_difference_is_that_of_the_textbook():
    """Student's sleep data (1908): mean difference 1.58, t = 4.0621, 95% interval 0.70 to 2.46, p = 0.002833."""
    first = np.array([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0])
    second = np.array([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4])
    found = difference(second, first)
    assert found.mean == pytest.approx(1.58)
    assert (found.low, found.high) == pytest.approx((0.7001142, 2.4598858))
    assert found.p == pytest.approx(0.00283289)


@pytest.mark.parametrize("seeds", [3, 6])
def test_the_permutation_test_is_exact(seeds):
    delta = np.random.default_rng(seeds).normal(size=seeds) + 1
    signs = np.array(list(itertools.product([-1, 1], repeat=seeds)))
    means = (signs * delta).mean(1)
    expected = 2 * min((means >= delta.mean() - 1e-12).mean(), (means <= delta.mean() + 1e-12).mean())
    assert difference(delta, np.zeros(seeds)).p_permutation == pytest.approx(min(expected, 1))


def test_equal_losses_and_single_seeds():
    assert difference(np.ones(3), np.ones(3)).p == 1
    assert mean_interval(np.ones(1)) == (-np.inf, np.inf)
    with pytest.raises(ValueError, match="two seeds"):
        difference(np.ones(1), np.ones(1))


def test_schemes_that_are_equal_are_not_distinguished():
    """In at least 95 of 100 resamplings, with three and with six seeds, of two and of eight schemes."""
    rng = np.random.default_rng(0)
    for seeds, schemes in itertools.product((3, 6), (2, 8)):
        sets = [confidence_set(dict(enumerate(rng.normal(5, 0.01, (schemes, seeds))))) for _ in range(100)]
        assert sum(len(found) == schemes for found in sets) >= 92  # 95 expected; 92 or fewer have a probability of 7%


def test_a_planted_difference_is_found():
    rng = np.random.default_rng(0)
    losses = {name: mean + rng.normal(0, 0.01, 6) for name, mean in {"a": 5.0, "b": 5.0, "c": 5.1}.items()}
    assert sorted(confidence_set(losses)) == ["a", "b"]


def test_the_multi_bootstrap_covers_the_difference():
    """Of losses with an effect of the seed and of the item: the interval of a true difference 0 has it 95 times in 100."""
    rng = np.random.default_rng(0)
    seeds, items = 20, 50
    covered = 0
    for _ in range(60):
        a, b = (rng.normal(0, 1, (seeds, 1)) + rng.normal(0, 1, (1, items)) + rng.normal(0, 1, (seeds, items)) for _ in "ab")
        low, high = multi_bootstrap(a, b, np.ones(items), 300)
        covered += low <= 0 <= high
    assert covered >= 50


def test_the_multi_bootstrap_weighs_items_by_their_predictions():
    a = np.array([[2.0, 30.0]] * 2)
    low, high = multi_bootstrap(a, np.zeros((2, 2)), np.array([1.0, 10.0]), 500)
    assert (low, high) == pytest.approx((2.0, 3.0))
