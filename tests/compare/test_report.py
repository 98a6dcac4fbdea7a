"""The report of fake runs: complete, of one file, and the same numbers in each form."""

import csv
import json
from html.parser import HTMLParser

import pytest

pytest.importorskip("statsmodels", reason="needs pip install -e '.[compare]'")
pytest.importorskip("matplotlib", reason="needs pip install -e '.[compare]'")

import fake_runs
from fake_runs import make_costs, make_folder, make_plan, make_run, make_runs

from fairseq_posenc.study.compare import report
from fairseq_posenc.study.compare.claims import read_claims
from fairseq_posenc.study.compare.results import summarise
from fairseq_posenc.study.word_order import report as order_report

SCHEMES = [*fake_runs.FINAL, "raffel", "sentence_absolute"]
CLAIM = "- {id: tisa, text: TISA <helps>., source: a paper, published: 1 & 2, order: [tisa, none]}"


class Page(HTMLParser):
    """The text of a page, its links and sources, and what lies outside of boxes that scroll."""

    def __init__(self, text):
        super().__init__()
        self.links, self.sources, self.text, self.open, self.loose = [], [], "", [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.links += [attributes[name] for name in ("href",) if name in attributes]
        self.sources += [attributes[name] for name in ("src",) if name in attributes]
        if tag in ("table", "img", "pre") and not any("scroll" in kind for _, kind in self.open):
            self.loose.append(tag)
        if tag not in ("meta", "img", "br"):
            self.open.append((tag, attributes.get("class", "")))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    out = tmp_path_factory.mktemp("compare") / "out"
    runs, plan = make_runs(), make_plan(SCHEMES)
    make_folder(runs, out)
    rows = summarise(plan, runs, out, make_costs())
    tasks = tmp_path_factory.mktemp("tasks")
    schemes = [{"scheme": "tisa", "learned": 3, "runs": 4, "within": 0.9, "beyond": None, "ranked_by": ["copy"]}]
    (tasks / order_report.RESULTS).write_text(json.dumps({"format": 1, "schemes": schemes}))
    (tasks / order_report.HEAT_MAP).write_bytes(b"a picture")
    (tasks / "claims.yaml").write_text(CLAIM)
    shown = report.write(out, plan, rows, runs, read_claims(tasks / "claims.yaml"), order_report.read(tasks))
    return out, rows, shown


def test_the_page_is_one_file_whose_wide_parts_scroll(written):
    out, _, _ = written
    page = Page((out / report.PAGE).read_text("utf-8"))
    assert page.open == [("html", "")] or not page.open
    assert not page.loose
    assert len(page.sources) == len(list((out / report.FIGURES).glob("*.png"))) + 1
    assert all(source.startswith("data:image/png;base64,") for source in page.sources)
    assert page.links
    assert all(link.startswith("#") for link in page.links)
    assert "viewport" in (out / report.PAGE).read_text("utf-8")
    for text in (
        "TISA <helps>.",
        "1 & 2",
        "reproduced",
        "3 of 4",
        "Over copy",
        "(unigram: no context)",
        "raffel (2)",
        "--positions tisa",
        "ab" * 32,
    ):
        assert text in page.text


def test_all_forms_have_the_same_numbers(written):
    out, rows, shown = written
    markdown = (out / report.MARKDOWN).read_text("utf-8")
    assert shown in markdown
    assert "TISA <helps>." in markdown
    with (out / report.CSV).open(encoding="utf-8", newline="") as stream:
        table = list(csv.DictReader(stream))
    content = json.loads((out / report.JSON).read_text("utf-8"))
    assert [row["scheme"] for row in table] == [row["scheme"] for row in content["schemes"]] == [row["scheme"] for row in rows]
    for row, line in zip(table, rows, strict=True):
        assert row["loss"] == ("" if line["loss"] is None else str(line["loss"]))
        assert line["loss"] is None or f"{line['loss']:.3f}" in shown
        assert row["difference_p"] == str(line["difference"]["p"] if line["difference"] else "")
    assert content["claims"][0]["verdict"] == "reproduced"


def test_the_answer(written):
    _, rows, _ = written
    text = report.answer(rows, "absolute")
    assert text.startswith("tisa has the least loss")
    assert "cannot be distinguished from it: rope." in text
    assert f"absolute, is {-rows[0]['difference']['mean']:.3f} bits worse" in text
    alone = report.answer([rows[0] | {"in_set": True}, rows[1] | {"in_set": False}], "tisa")
    assert "All other schemes with three seeds or more are worse" in alone
    assert "It is the reference" in alone
    single = report.answer([row | {"in_set": None} for row in rows], "absolute")
    assert "may be chance" in single
    assert report.answer([rows[-1]], "absolute") == "No run has finished."


@pytest.mark.parametrize(
    "runs", [[make_run("absolute", status="diverged")], [make_run("absolute", unigram=None, by_position=None)]]
)
def test_a_report_of_almost_nothing(runs, tmp_path):
    plan = make_plan(["absolute"])
    make_folder(runs, tmp_path)
    report.write(tmp_path, plan, summarise(plan, runs, tmp_path), runs)
    assert (tmp_path / report.PAGE).exists()
    assert not (tmp_path / report.FIGURES / "cost.png").exists()  # the reference alone has a cost


def test_what_is_not_done_or_not_equal():
    runs, plan = make_runs(), make_plan([*SCHEMES, "t5"])
    assert f"{len(runs)} of {plan.total} runs" in report.state(plan, runs)
    assert report.state(make_plan(["tisa"], seeds=1, learning_rates=[2e-3], reference="tisa"), [make_run("tisa")]) == ""
    assert "devices" in report.state(plan, [*runs, make_run("t5", device="another")])


def test_the_chosen_learning_rate_has_the_arrow():
    """Also where two losses are equal to three decimals."""
    runs = [make_run("t5", 1e-3, selection=5.0001), make_run("t5", 2e-3, selection=5.0)]
    assert report.learning_rates(runs)[1] == [["t5", "5.000", "5.000 ←"]]


def test_losses_on_longer_sequences_are_of_the_seeds_that_all_have():
    run = {"loss": 5.0, "by_length": {"64": 6.0, "128": 7.0}}
    short = {**run, "by_length": {"64": 6.0}}
    done = {"rope": [{**run, "seed": 1}, {**run, "seed": 2, "loss": 1.0}], "tisa": [{**short, "seed": 1}], "absolute": []}
    head, lines = report.lengths(done, [{"scheme": scheme} for scheme in done])
    assert head == ["scheme", "as in training", "64 tokens", "128 tokens"]
    assert lines == [["rope", "5.000", "6.000", "7.000"], ["tisa", "5.000", "6.000", "–"]]


def test_scores_have_intervals():
    """3.0 is the mean of 2.0, 3.0 and 4.0, and 4.302653 / √3 half of its interval."""
    scores = [{"scheme": "tisa", "scores": {"RTE": value, "MRPC": 80.0 if value == 2 else None}} for value in (2.0, 3.0, 4.0)]
    scores += [{"scheme": "none", "scores": {"RTE": 1.0}}, {"scheme": "rope", "scores": {"RTE": 1.0}}, {"scheme": "rope"}]
    scores = [{**run, "benchmark": "glue"} for run in scores]
    scores += [{"scheme": "tisa", "benchmark": "squad", "scores": {"SQuAD-1.1": 20.0}}]
    head, lines = report.benchmarks(scores)
    assert head == ["scheme", "RTE", "MRPC", "SQuAD-1.1"]
    assert lines == [["tisa", "3.00 ± 2.48", "–", "20.00"], ["none", "1.00", "–", "–"], ["rope", "–", "–", "–"]]
