"""The statistics against their definitions, and what they conclude where the truth is known."""

import gc
import itertools

import numpy as np
import pytest

pytest.importorskip("statsmodels", reason="needs pip install -e '.[compare]'")

from fairseq_posenc.study.compare.statistics import confidence_set, estimate, holm, multi_bootstrap


def test_an_estimate_is_that_of_the_textbook():
    """Student's sleep data (1908): mean difference 1.58, t = 4.0621, 95% interval 0.70 to 2.46, p = 0.002833."""
    first = np.array([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0])
    second = np.array([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4])
    found = estimate(second - first)
    assert (found.mean, found.seeds) == (pytest.approx(1.58), 10)
    assert (found.low, found.high) == pytest.approx((0.7001142, 2.4598858))
    assert found.p == pytest.approx(0.00283289)


@pytest.mark.parametrize("seeds", [3, 6])
def test_the_permutation_test_is_exact(seeds):
    delta = np.random.default_rng(seeds).normal(size=seeds) + 1
    signs = np.array(list(itertools.product([-1, 1], repeat=seeds)))
    means = (signs * delta).mean(1)
    expected = 2 * min((means >= delta.mean() - 1e-12).mean(), (means <= delta.mean() + 1e-12).mean())
    assert estimate(delta).p_permutation == pytest.approx(min(expected, 1))


def test_what_few_seeds_cannot_show():
    """However large the difference: 2 / 2^n for n pairs."""
    smallest = {seeds: estimate(np.linspace(5, 6, seeds)).p_permutation for seeds in (3, 5, 6)}
    assert smallest == pytest.approx({3: 0.25, 5: 0.0625, 6: 0.03125})


def test_equal_losses_and_single_seeds():
    assert [(estimate(x).p, estimate(x).p_permutation) for x in (np.zeros(3), np.ones(3))] == [(1, 1), (0.25, 0.25)]
    assert estimate(np.ones(3)).low == estimate(np.ones(3)).high == 1
    with pytest.raises(ValueError, match="two seeds"):
        estimate(np.ones(1))
    equal = {"a": np.ones(3), "b": np.ones(3), "c": np.full(3, 2.0), "d": np.array([9.0])}
    assert confidence_set(equal) == ["a", "b", "d"]


def test_holms_correction_is_that_of_the_paper():
    """The least of m p-values is multiplied by m, the next by m - 1, and none falls below the one before."""
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


@pytest.fixture
def fast_collection():
    """statsmodels collects garbage in each correction, which takes 0.1 s among the objects of the tests."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("fast_collection")
@pytest.mark.parametrize("seeds", [(3, 3), (6, 6), (3, 6)])
@pytest.mark.parametrize("schemes", [2, 8])
def test_schemes_that_are_equal_are_not_distinguished(seeds, schemes):
    """In 95 of 100 resamplings or more, with three seeds, with six, and with both; but for chance in 300 resamplings."""
    rng = np.random.default_rng(0)
    kept = 0
    for _ in range(300):
        losses = {name: rng.normal(5, 0.01, seeds[name % 2]) for name in range(schemes)}
        kept += len(confidence_set(losses)) == schemes
    assert kept >= 300 * 0.95 - 2 * np.sqrt(300 * 0.95 * 0.05)


@pytest.mark.usefixtures("fast_collection")
def test_runs_of_one_scheme_as_two_are_not_distinguished():
    """The null experiment: absolute positions with ten seeds, of which three are one scheme and three another."""
    rng = np.random.default_rng(1)
    losses = 5.4 + rng.normal(0, 0.05, 10)
    kept = 0
    for _ in range(100):
        order = rng.permutation(10)
        kept += len(confidence_set({"absolute": losses[order[:3]], "absolute again": losses[order[3:6]]})) == 2
    assert kept >= 95


@pytest.mark.parametrize("seeds", [3, 6])
def test_a_planted_difference_is_found(seeds):
    rng = np.random.default_rng(0)
    losses = {name: mean + rng.normal(0, 0.01, seeds) for name, mean in {"a": 5.0, "b": 5.0, "c": 5.2}.items()}
    assert sorted(confidence_set(losses)) == ["a", "b"]


def test_the_multi_bootstrap_agrees_with_the_one_of_its_authors():
    """The interval is that of 50,000 resamplings by language/multiberts/multibootstrap.py of google-research/language, at commit
    865fae6, with ``paired_seeds=True`` and the mean as the score."""
    seeds, items = np.arange(1, 6)[:, None], np.arange(1, 13)
    b = 2 + np.sin(seeds) / 2 + np.cos(3 * items) + np.sin(seeds * items) / 2
    a = b + 0.2 + np.cos(2 * seeds) / 4 + np.sin(seeds * items**2) / 2
    assert multi_bootstrap(a, b, np.ones(12), 20_000) == pytest.approx((-0.1128, 0.2188), abs=0.006)


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
