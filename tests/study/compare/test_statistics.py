"""The statistics against their definitions, and what they conclude where the truth is known."""

import numpy as np
import pytest

pytest.importorskip("statsmodels", reason="needs pip install -e '.[compare]'")

from fake_runs import make_plan, make_run

from fairseq_posenc.study.compare.results import BEST, UNDECIDED, WORSE, summarise
from fairseq_posenc.study.compare.statistics import against, estimate, holm

ROPE = 0.032
"""The standard deviation of the loss over the seeds of ``rope``, in the comparison on English text."""


def states(losses):
    """The states in a comparison whose runs have these losses, (seeds,) per scheme."""
    runs = [make_run(scheme, seed=s, loss=loss) for scheme, of_seeds in losses.items() for s, loss in enumerate(of_seeds, 1)]
    rows = summarise(make_plan(losses, reference=next(iter(losses))), runs)
    return {row["scheme"]: row["state"] for row in rows}


def test_an_estimate_is_that_of_the_textbook():
    """Student's sleep data (1908): mean difference 1.58, t = 4.0621, 95% interval 0.70 to 2.46, p = 0.002833."""
    first = np.array([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0])
    second = np.array([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4])
    found = estimate(second - first)
    assert (found["mean"], found["seeds"]) == (pytest.approx(1.58), 10)
    assert (found["low"], found["high"]) == pytest.approx((0.7001142, 2.4598858))
    assert found["p"] == pytest.approx(0.00283289)


def test_equal_losses_and_single_seeds():
    assert [estimate(x)["p"] for x in (np.zeros(3), np.ones(3))] == [1, 0]
    assert estimate(np.ones(3))["low"] == estimate(np.ones(3))["high"] == 1
    with pytest.raises(ValueError, match="two seeds"):
        estimate(np.ones(1))


def test_holms_correction_is_that_of_the_paper():
    """The least of m p-values is multiplied by m, the next by m - 1, and none falls below the one before."""
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


def test_differences_are_corrected_for_the_number_of_schemes():
    rng = np.random.default_rng(0)
    losses = {name: mean + rng.normal(0, 0.1, 4) for name, mean in {"a": 5.0, "b": 5.5, "c": 7.0}.items()}
    found = against("b", losses)
    assert [found[name]["p_holm"] for name in "ac"] == holm([estimate(losses[name] - losses["b"])["p"] for name in "ac"])
    assert found["a"]["mean"] == pytest.approx(np.mean(losses["a"] - losses["b"]))


@pytest.mark.parametrize("seeds", [3, 6])
def test_of_equal_schemes_no_one_is_worse_by_chance(seeds):
    """Each in 5 of 100 comparisons at most, and some of 17 in 20 at most."""
    rng = np.random.default_rng(0)
    worse = []
    for _ in range(60):
        losses = {name: rng.normal(5, 0.1, seeds) for name in range(17)}
        found = against(min(losses, key=lambda name: losses[name].mean()), losses)
        worse.append([found[name]["p_holm"] < 0.05 if name in found else False for name in losses])
    assert np.sum(worse, 0).max() <= 60 * 0.05
    assert np.sum(np.any(worse, 1)) <= 60 * 0.2


def test_two_names_of_one_scheme_are_never_worse_in_a_comparison():
    """In 95 of 100 drawings without replacement from ten runs, of which six are one scheme's and the others another's."""
    rng = np.random.default_rng(1)
    losses = 5.4 + rng.normal(0, 0.05, 10)
    drawn = [rng.permutation(losses) for _ in range(100)]
    assert sum(WORSE in states({"absolute": order[:5], "again": order[5:]}).values() for order in drawn) <= 5


def test_a_planted_tenth_of_a_bit_is_found_with_six_seeds():
    """At the spread of rope, though its seeds are not correlated here: in 9 of 10 comparisons of three schemes."""
    rng = np.random.default_rng(0)
    found = [
        states({name: mean + rng.normal(0, ROPE, 6) for name, mean in {"rope": 5.5, "again": 5.5, "worse": 5.6}.items()})
        for _ in range(100)
    ]
    assert sum(one["worse"] == WORSE for one in found) >= 90
    assert sum(one["again"] == WORSE for one in found) <= 5 + 2 * np.sqrt(100 * 0.95 * 0.05)


def test_what_varies_too_much_is_undecided():
    """Not worse by more than chance, and not known to be as good within 0.1 bits."""
    even = np.array([-0.01, 0.01, 0.0, 0.02, -0.02, 0.0])
    found = states({"a": 5 + even, "near": 5.03 + even[::-1], "wild": 5.4 + 40 * even, "worse": 5.5 - even})
    assert found == {"a": BEST, "near": BEST, "wild": UNDECIDED, "worse": WORSE}
