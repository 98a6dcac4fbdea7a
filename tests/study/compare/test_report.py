"""The report of fake runs: complete, of one file, and the same numbers in each form."""

import csv
import json
import re

import pytest

pytest.importorskip("statsmodels", reason="needs pip install -e '.[compare]'")
pytest.importorskip("matplotlib", reason="needs pip install -e '.[compare]'")

import fake_runs
from fake_runs import make_costs, make_plan, make_run, make_runs
from pages import Page

from fairseq_posenc.base.ownership import claim
from fairseq_posenc.study.compare import report
from fairseq_posenc.study.compare.claims import judge, read_claims
from fairseq_posenc.study.compare.results import BEST, UNDECIDED, WORSE, summarise
from fairseq_posenc.study.engine.report import CSV, JSON, MARKDOWN, PAGE

SCHEMES = [*fake_runs.FINAL, "raffel", "sentence_absolute"]
CLAIM = "- {id: tisa, text: TISA <helps>., source: a paper, published: 1 & 2, difference: [tisa, absolute]}"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    out = tmp_path_factory.mktemp("compare") / "out"
    runs, plan = make_runs(), make_plan(SCHEMES)
    claim(out, "compare")
    rows = summarise(plan, runs, make_costs())
    path = tmp_path_factory.mktemp("claims") / "claims.yaml"
    path.write_text(CLAIM)
    shown = report.report(plan, rows, runs, judge(read_claims(path), runs)).write(out)
    return out, rows, shown


def test_the_page_is_one_file_whose_wide_parts_scroll(written):
    out, _, _ = written
    page = Page((out / PAGE).read_text("utf-8"))
    assert not page.loose
    assert len(page.sources) == len(list((out / report.FIGURES).glob("*.png")))
    assert all(source.startswith("data:image/png;base64,") for source in page.sources)
    assert page.links
    assert all(link.startswith("#") for link in page.links)
    assert "viewport" in (out / PAGE).read_text("utf-8")
    for text in (
        "TISA <helps>.",
        "1 & 2",
        "reproduced",
        "(unigram: no context)",
        "weight decay 0.01 of all parameters; text",
        "raffel (4)",
        "--positions tisa",
        "ab" * 32,
    ):
        assert text in page.text


def test_what_does_not_decay_is_said():
    plan = make_plan(SCHEMES).model_copy(update={"train": "--weight-decay 0.1 --no-decay norms,biases"})
    assert "; weight decay 0.1 of all parameters but norms,biases; text" in report.setting(plan, [])


def test_all_forms_have_the_same_numbers(written):
    out, rows, shown = written
    markdown = (out / MARKDOWN).read_text("utf-8")
    assert markdown.startswith(shown)
    assert "TISA <helps>." in markdown
    with (out / CSV).open(encoding="utf-8", newline="") as stream:
        table = list(csv.DictReader(stream))
    content = json.loads((out / JSON).read_text("utf-8"))
    assert [row["scheme"] for row in table] == [row["scheme"] for row in content["schemes"]] == [row["scheme"] for row in rows]
    for row, line in zip(table, rows, strict=True):
        assert row["loss"] == ("" if line["loss"] is None else str(line["loss"]))
        assert line["loss"] is None or f"{line['loss']:.3f}" in shown
        p = line["difference"] and line["difference"]["p"]
        assert row.get("difference_p", "") == ("" if p is None else str(p))
        median = line["start"] and line["start"]["median"]
        assert row["start_median"] == ("" if median is None else str(median))
    assert content["claims"][0]["verdict"] == "reproduced"


def test_the_answer_says_which_at_what_cost_and_what_is_not_known(written):
    _, rows, _ = written
    plan = make_plan(SCHEMES)
    text = report.answer(rows, plan)
    assert text.startswith("Not decided: sentence_absolute used no word order in 3 of 3 runs of 4,000 updates; it needs more (")
    loss, start, other = (rows[0]["loss"], rows[0]["start"]["median"], rows[3]["start"]["median"])
    assert text.partition("updates). ")[2] == (
        f"tisa has the least loss, {loss:.3f} bits per predicted token, and uses word order after {start:,.0f} (212–213) "
        f"updates, absolute after {other:,.0f}; as good within 0.1 bits: rope. "
        "A training step of tisa takes 1.11 (1.09–1.13) times one of absolute, and one of rope, the fastest of these, "
        "1.05 (1.03–1.07). 3 of 5 schemes use word order sooner than absolute, after 0.09 to 0.09 of its updates "
        "(p < 0.05 each, corrected for their number). Not known: runs that diverged or failed: raffel (4)."
    )
    undecided = [rows[0], rows[1] | {"state": UNDECIDED}]
    assert "no other scheme." in report.answer(undecided, plan)
    assert "are not complete: rope." in report.answer(undecided, plan)
    assert "may be chance" in report.answer([row | {"state": UNDECIDED} for row in rows], plan)
    assert report.answer([rows[-1]], plan) == "No run has finished."


def test_the_table_has_the_columns_that_were_measured(written):
    _, rows, _ = written
    table = report.ranking(rows, make_plan(SCHEMES), 8.1)
    cells = {line[1]: dict(zip(table.head, line, strict=True)) for line in table.rows}
    absolute, none = cells["absolute"], cells["none"]
    assert (absolute["state"], absolute["started"], absolute["− absolute"], absolute["p"]) == (WORSE, "3 of 3", "–", "–")
    assert (none["start"], none["started"], none["of started"]) == ("never", "0 of 3", "–")
    start = rows[0]["start"]
    assert cells["tisa"]["at age 1,000"] == f"{start['loss_at_age']:.3f}"
    assert cells["tisa"]["÷ absolute"].startswith(f"{start['ratio']['mean']:.2f} (")
    assert (cells["rope"]["state"], cells["sentence_absolute"]["p"], cells["raffel"]["runs"]) == (BEST, "–", "0; 4 diverged")
    assert cells[report.UNIGRAM]["loss"] == "8.100"
    old = [{**run, "permuted": None} for run in make_runs(["tisa", "absolute"])]
    plan = make_plan([*SCHEMES, "tisa"])
    assert report.ranking(summarise(plan, old), plan, None).head == [
        "",
        "scheme",
        "loss",
        "state",
        "− absolute",
        "p",
        "parameters",
        "runs",
    ]
    assert "was not measured" in report.state(plan, old)


@pytest.mark.parametrize(
    "runs", [[make_run("absolute", status="diverged")], [make_run("absolute", unigram=None, by_position=None)]]
)
def test_a_report_of_almost_nothing(runs, tmp_path):
    plan = make_plan(["absolute"])
    claim(tmp_path, "compare")
    report.report(plan, summarise(plan, runs), runs).write(tmp_path)
    assert (tmp_path / PAGE).exists()
    assert (tmp_path / report.FIGURES / "overview.png").exists() == (runs[0]["status"] == "finished")


def test_a_scheme_that_was_not_tested_is_not_called_best():
    late = [make_run("absolute", seed=seed, loss=4.0, permuted=4.0) for seed in (1, 2, 3)]
    runs = [*late, *(make_run(scheme, seed=seed) for scheme in ("tisa", "rope") for seed in (1, 2, 3))]
    plan = make_plan(["absolute", "tisa", "rope"], learning_rates=[2e-3])
    rows = summarise(plan, runs)
    best = next(row["scheme"] for row in rows if row["state"] == "best")
    assert f"it was not tested, and of the schemes that were, {best} has the least" in report.answer(rows, plan)


def test_a_late_scheme_beside_runs_whose_starts_were_not_measured():
    late = [make_run("tisa", seed=seed, loss=8.0, permuted=8.0) for seed in (1, 2, 3)]
    runs = [*late, *(make_run("absolute", seed=seed, permuted=None) for seed in (1, 2, 3))]
    plan = make_plan(["absolute", "tisa"], learning_rates=[2e-3])
    assert "absolute has the least loss" in report.answer(summarise(plan, runs), plan)


def test_what_is_not_done_or_not_equal():
    runs, plan = make_runs(), make_plan([*SCHEMES, "t5"])
    assert "not complete: 8 runs are left" in report.state(plan, runs, left=8)
    assert report.state(plan, runs) == ""
    elsewhere = make_run("t5", device="another")
    assert f"({6 * 3} on a processor, 1 on another)" in (text := report.state(plan, [*runs, elsewhere]))
    assert "of 51 pairs of runs with one seed, 6 are of two" in text


def test_the_chosen_learning_rate_has_the_arrow():
    """Also where two losses are equal to three decimals; none where a run failed."""
    runs = [make_run("t5", 1e-3, selection=5.1001), make_run("t5", 2e-3, selection=5.05), make_run("t5", 2e-3, 2, selection=5.0)]
    assert report.learning_rates(runs).rows == [["t5", "5.100", "5.050, 5.000 ←"]]
    failed = [*runs[:2], make_run("t5", 2e-3, 2, status="failed")]
    assert report.learning_rates(failed).rows == [["t5", "5.100 ←", "5.050, failed"]]


def test_runs_that_end_at_different_updates_are_ordered_by_their_starts(tmp_path):
    """The losses of a plan with ``stop`` are nowhere: the scheme with the least may just have been trained for longer."""
    plan = make_plan(["absolute", "tisa", "none"], learning_rates=[2e-3], stop="word order")
    ends = {"absolute": (8, 6.5), "tisa": (4, 7.5), "none": (20, 8.1)}
    runs = []
    for scheme, (points, loss) in ends.items():
        used = [(100 * i, 0.0 if scheme == "none" or i < points - 2 else 0.3) for i in range(1, points + 1)]
        curve = [{"updates": at, "loss": loss, "permuted": loss + bits} for at, bits in used]
        values = {"loss": loss, "permuted": loss + used[-1][1], "curve": curve}
        runs += [make_run(scheme, seed=seed, **values) for seed in (1, 2, 3)]
    rows = summarise(plan, runs)
    assert [row["scheme"] for row in rows] == ["tisa", "absolute", "none"]
    assert {(row["loss"], row["start"]["loss"], row["start"]["loss_at_age"]) for row in rows} == {(None, None, None)}
    found = report.report(plan, rows, runs)
    found.write(tmp_path)
    head = ["", "scheme", "start", "tokens", "÷ absolute", "started", "parameters", "runs"]
    assert report.ranking(rows, plan, None).head == head
    text = report.answer(rows, plan)
    assert text.startswith(f"{report.STOPPED} tisa starts first, after 133 updates.")
    assert "1 of 2 schemes use word order sooner than absolute" in text
    shown = (tmp_path / "results.md").read_text("utf-8")
    assert not re.search(r"least loss|unigram|Not known|Longer|6\.500|7\.500", shown)
    more = [*runs, make_run("absolute", seed=4)]
    assert report.state(plan, more, rows).startswith("The table is of the seeds 1, 2, 3: 1 other runs")
    assert (tmp_path / "figures" / "overview.png").exists()


def test_losses_on_longer_sequences_are_of_the_seeds_that_all_have():
    run = {"loss": 5.0, "by_length": {"64": 6.0, "128": 7.0}}
    short = {**run, "by_length": {"64": 6.0}}
    done = {"rope": [{**run, "seed": 1}, {**run, "seed": 2, "loss": 1.0}], "tisa": [{**short, "seed": 1}], "absolute": []}
    table = report.lengths(done, [{"scheme": scheme, "losses": runs} for scheme, runs in done.items()])
    assert table.head == ["scheme", "as in training", "64 tokens", "128 tokens"]
    assert table.rows == [["rope", "5.000", "6.000", "7.000"], ["tisa", "5.000", "6.000", "–"]]


def test_scores_have_intervals():
    """3.0 is the mean of 2.0, 3.0 and 4.0, and 4.302653 / √3 half of its interval."""
    scores = [{"scheme": "tisa", "scores": {"RTE": value, "MRPC": 80.0 if value == 2 else None}} for value in (2.0, 3.0, 4.0)]
    scores += [{"scheme": "none", "scores": {"RTE": 1.0}}, {"scheme": "rope", "scores": {"RTE": 1.0}}, {"scheme": "rope"}]
    scores = [{**run, "benchmark": "glue"} for run in scores]
    scores += [{"scheme": "tisa", "benchmark": "squad", "scores": {"SQuAD-1.1": 20.0}}]
    table = report.benchmarks(scores)
    assert table.head == ["scheme", "RTE", "MRPC", "SQuAD-1.1"]
    assert table.rows == [["tisa", "3.00 ± 2.48", "–", "20.00"], ["none", "1.00", "–", "–"], ["rope", "–", "–", "–"]]


def test_starts_are_in_updates_and_in_tokens(written):
    plan, rows = make_plan(SCHEMES), written[1]
    table = report.ranking(rows, plan, None)
    place = {name: table.head.index(name) for name in ("scheme", "start", "tokens")}
    starts = {row["scheme"]: row["start"] for row in rows}
    assert any(start and start["median"] for start in starts.values())
    for line in table.rows:
        start = starts[line[place["scheme"]]]
        if start and start["median"]:
            millions = start["median"] * plan.tokens_per_sample * plan.batch_size / 1e6
            assert line[place["tokens"]] == f"{millions:.1f}"


def test_accuracies_on_pairs_are_columns_and_none_is_the_control(tmp_path):
    runs, plan = make_runs(), make_plan(SCHEMES)

    def scored(order_of_none):
        every = {"none": order_of_none, "absolute": 60.0, "tisa": 80.0}
        return [
            {
                "status": "finished",
                "benchmark": "pairs",
                "scheme": scheme,
                "seed": seed,
                "scores": {"all pairs": 55.0 + seed, "word order": order},
            }
            for scheme, order in every.items()
            for seed in (1, 2, 3)
        ]

    rows = summarise(plan, runs, scores=scored(50.0))
    by_scheme = {row["scheme"]: row for row in rows}
    assert by_scheme["tisa"]["all pairs"]["mean"] == pytest.approx(57)
    assert by_scheme["rope"]["word order"] is None
    claim(tmp_path / "out", "compare")
    shown = report.report(plan, rows, runs, scores=scored(50.0)).write(tmp_path / "out")
    assert "word order" in shown
    assert "57.0 ± 2.5" in shown
    assert "something is wrong" not in shown
    assert (tmp_path / "out" / report.FIGURES / "pairs.png").exists()
    wrong = summarise(plan, runs, scores=scored(53.0))
    assert "none has no positions, and does not get 50%" in report.state(plan, runs, wrong)
