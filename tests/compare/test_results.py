"""Rows of the result against runs whose losses are known."""

import math

import numpy as np
import pytest

pytest.importorskip("statsmodels", reason="needs pip install -e '.[compare]'")

import fake_runs
from fake_runs import make_folder, make_plan, make_run, make_runs

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.study.compare import cells
from fairseq_posenc.study.compare.results import choose, order_bound, summarise


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    out = tmp_path_factory.mktemp("compare")
    runs = make_runs()
    make_folder(runs, out)
    schemes = [*fake_runs.FINAL, "raffel", "sentence_absolute"]
    return {row["scheme"]: row for row in summarise(make_plan(schemes), runs, out, fake_runs.make_costs())}


def test_the_learning_rate_is_chosen_by_the_first_half_of_the_text():
    runs = [make_run("t5", 1e-3, selection=5.0, loss=5.3), make_run("t5", 2e-3, selection=5.1, loss=5.0)]
    runs += [make_run("t5", 4e-3, status="diverged"), make_run("t5", 2e-3, seed=2, selection=4.0)]
    assert choose([*runs, make_run("raffel", status="diverged")]) == {"t5": 1e-3, "raffel": None}


def test_rows_are_ranked_and_have_what_the_runs_have(rows):
    assert list(rows)[-3:] == ["none", "sentence_absolute", "raffel"]
    losses = [make_run("tisa", seed=seed)["loss"] for seed in (1, 2, 3)]
    tisa = rows["tisa"]
    assert tisa["losses"] == {"1": losses[0], "2": losses[1], "3": losses[2]}
    assert tisa["loss"] == pytest.approx(np.mean(losses))
    half = 4.302653 * np.std(losses, ddof=1) / np.sqrt(3)  # of Student's t with 2 degrees of freedom
    assert (tisa["low"], tisa["high"]) == pytest.approx((tisa["loss"] - half, tisa["loss"] + half))
    assert tisa["perplexity"] == pytest.approx(2 ** tisa["loss"])
    assert (tisa["lr"], tisa["runs"], tisa["parameters"], tisa["cost"]) == (2e-3, 3, 120, 1.11)
    assert (rows["absolute"]["cost"], rows["raffel"]["cost"]) == (1.0, None)
    assert {name for name, row in rows.items() if row["in_set"]} == {"tisa", "rope"}


def test_differences_are_over_shared_seeds(tmp_path):
    runs = [make_run("absolute", seed=seed, loss=5 + seed / 10) for seed in (1, 2, 3, 4, 5, 6)]
    runs += [make_run("tisa", seed=seed, loss=4.5 + seed / 10 + (seed == 2) / 100) for seed in (1, 2, 3)]
    make_folder(runs, tmp_path)
    tisa, absolute = summarise(make_plan(["absolute", "tisa"]), runs, tmp_path)
    assert absolute["difference"] is None
    assert (absolute["runs"], absolute["loss"]) == (6, pytest.approx(5.2))  # of the seeds of both
    difference = tisa["difference"]
    assert (difference["seeds"], difference["mean"]) == (3, pytest.approx(-0.5 + 0.01 / 3))
    assert difference["p_holm"] == difference["p"]  # one comparison
    low, high = difference["multi_bootstrap"]
    assert low == pytest.approx(-0.5)  # seed 2 is not drawn
    assert high == pytest.approx(-0.49)  # seed 2 alone is drawn


def test_what_diverged_or_did_not_learn_is_counted(rows):
    assert (rows["raffel"]["diverged"], rows["raffel"]["runs"], rows["raffel"]["loss"]) == (2, 0, None)
    assert (rows["sentence_absolute"]["unlearned"], rows["none"]["unlearned"], rows["tisa"]["unlearned"]) == (3, 3, 0)


def test_word_order_is_learned_below_none_and_the_unigram_model(tmp_path):
    runs = [make_run("absolute", unigram=9.0, loss=8.45), make_run("tisa", unigram=9.0, loss=8.2)]
    assert order_bound(runs) == pytest.approx(8.5)
    runs += [make_run("none", unigram=9.0, loss=8.4, seed=1), make_run("none", unigram=9.0, loss=8.3, seed=2)]
    assert order_bound(runs) == pytest.approx(8.25)
    make_folder(runs, tmp_path)
    rows = summarise(make_plan(["absolute", "tisa", "none"]), runs, tmp_path)
    assert {row["scheme"]: row["unlearned"] for row in rows} == {"tisa": 0, "none": 2, "absolute": 1}
    assert order_bound([make_run("absolute", unigram=None)]) == math.inf


def test_a_scheme_of_which_a_run_diverged_is_last_and_not_among_the_best(tmp_path):
    runs = [make_run(scheme, seed=seed) for scheme in ("absolute", "tisa") for seed in (1, 2, 3)]
    runs[4] = make_run("tisa", seed=2, status="diverged")
    runs += [make_run("rope", loss=4.0), make_run("t5", seed=1), make_run("t5", seed=2, status="failed")]
    make_folder(runs, tmp_path)
    rows = summarise(make_plan(["absolute", "tisa", "rope", "t5"]), runs, tmp_path)
    assert [row["scheme"] for row in rows] == ["rope", "t5", "absolute", "tisa"]
    rope, t5, _, tisa = rows
    assert (rope["low"], rope["difference"], rope["in_set"]) == (None, None, None)
    assert (t5["failed"], t5["diverged"], t5["in_set"]) == (1, 0, None)
    runs.append(make_run("t5", 1e-3, status="failed"))  # whose learning rate is not the chosen one
    rows = summarise(make_plan(["absolute", "tisa", "rope", "t5"]), runs, tmp_path)
    assert rows[1]["failed"] == 2
    assert (tisa["runs"], tisa["diverged"], tisa["in_set"], tisa["difference"]) == (2, 1, None, None)


def test_runs_with_other_masks_are_refused(tmp_path):
    runs = [make_run(scheme, seed=seed) for scheme in ("absolute", "tisa") for seed in (1, 2)]
    make_folder(runs, tmp_path)
    np.savez(tmp_path / "runs/tisa/lr-0.002_seed-2" / cells.ITEMS, sums=np.ones(40), counts=np.full(40, 9))
    with pytest.raises(InputError, match=r"tisa/lr-0.002_seed-2 .* masks"):
        summarise(make_plan(["absolute", "tisa"]), runs, tmp_path)
