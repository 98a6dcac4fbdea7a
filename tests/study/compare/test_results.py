"""Rows of the result against runs whose losses are known."""

import numpy as np
import pytest

pytest.importorskip("statsmodels", reason="needs pip install -e '.[compare]'")

import fake_runs
from fake_runs import make_plan, make_run, make_runs

from fairseq_posenc.study.compare.report import answer
from fairseq_posenc.study.compare.results import BEST, UNDECIDED, WORSE, choose, summarise

SEEDS = (1, 2, 3)


@pytest.fixture(scope="module")
def rows():
    schemes = [*fake_runs.FINAL, "raffel", "sentence_absolute"]
    return {row["scheme"]: row for row in summarise(make_plan(schemes), make_runs(), fake_runs.make_costs())}


def tried(lr, *losses, scheme="t5"):
    """Runs at a rate with the seeds 1, 2 …; a run without a loss diverged."""
    return [
        make_run(scheme, lr, seed, selection=loss) if loss else make_run(scheme, lr, seed, status="diverged")
        for seed, loss in enumerate(losses, 1)
    ]


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([*tried(1e-3, 5.2, 5.3), *tried(2e-3, 5.1, 5.2)], 2e-3),
        ([*tried(1e-3, 5.2, 5.3), *tried(2e-3, 5.19, 5.22)], 1e-3),  # within 0.05 bits on average
        ([*tried(1e-3, 5.2, 5.3), *tried(2e-3, 5.0, None)], 1e-3),
        ([*tried(1e-3, 5.2, 5.3, 9.0), *tried(2e-3, 5.1, 5.2)], 2e-3),  # seed 3 does not choose
        ([*tried(1e-3, None, 5.0), *tried(2e-3, 5.1, None)], None),
        (tried(1e-3, None, None), 1e-3),  # of one rate, nothing is chosen
    ],
)
def test_the_learning_rate_is_chosen_by_two_seeds_on_the_first_half_of_the_text(runs, expected):
    assert choose(runs) == {"t5": expected}


def test_rows_are_ranked_and_have_what_the_runs_have(rows):
    assert list(rows)[-3:] == ["none", "sentence_absolute", "raffel"]
    losses = [make_run("tisa", seed=seed)["loss"] for seed in SEEDS]
    tisa = rows["tisa"]
    assert tisa["losses"] == {"1": losses[0], "2": losses[1], "3": losses[2]}
    assert tisa["loss"] == pytest.approx(np.mean(losses))
    half = 4.302653 * np.std(losses, ddof=1) / np.sqrt(3)  # of Student's t with 2 degrees of freedom
    assert (tisa["low"], tisa["high"]) == pytest.approx((tisa["loss"] - half, tisa["loss"] + half))
    assert (tisa["lr"], tisa["runs"], tisa["parameters"]) == (2e-3, 3, 120)
    assert tisa["cost"] == pytest.approx({"median": 1.11, "low": 1.09, "high": 1.13})
    assert (rows["absolute"]["cost"]["median"], rows["raffel"]["cost"]) == (1.0, None)
    assert {name: row["state"] for name, row in rows.items()} == {
        **{"tisa": BEST, "rope": BEST, "m4m": WORSE, "absolute": WORSE, "none": WORSE},
        **{"sentence_absolute": UNDECIDED, "raffel": UNDECIDED},
    }


def test_all_columns_are_of_the_seeds_of_most_schemes():
    """So that differences are those of the means."""
    runs = [make_run("absolute", seed=seed, loss=5 + seed / 10) for seed in range(1, 7)]
    runs += [make_run(scheme, seed=seed) for scheme in ("tisa", "rope") for seed in SEEDS] + [make_run("t5", seed=1)]
    rows = {row["scheme"]: row for row in summarise(make_plan(["absolute", "tisa", "rope", "t5"]), runs)}
    absolute, tisa = rows["absolute"], rows["tisa"]
    assert absolute["difference"] is None
    assert (absolute["runs"], absolute["loss"]) == (3, pytest.approx(5.2))
    assert tisa["difference"]["mean"] == pytest.approx(tisa["loss"] - absolute["loss"])
    assert tisa["difference"]["seeds"] == 3
    assert [*rows][-1] == "t5"
    assert (rows["t5"]["state"], rows["t5"]["difference"]) == (UNDECIDED, None)


@pytest.mark.parametrize("status", ["diverged", "failed"])
def test_a_run_that_did_not_finish_has_no_loss_and_did_not_start(status):
    runs = [make_run(scheme, seed=seed) for scheme in ("absolute", "tisa", "rope") for seed in SEEDS]
    runs[4] = make_run("tisa", seed=2, status=status)
    rows = summarise(make_plan(["absolute", "tisa", "rope"]), runs)
    tisa = rows[-1]
    assert (tisa["scheme"], tisa["runs"], tisa[status], tisa["state"], tisa["difference"]) == ("tisa", 2, 1, UNDECIDED, None)
    assert (tisa["start"]["started"], tisa["start"]["of"], tisa["start"]["last"]) == (2, 3, None)


def test_a_scheme_without_a_sound_rate_comes_last_with_one_rate():
    runs = [make_run(scheme, lr, seed) for scheme in ("absolute", "rope") for lr in (1e-3, 2e-3) for seed in (1, 2)]
    fragile = [(1e-3, 1, "finished"), (1e-3, 2, "diverged"), (2e-3, 1, "diverged"), (2e-3, 2, "finished")]
    runs += [make_run("tisa", lr, seed, loss=4.0, status=status) for lr, seed, status in fragile]
    rows = summarise(make_plan(["absolute", "tisa", "rope"], seeds=2), runs)
    tisa = rows[-1]
    assert (tisa["scheme"], tisa["lr"], tisa["runs"], tisa["diverged"], tisa["difference"]) == ("tisa", 1e-3, 1, 2, None)


def test_schemes_that_never_start_are_among_those_that_are_compared():
    plan = make_plan(["absolute", "rope", "none"])
    runs = [make_run(scheme, seed=seed) for scheme in plan.schemes for seed in SEEDS]
    assert "1 of 2 schemes use word order sooner than absolute" in answer(summarise(plan, runs), plan)


def test_runs_without_a_loss_on_permuted_words_have_no_start():
    runs = [make_run(scheme, seed=seed, permuted=None) for scheme in ("absolute", "tisa") for seed in SEEDS]
    tisa, absolute = summarise(make_plan(["absolute", "tisa"]), runs)
    assert (tisa["start"], absolute["start"], absolute["late"]) == (None, None, False)
    assert (absolute["state"], tisa["difference"]["p_holm"]) == (WORSE, tisa["difference"]["p"])
