"""Records: written whole or not at all, and compared in words."""

import pytest

from fairseq_posenc.base.record import differences, require_same, write_json


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


def test_lists_are_what_tuples_become_in_json():
    require_same({"lrs": [1.0]}, {"lrs": (1.0,)}, "out is of another configuration", "Remove it.")
    with pytest.raises(ValueError, match=r"^out .*lrs was \[1\.0\], now \[2\.0\]"):
        require_same({"lrs": [1.0]}, {"lrs": (2.0,)}, "out is of another configuration", "Remove it.")
