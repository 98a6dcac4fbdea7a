"""The scorer against the official script's own output, and on cases worked out by hand."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_posenc.study.finetune.squad_data import Question, applied_threshold, exact, f1, normalise, read, score_v1, score_v2

GOLDEN = Path(__file__).resolve().parents[4] / "shared" / "golden" / "squad_eval.json"
THRESHOLDS = ("0.3", "0.5", "0.8", "1.0")


@pytest.fixture(scope="module")
def golden():
    if not GOLDEN.exists():
        pytest.skip(f"{GOLDEN} is not here")
    return json.loads(GOLDEN.read_text())


@pytest.fixture
def questions(golden, tmp_path):
    (tmp_path / "dev.json").write_text(json.dumps(golden["dataset"]))
    return list(read(tmp_path / "dev.json", "2.0"))


def test_normalisation_is_the_official_one(golden):
    assert [normalise(text) for text, _ in golden["normalize_answer"]] == [clean for _, clean in golden["normalize_answer"]]


def test_scores_are_the_official_ones(golden, questions):
    odds = {id_: golden["na_probs"][id_] for id_ in golden["na_probs_order"]}
    assert score_v2(questions, golden["predictions"]) == golden["metrics"]["no_na_prob_file"]
    for threshold in THRESHOLDS:
        official = golden["metrics"][f"na_prob_file_thresh_{threshold}"]
        expected = {name: value for name, value in official.items() if not name.startswith("best_")}
        assert score_v2(questions, golden["predictions"], odds, float(threshold)) == expected


def ask(id_, *answers):
    return Question(id_, "?", "context", answers, (0,) * len(answers))


def test_words_are_counted_as_bags():
    assert normalise("The  Cat, sat!") == "cat sat"
    assert exact("a cat", "Cat.") == 1
    assert f1("the cat sat", "cat cat") == pytest.approx(2 * 0.5 * 0.5 / 1.0)
    assert f1("cat", "dog") == 0.0


def test_versions_differ_on_answers_of_no_words():
    question = ask("q", "the")  # which has an answer, though not of words
    assert "HasAns_total" in score_v2([question], {"q": ""})
    assert "NoAns_total" not in score_v2([question], {"q": ""})
    assert score_v1([question], {"q": "a"}) == {"exact": 100.0, "f1": 0.0}
    assert score_v2([question], {"q": "a"})["f1"] == 100.0


def test_best_of_several_answers():
    assert score_v1([ask("q", "red ball", "ball")], {"q": "the ball"}) == {"exact": 100.0, "f1": 100.0}


def test_the_threshold_is_strict():
    questions = [ask("a", "cat"), ask("b", "dog"), ask("c")]
    predictions = {"a": "cat", "b": "cow", "c": "cow"}
    odds = {"a": -1.0, "b": 0.5, "c": 2.0}
    scores = score_v2(questions, predictions, odds, threshold=0.5)
    assert scores["exact"] == pytest.approx(200 / 3)
    assert (scores["HasAns_exact"], scores["NoAns_exact"]) == (50.0, 100.0)
    assert score_v2(questions, predictions, odds, threshold=-1.5)["exact"] == pytest.approx(100 / 3)


def test_answering_nothing_may_be_best():
    """The official script then names the threshold 0, which answers all whose odds are negative."""
    questions = [*(ask(id_) for id_ in "abcd"), ask("e", "cat"), ask("f", "dog")]
    predictions = dict.fromkeys("abcdef", "cow")
    odds = {"a": -9.0, "b": -8.0, "c": -3.0, "d": 1.0, "e": -2.0, "f": 2.0}
    assert score_v2(questions, predictions, odds, threshold=0.0)["f1"] == pytest.approx(100 / 6)
    threshold = applied_threshold(questions, predictions, odds)
    assert threshold < -9.0
    assert score_v2(questions, predictions, odds, threshold)["f1"] == pytest.approx(400 / 6)


def test_no_threshold_parts_equal_odds():
    """Answering the first and not the second of two questions of equal odds would be best, and cannot be had."""
    questions = [ask("a", "cat"), ask("b"), ask("c"), ask("d")]
    predictions, odds = dict.fromkeys("abcd", "cat"), {"a": 1.0, "b": 1.0, "c": 1.0, "d": 5.0}
    assert score_v2(questions, predictions, odds, threshold=1.0)["f1"] == 50.0
    assert score_v2(questions, predictions, odds, applied_threshold(questions, predictions, odds))["f1"] == 75.0


def test_an_answer_of_no_words_is_none():
    """It is right where there is no answer, whatever the threshold; the official search takes it for wrong."""
    questions, predictions = [ask("a"), ask("b", "cat")], {"a": "the", "b": "cat"}
    assert applied_threshold(questions, predictions, {"a": -2.0, "b": 1.0}) == 1.0
    assert score_v2(questions, predictions, {"a": -2.0, "b": 1.0}, 1.0)["f1"] == 100.0


ANSWERS = st.sampled_from(["", "the", "cat", "black cat", "dog"])
ODDS = st.sampled_from([-5e-324, -1.0, -2.5, 0.0, 3.0, 1e-300, 1.7e308, -1.7e308]) | st.floats(-3, 3)


@given(st.lists(st.tuples(st.lists(ANSWERS, max_size=2), ANSWERS, ODDS), min_size=1, max_size=8))
def test_the_applied_threshold_gives_the_best_score_that_any_gives(drawn):
    questions = [ask(str(i), *answers) for i, (answers, _, _) in enumerate(drawn)]
    predictions = {str(i): prediction for i, (_, prediction, _) in enumerate(drawn)}
    odds = {str(i): value for i, (_, _, value) in enumerate(drawn)}
    candidates = [math.nextafter(min(odds.values()), -math.inf), *odds.values()]
    best = max(score_v2(questions, predictions, odds, threshold)["f1"] for threshold in candidates)
    applied = applied_threshold(questions, predictions, odds)
    assert math.isfinite(applied)
    assert score_v2(questions, predictions, odds, applied)["f1"] == pytest.approx(best, abs=1e-9)


def test_the_applied_threshold_gives_the_official_best_of_the_golden_file(golden, questions):
    odds = {id_: golden["na_probs"][id_] for id_ in golden["na_probs_order"]}
    applied = applied_threshold(questions, golden["predictions"], odds)
    scores = score_v2(questions, golden["predictions"], odds, applied)
    assert scores["f1"] == pytest.approx(max(
        score_v2(questions, golden["predictions"], odds, threshold)["f1"] for threshold in [-1.0, *odds.values()]
    ), abs=1e-9)  # fmt: skip
