"""Records: written whole or not at all, and compared in words."""

import pytest

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.base.record import differences, read_yaml, require_same, write_json


def test_json_has_no_form_of_infinity(tmp_path):
    for number in (float("inf"), float("nan")):
        with pytest.raises(ValueError, match="JSON"):
            write_json(tmp_path / "x.json", {"a": [number]})
    assert not list(tmp_path.iterdir())


def test_differences_are_named_by_their_place():
    before = {"a": 1, "data": {"train": "x", "dev": "y"}, "gone": 2}
    now = {"a": 1, "data": {"train": "z", "dev": "y"}, "new": [1]}
    assert differences(before, now) == ["data.train was 'x', now 'z'", "gone was 2, now None", "new was None, now [1]"]
    assert differences(before, before) == []


def test_differences_of_flags_are_named_with_the_words_before_them():
    before = ["--arch", "tiny", "--max-update", "1500", "--fp16", "--seed", "1"]
    now = ["--arch", "tiny", "--max-update", "4500", "--seed", "2", "--cpu"]
    assert differences({"flags": before}, {"flags": now}) == [
        "flags was '--max-update 1500 --fp16', now '--max-update 4500'",
        "flags was '--seed 1', now '--seed 2 --cpu'",
    ]
    assert differences({"flags": before}, {"flags": [*before]}) == []
    assert differences(["a"], []) == [" was 'a', now ''"]


def test_lists_are_what_tuples_become_in_json():
    require_same({"lrs": [1.0]}, {"lrs": (1.0,)}, "out is of another configuration", "Remove it.")
    with pytest.raises(ValueError, match=r"^out .*lrs was \[1\.0\], now \[2\.0\]"):
        require_same({"lrs": [1.0]}, {"lrs": (2.0,)}, "out is of another configuration", "Remove it.")


def test_numbers_of_yaml_are_those_that_a_reader_takes_them_for(tmp_path):
    (path := tmp_path / "x.yaml").write_text("[1e-5, 4E3, -1.5, .5, 2., 010, 1:30, 0, -7, .inf, 1.2.3]\r\n")
    assert read_yaml(path) == [1e-5, 4e3, -1.5, 0.5, 2.0, "010", "1:30", 0, -7, float("inf"), "1.2.3"]


@pytest.mark.parametrize("text", ["a: 1\nb: 2\na: 3\n", "x:\n- {a: 1, a: 1}\n"])
def test_a_name_that_occurs_twice_in_a_mapping_of_yaml_is_refused(text, tmp_path):
    (path := tmp_path / "x.yaml").write_text(text)
    with pytest.raises(InputError, match=r"x\.yaml.*line \d: a mapping has a more than once"):
        read_yaml(path)
