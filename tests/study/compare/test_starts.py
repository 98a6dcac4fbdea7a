"""When runs begin to use word order, in runs whose losses are known."""

import math

import pytest

pytest.importorskip("statsmodels", reason="needs pip install -e '.[compare]'")

from fake_runs import make_plan, make_run

from fairseq_posenc.study.compare import report, starts
from fairseq_posenc.study.compare.results import UNDECIDED, summarise


def run_of(*used, seed=1, scheme="absolute", end=None):
    """A run with a validation every 100 updates, at which order saves these bits, and at the end as at the last one."""
    curve = [{"updates": 100 * i, "loss": 8 - i / 10, "permuted": 8 - i / 10 + bits} for i, bits in enumerate(used, 1)]
    loss = curve[-1]["loss"]
    return make_run(scheme, seed=seed, loss=loss, permuted=loss + (used[-1] if end is None else end), curve=curve)


def test_a_run_starts_where_order_begins_to_matter_until_the_end():
    """It is interpolated between the last validation without and the first with such a difference."""
    assert starts.start(run_of(0, 0.09, 0.11, 0.5)) == pytest.approx(250)
    assert starts.start(run_of(0.4, 0.5)) == 100  # at most
    assert starts.start(run_of(0, 0.3, 0.05, 0.25)) == pytest.approx(325)  # it did not stay
    assert starts.start(run_of(0, 0.3, 0.4, 0.02)) == math.inf
    assert starts.start(run_of(0, 0.3, 0.4, 0.4, end=0.05)) == math.inf  # on the text that decides
    assert starts.start(make_run("absolute", status="diverged")) == math.inf


def test_most_runs_are_late_or_none_can_start():
    begun, waits = run_of(0, 0.5), run_of(0, 0.01)
    assert starts.is_late([begun, waits, waits])
    assert not starts.is_late([begun, waits])
    assert starts.is_late([run_of(0, 0)] * 3)  # however little it has learned
    assert not starts.is_late([run_of(0, 0, scheme="none")] * 3)
    assert not starts.is_late([make_run("absolute", permuted=None)] * 3)


def test_a_summary_of_starts():
    runs = [run_of(0, 0.2, 0.5, 0.5, seed=1), run_of(0, 0, 0.2, 0.5, seed=2), run_of(0, 0, 0, 0.01, seed=3)]
    reference = [run_of(0, 0, 0, 0.2, seed=seed) for seed in (1, 2, 3)]
    found = starts.summary(runs, reference, 100)
    assert (found["median"], found["first"], found["last"]) == (pytest.approx(250), pytest.approx(150), None)
    assert (found["started"], found["of"], found["loss"]) == (2, 3, pytest.approx(7.6))
    assert found["loss_at_age"] == pytest.approx((7.75 + 7.65) / 2)
    assert found["slope"] == pytest.approx(0.1)
    ratios = [150 / 350, 250 / 350, 400 / 350]  # the last one did not start, and counts with the budget
    assert found["ratio"]["mean"] == pytest.approx(math.prod(ratios) ** (1 / 3))
    assert found["ratio"]["low"] < found["ratio"]["mean"] < found["ratio"]["high"]
    assert starts.summary(runs[2:], [], 100)["ratio"] is None


def test_a_run_that_failed_counts_with_the_budget_of_its_plan():
    """Where the others end early, after they start, and so long before it."""
    flags = {"configuration": {"flags": ["--positions", "x", "--max-update", "6000"]}}
    early = [run_of(0, 0.2, 0.2, scheme="tisa"), make_run("tisa", seed=2, status="failed")]
    late = [run_of(0, 0, 0, 0, 0, 0.2, 0.2, seed=seed) for seed in (1, 2)]
    ratio = starts.ratio([run | flags for run in early], [run | flags for run in late])
    assert ratio["mean"] == pytest.approx(150**0.5 * 6000**0.5 / 550)


def test_the_slope_is_that_of_the_last_fifth():
    curve = [{"updates": 100 * i, "loss": 8 - max(0, i - 8) / 50, "permuted": 8.0} for i in range(1, 11)]
    assert starts.summary([make_run("rope", curve=curve)], [], 1)["slope"] == pytest.approx(0.02)


def test_a_comparison_that_ends_before_the_start_decides_nothing():
    """The first sentence says so, and no pair of the scheme has a p-value."""
    runs = [run_of(0.3, 0.5, 0.9, seed=seed, scheme=scheme) for scheme in ("tisa", "rope") for seed in (1, 2, 3)]
    runs += [run_of(0.01, 0.02, 0.03 + seed / 100, seed=seed) for seed in (1, 2, 3)]
    runs = [{**run, "loss": run["loss"] + run["seed"] / 50 * (run["scheme"] != "rope")} for run in runs]
    plan = make_plan(["absolute", "tisa", "rope"], budget={"updates": 300})
    rows = {row["scheme"]: row for row in summarise(plan, runs)}
    assert rows["absolute"]["state"] == UNDECIDED
    assert all(rows[name]["difference"]["p"] is rows[name]["difference"]["p_holm"] is None for name in ("tisa", "rope"))
    text = report.answer([*rows.values()], plan)
    assert text.startswith("Not decided: absolute used no word order in 3 of 3 runs of 300 updates")
    assert "0.100 bits per 100 updates" in text
    others = {row["scheme"]: row for row in summarise(make_plan(["absolute", "tisa", "rope"], reference="tisa"), runs)}
    assert others["absolute"]["difference"]["p"] is None
    assert others["rope"]["difference"]["p"] is not None
