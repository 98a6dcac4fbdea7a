"""Grids side by side, on numbers worked out by hand."""

import json

import pytest
from commands import status_of

from fairseq_posenc.cli import main


def results(folder, settings=None, **medians):
    """A grid's results.json with these medians by task."""
    tasks = {
        task: {
            "settings": {"epochs": 3, **(settings or {})},
            "scores": [{"set": task, "metric": "accuracy", "median": median}],
        }
        for task, median in medians.items()
    }
    folder.mkdir()
    (folder / "results.json").write_text(json.dumps({"format": 1, "tasks": tasks}))
    return folder


def test_delta_is_of_the_best_against_the_first(tmp_path, capsys):
    """The rows of Table 3b for MNLI and RTE, and one that was run with two of them."""
    grids = {
        "S=0": results(tmp_path / "a", MNLI=78.8, RTE=62.1, CoLA=50.0),
        "S=1": results(tmp_path / "b", MNLI=80.9, RTE=61.7),
        "S=5": results(tmp_path / "c", MNLI=81.6, RTE=62.8, CoLA=None),
    }
    assert main(["report", *(f"{label}={path}" for label, path in grids.items())]) == 0
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["task", "metric", "S=0", "S=1", "S=5", "Δ", "Δ%"]
    assert rows[2:] == [
        ["MNLI", "accuracy", "78.80", "80.90", "81.60", "+2.80", "+13.21"],
        ["RTE", "accuracy", "62.10", "61.70", "62.80", "+0.70", "+1.85"],
        ["CoLA", "accuracy", "50.00", "–", "–", "–", "–"],
    ]


def test_a_grid_is_called_by_its_folder(tmp_path, capsys):
    paths = [str(results(tmp_path / "a", RTE=60.0)), f"{results(tmp_path / 'b', RTE=61.0)}/"]
    assert main(["report", *paths]) == 0
    assert capsys.readouterr().out.splitlines()[0].split()[5:8:2] == ["a", "b"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("x=a x=c", "'x'"),
        ("a nowhere", "nowhere/results.json does not exist"),
        ("a x=", "results.json does not exist"),
        ("a other", "other/results.json is damaged"),
        ("a edited", "edited/results.json"),
    ],
)
def test_what_cannot_be_compared_is_refused(words, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    results(tmp_path / "a", RTE=60.0)
    results(tmp_path / "c", MRPC=60.0)
    for name, content in (("other", "{}"), ("edited", '{"format": 1, "tasks": {"RTE": 3}}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.json").write_text(content)
    assert status_of("report", *words.split()) == 2
    assert message in capsys.readouterr().err


def test_other_settings_are_named(tmp_path, capsys):
    folders = [
        results(tmp_path / "a", RTE=60.0),
        results(tmp_path / "b", {"epochs": 5}, RTE=60.0),
        results(tmp_path / "c", X=1.0),
    ]
    assert main(["report", *map(str, folders)]) == 0
    notes = capsys.readouterr().out.splitlines()[-3:]
    assert notes == ["b differs from a: epochs was 3, now 5 (RTE).", "", "c differs from a: it has none of these tasks."]
