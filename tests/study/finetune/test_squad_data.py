"""SQuAD's files, windows and answers, without a model."""

import copy
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from squad_files import write_squad

from fairseq_posenc.base.ownership import claim
from fairseq_posenc.study.finetune.squad_data import Limits, Question, find, read
from fairseq_posenc.study.finetune.squad_runs import answer_text, answer_tokens, encoded, predict, target, windows, write_split
from fairseq_posenc.text.vocabulary import Encoding, Vocabulary


@pytest.fixture
def content(tmp_path):
    write_squad(tmp_path, "2.0", paragraphs=2)
    return json.loads((tmp_path / "train-v2.0.json").read_text())


def reread(tmp_path, content, **options):
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(content))
    return list(read(path, **{"version": "2.0", **options}))


def test_questions_and_answers(tmp_path, content):
    questions = reread(tmp_path, content)
    assert len(questions) == 10
    for question in questions:
        assert len(question.answers) == (0 if question.id.endswith("none") else 1)
        for answer, start in zip(question.answers, question.starts, strict=True):
            assert question.context[start:].startswith(answer)


def test_answers_decide_whether_a_question_has_one(tmp_path, content):
    """As for the official script, which does not read ``is_impossible``."""
    first_question(content)["is_impossible"] = True
    assert len(reread(tmp_path, content)[0].answers) == 1


def first_question(content):
    return content["data"][0]["paragraphs"][0]["qas"][0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda content: first_question(content).pop("question"),
            r"data\[0\]\.paragraphs\[0\]\.qas\[0\]\.question: Field required",
        ),
        (lambda content: first_question(content).update(id="q0-1"), "an earlier question has the same id"),
        (lambda content: first_question(content)["answers"][0].pop("text"), r"qas\[0\]\.answers\[0\]\.text: Field required"),
        (lambda content: content["data"][0]["paragraphs"][0].pop("context"), r"paragraphs\[0\]\.context: Field required"),
        (lambda content: content["data"][0]["paragraphs"][0].update(context=" "), "paragraph 1: 'context'"),
        (lambda content: content.pop("data"), r"\.data\[0\]\.paragraphs: Field required.*must be a SQuAD file"),
        (lambda content: content["data"].clear(), "has no questions"),
    ],
)
def test_bad_files_are_named(tmp_path, content, change, message):
    change(content)
    with pytest.raises(ValueError, match=message):
        reread(tmp_path, content)


def paragraph(content):
    return content["data"][0]["paragraphs"][0]


def first_answer(content):
    return first_question(content)["answers"][0]


PLACES = [
    (lambda content: content, "data", list),
    (lambda content: content["data"], 0, dict),
    (lambda content: content["data"][0], "paragraphs", list),
    (lambda content: content["data"][0]["paragraphs"], 0, dict),
    (paragraph, "context", str),
    (paragraph, "qas", list),
    (lambda content: paragraph(content)["qas"], 0, dict),
    (first_question, "id", str),
    (first_question, "question", str),
    (first_question, "answers", list),
    (lambda content: first_question(content)["answers"], 0, dict),
    (first_answer, "text", str),
    (first_answer, "answer_start", int),
]
VALUES = [None, 3, 1.5, "text", True, [3], {}, {"x": 3}]


@pytest.mark.parametrize(("holder", "key", "kind"), PLACES)
def test_values_of_other_types_are_named(holder, key, kind, tmp_path, content):
    own = holder(content)[key]
    assert type(own) is kind
    place = f"[{key}]" if key == 0 else f".{key}"
    for value in VALUES:
        if (
            (type(value) is kind and kind not in (list, dict))
            or (key == "id" and value == 3)
            or (key == "answers" and value is None)
            or (key == "answer_start" and value is True)  # 1, as in Python
        ):
            continue
        holder(content)[key] = value
        with pytest.raises(ValueError, match=r"\.data\S*: .*must be a SQuAD file") as caught:
            reread(tmp_path, content)
        assert place in str(caught.value)
        holder(content)[key] = own


@pytest.mark.parametrize("start", [1, 10**30, -1, -(10**30)])
def test_questions_whose_answer_is_elsewhere_are_left_out(start, tmp_path, content, data_bin, capsys):
    """Of the training data; the official script scores them."""
    first_answer(content)["answer_start"] = start
    questions = reread(tmp_path, content)
    assert len(questions) == 10
    claim(tmp_path / "out", "squad")
    assert write_split(questions, tmp_path / "out", "train", Vocabulary(data_bin), Limits(max_length=256)) == 9
    assert "train: 1 questions left out, whose answers are not where the file has them" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["\ud800", "a\udfff", "\ud800\ud800"])
@pytest.mark.parametrize("change", [first_answer, first_question, paragraph])
def test_halves_of_characters_are_named(text, change, tmp_path, content):
    change(content).update({"text": text, "question": text, "context": text})
    with pytest.raises(ValueError, match=r"changed\.json is not JSON \(.* at line 1 column \d+\)"):
        reread(tmp_path, content)


@pytest.mark.parametrize("text", ["[" * 100000, '{"data":' * 100000, '{"data": NaN}', "\x00", '{"data": [}', ""])
def test_what_is_no_json(text, tmp_path):
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(ValueError, match=r"bad\.json (is not JSON|has another shape).*must be a SQuAD file") as caught:
        list(read(tmp_path / "bad.json", "2.0"))
    assert len(str(caught.value)) < 500


def rows_of(content):
    """The questions as rows of the datasets library."""
    for article in content["data"]:
        for each in article["paragraphs"]:
            for entry in each["qas"]:
                answers = entry["answers"]
                columns = {name: [answer[name] for answer in answers] for name in ("text", "answer_start")}
                yield {
                    "id": entry["id"],
                    "title": "t",
                    "context": each["context"],
                    "question": entry["question"],
                    "answers": columns,
                }


def annotated(content):
    """As annotation tools write it: numbers as ids, floats as places, other keys, no titles."""
    content = copy.deepcopy(content)
    for i, article in enumerate(content["data"]):
        article["title"] = None if i else 7
        for each in article["paragraphs"]:
            each["document_id"] = 12
            for entry in each["qas"]:
                entry |= {"annotator": None, "is_impossible": None, "plausible_answers": [{"text": "x"}]}
                for answer in entry["answers"]:
                    answer |= {"answer_start": float(answer["answer_start"]), "answer_end": 9, "answer_category": "SHORT"}
                if not entry["answers"]:
                    entry["answers"] = [{"text": "", "answer_start": -1}]
    return content


LAYOUTS = {
    "annotated": lambda content: json.dumps(annotated(content)),
    "articles alone": lambda content: json.dumps(annotated(content)["data"]),
    "rows": lambda content: json.dumps({"data": [*rows_of(content)], "version": "1"}),
    "a list of rows": lambda content: json.dumps([*rows_of(content)], indent=1),
    "JSON lines": lambda content: "".join(json.dumps(row) + "\n" for row in rows_of(content)),
    "JSON lines of articles": lambda content: "\r\n".join(json.dumps(article) for article in content["data"]),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_layouts_of_other_tools(layout, tmp_path, content):
    expected = reread(tmp_path, content)
    (tmp_path / "other.json").write_text(layout(content), "utf-8")
    assert list(read(tmp_path / "other.json", "2.0")) == expected


@pytest.mark.parametrize(("id_", "expected"), [(51870, "51870"), (7.0, "7"), (10**30, str(10**30)), ("a", "a"), ("07", "07")])
def test_whole_numbers_are_ids(id_, expected, tmp_path, content):
    first_question(content)["id"] = id_
    assert reread(tmp_path, content)[0].id == expected


def test_a_byte_order_mark_is_passed_over(tmp_path, content):
    (tmp_path / "bom.json").write_text(json.dumps(content), "utf-8-sig")
    assert len(list(read(tmp_path / "bom.json", "2.0"))) == 10


def test_both_missing_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"train-v2\.0\.json and .*dev-v2\.0\.json not found: --data"):
        find(tmp_path, "2.0")


def test_answers_without_tokens_are_left_out(tmp_path, data_bin, capsys):
    """A character that the vocabulary's normalisation drops, as the last of a text or as all of it."""
    qas = [{"id": id_, "question": "?", "answers": [{"text": text, "answer_start": at}]} for id_, text, at in
           (("a", "\u200b", 8), ("b", "ball", 4))]  # fmt: skip
    nothing = {"context": "\u200b", "qas": [{"id": "c", "question": "?", "answers": [{"text": "\u200b", "answer_start": 0}]}]}
    vocabulary = Vocabulary(data_bin)

    def prepared(*paragraphs):
        (tmp_path / "train.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
        limits = Limits(max_length=48, doc_stride=10, max_question_length=16)
        claim(tmp_path / "out", "squad")
        return write_split(read(tmp_path / "train.json", "1.1"), tmp_path / "out", "train", vocabulary, limits)

    assert prepared({"context": "red ball\u200b", "qas": qas}, nothing) == 1
    assert "train: 2 questions left out" in capsys.readouterr().err
    with pytest.raises(ValueError, match="train: no question is left"):
        prepared(nothing)


def test_a_context_without_an_answer_has_odds_that_json_knows():
    (nothing,) = windows(encoding(1), encoding(0), Limits(max_length=9, doc_stride=2, max_question_length=1), bos=0, eos=2)
    prediction = predict(Question("q", "?", "\u200b", (), ()), encoding(0), [nothing], [np.zeros((5, 2))], Limits())
    assert prediction.text == ""
    assert 1e300 < prediction.null_odds < float("inf")


def test_the_other_version_and_damaged_files(tmp_path, content):
    with pytest.raises(ValueError, match=r"'q0-none' has no answer.*--version 2\.0"):
        reread(tmp_path, content, version="1.1")
    (tmp_path / "cut.json").write_text('{"data": [')
    with pytest.raises(ValueError, match="is not JSON"):
        list(read(tmp_path / "cut.json", "2.0"))


def encoding(count):
    """``count`` tokens of three characters each, separated by spaces: 'aaa bbb …'."""
    begins = 4 * np.arange(count)
    return Encoding(100 + np.arange(count), begins, begins + 3)


def test_windows_by_hand():
    made = list(windows(encoding(2), encoding(7), Limits(max_length=10, doc_stride=2, max_question_length=2), bos=0, eos=2))
    assert [window.tokens.tolist() for window in made] == [
        [0, 100, 101, 2, 2, 100, 101, 102, 103, 2],
        [0, 100, 101, 2, 2, 102, 103, 104, 105, 2],
        [0, 100, 101, 2, 2, 104, 105, 106, 2],
    ]
    assert [(window.context, window.offset) for window in made] == [(5, 0), (5, 2), (5, 4)]
    assert [target(window, (3, 4)) for window in made] == [(5, 0, 0), (5, 6, 7), (5, 0, 0)]
    assert [target(window, (4, 5)) for window in made] == [(5, 0, 0), (5, 7, 8), (5, 5, 6)]
    assert target(made[0], None) == (5, 0, 0)


@given(
    asked=st.integers(0, 12), told=st.integers(1, 60), length=st.integers(14, 40), stride=st.integers(1, 30),
    question=st.integers(1, 6),
)  # fmt: skip
def test_windows_show_all_of_the_context(asked, told, length, stride, question):
    made = list(windows(encoding(asked), encoding(told), Limits(length, stride, question), bos=0, eos=2))
    assert all(len(window.tokens) <= length for window in made)
    assert {place for window in made for place in window.stretch} == set(range(told))
    for window in made:
        shown = window.tokens[window.context : -1]
        assert shown.tolist() == [100 + place for place in window.stretch]
        assert window.tokens[1 : window.context - 2].tolist() == [100 + i for i in range(min(asked, question))]


def test_limits_leave_room():
    with pytest.raises(ValueError, match="--max-length 70 leaves no room"):
        Limits(max_length=70)


def test_answers_inside_tokens_get_the_whole_tokens():
    text = "aaa bbb ccc"
    assert answer_tokens(encoding(3), 4, 7) == (1, 1)
    assert answer_tokens(encoding(3), 5, 9) == (1, 2)
    assert answer_text(text, encoding(3), *answer_tokens(encoding(3), 5, 9)) == "bbb ccc"
    assert answer_tokens(encoding(3), 3, 4) == (3, 3)  # a space belongs to no token


@settings(deadline=None)
@given(data=st.data())
def test_answers_come_back_from_tokens(data, data_bin):
    """Any span that begins and ends with a token's characters is exactly itself again, whatever the text is made of."""
    text = data.draw(st.text(alphabet="ab Üé“”,.1€ﬁ\u00a0𝔘", min_size=1, max_size=40).filter(str.strip))
    encoded = Vocabulary(data_bin).encode(text)
    places = [i for i in range(len(encoded)) if encoded.ends[i] > encoded.begins[i]]
    first, last = sorted(data.draw(st.lists(st.sampled_from(places), min_size=2, max_size=2)))
    start, end = encoded.begins[first], encoded.ends[last]
    assert answer_text(text, encoded, *answer_tokens(encoded, start, end)) == text[start:end]


def test_every_answer_of_a_file_comes_back(tmp_path, data_bin):
    write_squad(tmp_path, "1.1", paragraphs=5)
    limits = Limits(max_length=48, doc_stride=10, max_question_length=16)
    for question, context, made in encoded(read(tmp_path / "train-v1.1.json", "1.1"), Vocabulary(data_bin), limits):
        span = answer_tokens(context, question.starts[0], question.starts[0] + len(question.answers[0]))
        assert answer_text(question.context, context, *span) == question.answers[0]
        found = [target(window, span) for window in made]
        assert any(last for _, _, last in found)
        for window, (_, first, last) in zip(made, found, strict=True):
            if last:
                ids = context.ids[span[0] : span[1] + 1].tolist()
                assert window.tokens[first : last + 1].tolist() == ids


def predicted(*scores, tokens=3, told=4):
    """Of a context of ``told`` tokens in windows that show 4 of them, ``<s> q </s> </s> c c c c </s>``, every 2."""
    text = " ".join(letter * 3 for letter in "abcdef"[:told])
    made = list(windows(encoding(1), encoding(told), Limits(max_length=9, doc_stride=2, max_question_length=1), bos=0, eos=2))
    assert len(made) == len(scores)
    question = Question("q", "?", text, (), ())
    limits = Limits(max_answer_length=tokens)
    return predict(question, encoding(told), made, [np.array(score, dtype=float) for score in scores], limits)


def test_neither_question_nor_separators_are_answers():
    scores = [[1, 1], [50, 50], [50, 50], [50, 50], [0, 0], [5, 0], [0, 4], [0, 0], [50, 50]]
    prediction = predicted(scores)
    assert prediction.text == "bbb ccc"
    assert prediction.score == 9.0
    assert prediction.null == 2.0
    assert prediction.null_odds == 2.0 - 9.0


def test_windows_share_one_list():
    first = [[3, 3], [0, 0], [0, 0], [0, 0], [9, 0], [0, 1], [0, 0], [0, 0], [0, 0]]
    second = [[1, 1], [0, 0], [0, 0], [0, 0], [0, 0], [0, 0], [7, 7], [0, 0], [0, 0]]
    prediction = predicted(first, second, told=6)
    assert (prediction.text, prediction.score) == ("eee", 14.0)
    assert prediction.null == 2.0  # the least over the windows


def test_limits_of_answers():
    scores = [[0, 0]] * 4 + [[9, 0], [0, 0], [1, 0], [0, 9], [0, 0]]
    assert predicted(scores, tokens=4).text == "aaa bbb ccc ddd"
    assert predicted(scores, tokens=2).text == "ccc ddd"
