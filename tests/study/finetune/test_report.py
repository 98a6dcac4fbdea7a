"""Tables: the two protocols, on numbers worked out by hand."""

import json
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest
import readme

from fairseq_posenc.base import ownership
from fairseq_posenc.study.finetune import grid_report
from fairseq_posenc.study.finetune.glue_data import TASKS
from fairseq_posenc.study.finetune.grid_report import best_run, compare, median_runs, read_results, side_by_side, summarise, table

CONFIGURATION = {"model": {"arch": "roberta_tisa"}, "epochs": 3}


def write_report(results, out, **options):
    ownership.claim(out, "glue")
    return grid_report.report(results, **options).write(out)


def run(task, lr, seed, **metrics):
    """A result; without metrics, that of a run that diverged."""
    finished = {"status": "finished", "scores": {task: metrics}, "majority": {task: {"accuracy": 55.0}}, "constant": []}
    outcome = finished if metrics else {"status": "diverged", "reason": "NaN"}
    about = {"configuration": CONFIGURATION, "versions": {"torch": "2"}, "folder": f"{task}-{lr}-{seed}", "seconds": 1.0}
    return {"task": task, "lr": lr, "seed": seed, **outcome, **about}


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
    assert task["best"] == {"lr": 1.0, "seed": 3}
    scores = {"best": 90.0, "median": 71.0, "mean": 71.0, "std": 1.0, "min": 70.0, "max": 72.0, "majority": 55.0}
    assert task["scores"] == [{"set": "RTE", "metric": "accuracy", **scores}]


def test_the_scores_of_a_part_of_squad_choose_no_run():
    task = "SQuAD-2.0"
    runs = [
        run(task, 1.0, 1, exact=60.0, f1=61.0, HasAns_exact=20.0, HasAns_f1=22.0, NoAns_exact=100.0),
        run(task, 2.0, 1, exact=61.0, f1=62.0, HasAns_exact=61.0, HasAns_f1=62.0, NoAns_exact=0.0),
    ]
    assert (best_run(runs)["lr"], median_runs(runs)[0]["lr"]) == (2.0, 2.0)
    report = summarise(runs)["tasks"][task]
    assert report["overall"]["best"] == 61.5
    assert len(report["scores"]) == 5


def test_average_counts_each_task_once():
    assert summarise([*RUNS, *PAIR])["average"] == {"best": (90.0 + 70.0) / 2, "median": (71.0 + 70.0) / 2}


# As the tables of the papers print them: BERT-A of Ke et al. 2021, and an even one with both metrics where a task has two.
PAPER = {"MNLI-m": 84.93, "MNLI-mm": 84.91, "CoLA": 55.19}
OTHERS = {"SST-2": 92.0, "MRPC": (90.0, 86.0), "STS-B": (89.0, 88.0), "QQP": (87.0, 91.0), "QNLI": 91.0, "RTE": 69.0, "WNLI": 1.0}


def glue_runs():
    """One run of each task of GLUE, WNLI included."""
    for task in TASKS.values():
        found = {name: {**PAPER, **OTHERS}[name] for name in task.dev}
        scores = {name: dict(zip(task.metrics, np.atleast_1d(value).tolist(), strict=True)) for name, value in found.items()}
        yield {**run(task.name, 1.0, 1, any=0.0), "scores": scores}


def test_the_papers_averages_are_the_documented_lines(tmp_path):
    """Nine columns: MNLI-m and MNLI-mm apart, no WNLI, one metric each; of MRPC, STS-B and QQP those that each paper counts."""
    pytest.importorskip("pandas", reason="needs pip install -e '.[compare]'")
    write_report([*glue_runs()], tmp_path / "glue-tisa")
    lines = re.findall(r"python -c (\".*results.csv.*\")", (readme.ROOT / "examples/glue/README.md").read_text("utf-8"))
    for line, two_metrics in zip(lines, [(86.0, 89.0, 91.0), (90.0, 88.0, 87.0)], strict=True):
        done = subprocess.run(
            [sys.executable, "-c", *shlex.split(line)], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        size, mean = re.findall(r"^(?:size|mean) +([\d.]+)$", done.stdout, re.MULTILINE)
        expected = (sum(PAPER.values()) + 92.0 + 91.0 + 69.0 + sum(two_metrics)) / 9
        assert (float(size), float(mean)) == (9, pytest.approx(expected))


def test_error_reduction():
    assert compare(71.0, 60.0) == (11.0, pytest.approx(27.5))  # 11 of the 40 points of error are gone
    assert compare(50.0, 60.0) == (-10.0, -25.0)
    assert compare(100.0, 100.0) == (0.0, None)


def cells(text):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


def test_reports_side_by_side_have_the_tasks_of_all():
    reports = {"a": summarise([run("RTE", 1.0, 1, accuracy=60.0)]), "b": summarise([run("MRPC", 1.0, 1, accuracy=70.0)])}
    lines = cells(side_by_side(reports).markdown())
    assert [line[:4] for line in lines[2:]] == [["RTE", "accuracy", "60.00", "–"], ["MRPC", "accuracy", "–", "70.00"]]


def test_table(tmp_path):
    write_report([run("RTE", 1.0, 1, accuracy=60.0)], tmp_path)
    assert json.loads((tmp_path / "results.json").read_text())["tasks"]["RTE"]["scores"][0]["std"] is None
    text = table(summarise([*RUNS, *PAIR])).markdown()
    lines = cells(text)
    assert lines[2] == [
        "RTE",
        "accuracy",
        "55.00",
        "90.00",
        "2",
        "71.00",
        "71.00",
        "1.00",
        "70.00",
        "72.00",
        "6",
    ]
    assert len({len(line) for line in text.splitlines()}) == 1
    assert (tmp_path / "results.md").read_text().startswith("| task")


# lr 3: of four seeds one diverged; of lr 4 three; of lr 5 all.
UNSTABLE = [
    *(run("RTE", 3.0, seed, accuracy=value) for seed, value in enumerate((71.0, 73.0, 72.0), 1)),
    run("RTE", 3.0, 4),
    run("RTE", 4.0, 1, accuracy=99.0),
    *(run("RTE", 4.0, seed) for seed in (2, 3, 4)),
    *(run("RTE", 5.0, seed) for seed in (1, 2, 3, 4)),
]


def test_a_diverged_run_counts_as_the_worst(tmp_path):
    """The median of -∞, 71, 72, 73 is 71.5; the other figures are of the three that finished."""
    text = write_report(UNSTABLE, tmp_path)
    row = cells(text)[2]
    assert row == ["RTE", "accuracy", "55.00", "99.00", "3", "71.50", "72.00", "1.00", "71.00", "73.00", "12 (8 diverged)"]
    assert (tmp_path / "results.md").read_text() == f"{text}\n"
    report = json.loads((tmp_path / "results.json").read_text())
    assert [run["status"] for run in report["tasks"]["RTE"]["runs"]].count("diverged") == 8
    assert best_run(UNSTABLE)["lr"] == 4.0


def test_runs_of_one_class_are_marked(tmp_path):
    runs = [*RUNS[3:5], {**RUNS[5], "constant": ["RTE"]}]
    text = write_report(runs, tmp_path)
    assert cells(text)[2][-1] == "3 (1 of one class)"
    assert json.loads((tmp_path / "results.json").read_text())["tasks"]["RTE"]["runs"][2]["constant"] == ["RTE"]


def test_a_median_that_falls_on_a_diverged_run(tmp_path):
    """Of two learning rates without a median that with a run that finished, though it is named last."""
    runs = [run("RTE", 5.0, 1), *[run for run in UNSTABLE if run["lr"] == 4.0]]
    text = write_report([*runs, *PAIR], tmp_path)
    assert cells(text)[2] == [
        "RTE",
        "accuracy",
        "55.00",
        "99.00",
        "4",
        "diverged",
        "99.00",
        "–",
        "99.00",
        "99.00",
        "5 (4 diverged)",
    ]
    assert cells(text)[-1][:6] == ["average", "", "", "84.50", "", "–"]
    compared = cells(side_by_side({"a": read_results(tmp_path / "results.json"), "b": summarise([*RUNS, *PAIR])}).markdown())
    assert [line[-2:] for line in compared[2:]] == [["–", "–"], ["+0.00", "+0.00"], ["+0.00", "+0.00"]]


def test_every_run_diverged(tmp_path):
    runs = [run("RTE", 5.0, seed) for seed in (1, 2)]
    text = write_report(runs, tmp_path)
    assert cells(text)[2] == ["RTE", "", "–", "diverged", *["–"] * 6, "2 (2 diverged)"]
    assert best_run(runs) is None
    report = read_results(tmp_path / "results.json")
    assert report["average"] == {"best": None, "median": None}
    assert cells(side_by_side({"a": report, "b": summarise(RUNS)}).markdown())[2][-2:] == ["–", "–"]


def test_a_report_says_what_it_is_of():
    report = summarise([*RUNS, *PAIR])
    task = report["tasks"]["RTE"]
    assert task["model"] == {"arch": "roberta_tisa"}
    assert task["settings"] == {"epochs": 3, "lrs": [1.0, 2.0], "seeds": [1, 2, 3]}
    scores = [(run["lr"], run["seed"], run["scores"]["RTE"]["accuracy"]) for run in task["runs"]]
    assert scores == [(1.0, 1, 50.0), (1.0, 2, 60.0), (1.0, 3, 90.0), (2.0, 1, 72.0), (2.0, 2, 70.0), (2.0, 3, 71.0)]
    assert report["versions"] == [{"torch": "2"}]
