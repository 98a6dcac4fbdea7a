"""Tables: the two protocols and the baseline, on numbers worked out by hand."""

import math

import pytest

from fairseq_posenc.finetuning.report import best_run, compare, median_runs, read_baseline, summarise, table, write_report


def run(task, lr, seed, **metrics):
    return {"task": task, "lr": lr, "seed": seed, "scores": {task: metrics}}


# lr 1: 50, 60, 90 (median 60); lr 2: 70, 71, 72 (median 71). The best run is of lr 1, the best median of lr 2.
RUNS = [
    *(run("RTE", 1.0, seed, accuracy=value) for seed, value in enumerate((50.0, 60.0, 90.0), 1)),
    *(run("RTE", 2.0, seed, accuracy=value) for seed, value in enumerate((72.0, 70.0, 71.0), 1)),
]
PAIR = [run("MRPC", 1.0, 1, f1=80.0, accuracy=60.0)]


def test_protocols_differ():
    assert best_run(RUNS)["scores"]["RTE"]["accuracy"] == 90.0
    assert {r["lr"] for r in median_runs(RUNS)} == {2.0}
    task = summarise(RUNS)["tasks"]["RTE"]
    assert task["best"]["lr"] == 1.0
    assert task["best"]["seed"] == 3
    spread = task["median"]["scores"]["RTE"]["accuracy"]
    assert spread == {"median": 71.0, "mean": 71.0, "std": 1.0, "min": 70.0, "max": 72.0}


def test_average_counts_each_task_once():
    assert summarise([*RUNS, *PAIR])["average"] == {"best": (90.0 + 70.0) / 2, "median": (71.0 + 70.0) / 2}


def test_error_reduction():
    assert compare(71.0, 60.0) == (11.0, pytest.approx(27.5))  # 11 of the 40 points of error are gone
    assert compare(50.0, 60.0) == (-10.0, -25.0)
    assert math.isnan(compare(100.0, 100.0)[1])


def test_table_beside_a_baseline(tmp_path):
    write_report([run("RTE", 1.0, 1, accuracy=60.0)], tmp_path)
    text = table(summarise([*RUNS, *PAIR]), read_baseline(tmp_path / "results.json"))
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    assert lines[0][-2:] == ["Δ", "Δ%"]
    assert lines[2] == ["RTE", "accuracy", "90.00", "2", "71.00", "71.00", "1.00", "70.00", "72.00", "3", "+11.00", "+27.50"]
    assert lines[3][-2:] == ["–", "–"]  # the baseline has no MRPC
    assert len({len(line) for line in text.splitlines()}) == 1
    assert (tmp_path / "results.md").read_text().startswith("| task")


def test_what_is_no_baseline(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"results\.json"):
        read_baseline(tmp_path / "none.json")
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ValueError, match="--baseline"):
        read_baseline(tmp_path / "other.json")
