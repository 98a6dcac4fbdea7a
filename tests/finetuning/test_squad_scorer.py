"""The scorer against the official script's own output, and on cases worked out by hand."""

import json
from pathlib import Path

import pytest

from fairseq_posenc.finetuning.squad.reader import Question, read
from fairseq_posenc.finetuning.squad.scorer import exact, f1, normalise, score_v1, score_v2

GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "golden" / "squad_eval.json"
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
        expected = golden["metrics"][f"na_prob_file_thresh_{threshold}"]
        assert score_v2(questions, golden["predictions"], odds, float(threshold)) == expected


def ask(id_, *answers):
    return Question(id_, "?", "context", answers, (0,) * len(answers))


def test_words_are_counted_as_bags():
    assert normalise("The  Cat, sat!") == "cat sat"
    assert exact("a cat", "Cat.") == 1
    assert f1("the cat sat", "cat cat") == pytest.approx(2 * 0.5 * 0.5 / 1.0)
    assert f1("cat", "dog") == 0.0


def test_versions_differ_on_answers_of_no_words():
    question = ask("q", "the")
    assert score_v1([question], {"q": "a"}) == {"exact": 100.0, "f1": 0.0}
    assert score_v2([question], {"q": "a"})["f1"] == 100.0


def test_best_of_several_answers():
    assert score_v1([ask("q", "red ball", "ball")], {"q": "the ball"}) == {"exact": 100.0, "f1": 100.0}


def test_threshold_is_strict_and_best_threshold_is_found():
    questions = [ask("a", "cat"), ask("b", "dog"), ask("c")]
    predictions = {"a": "cat", "b": "cow", "c": "cow"}
    odds = {"a": -1.0, "b": 0.5, "c": 2.0}
    scores = score_v2(questions, predictions, odds, threshold=0.5)
    assert scores["exact"] == pytest.approx(200 / 3)
    assert (scores["HasAns_exact"], scores["NoAns_exact"]) == (50.0, 100.0)
    assert scores["best_exact"] == pytest.approx(200 / 3)
    assert scores["best_exact_thresh"] == -1.0
    assert score_v2(questions, predictions, odds, threshold=-1.5)["exact"] == pytest.approx(100 / 3)


def test_missing_predictions_are_named():
    with pytest.raises(ValueError, match="1 questions have no prediction, the first of them 'b'"):
        score_v2([ask("a", "x"), ask("b")], {"a": "x"})
