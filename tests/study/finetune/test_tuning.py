"""What comes before and after training, on tasks that train nothing."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from fairseq_posenc.study.engine.grid import Cell
from fairseq_posenc.study.engine.study import Failures
from fairseq_posenc.study.finetune.hyperparameters import SharedOptions
from fairseq_posenc.study.finetune.tuning import fine_tune

MODEL = {"checkpoint": "a1", "arch": "roberta_tisa", "positions": "tisa"}
SETTINGS = {"max_length": 128, "epochs": 3, "data": {"train": "f00", "dev": "ba2"}}


class Task:
    """Scores 50."""

    files: dict[str, Path] = {}  # noqa: RUF012
    pretrained = SimpleNamespace(vocabulary=SimpleNamespace(folder=Path("data-bin")))

    def __init__(self, name="RTE", lrs=(1.0,), seeds=(1,), **changes):
        self.name = name
        self.done = []
        configuration = {"model": MODEL, **SETTINGS, **changes}
        self.cells = [Cell({"task": name, "lr": lr, "seed": seed}, configuration) for lr in lrs for seed in seeds]

    def check(self):
        self.done.append("checked")

    def prepare(self):
        self.done.append("prepared")

    def command(self, cell):
        return ()

    def run(self, cell, folder, progress):
        self.done.append(cell.key["lr"])
        return {"scores": {self.name: {"accuracy": 50.0}}, "majority": {}, "constant": []}


def tuned(out, *tasks):
    options = SharedOptions(data=Path("d"), checkpoint=Path("c.pt"), out=out)
    fine_tune("glue", tasks, options)


def test_once_every_run_has_finished_no_data_set_is_made(tmp_path):
    task = Task()
    for _ in range(2):
        tuned(tmp_path / "out", task)
    assert task.done == ["checked", "prepared", 1.0, "checked"]


def test_all_tasks_are_prepared_before_any_is_run(tmp_path):
    class Unreadable(Task):
        def prepare(self):
            raise ValueError("line 3")

    first = Task()
    with pytest.raises(ValueError, match="line 3"):
        tuned(tmp_path / "out", first, Unreadable("MRPC"))
    assert first.done == ["checked", "prepared"]


def test_a_run_that_fails_is_left_out_of_the_report(tmp_path, capsys):
    class Failing(Task):
        def run(self, cell, folder, progress):
            if cell.key["seed"] == 2:
                raise RuntimeError("out of memory")
            return super().run(cell, folder, progress)

    with pytest.raises(Failures, match=r"1 of 3 runs failed: RTE lr=1 seed=2 \(RuntimeError: out of memory"):
        tuned(tmp_path / "out", Failing(seeds=(1, 2, 3)))
    assert len(json.loads((tmp_path / "out" / "results.json").read_text())["tasks"]["RTE"]["runs"]) == 2
    assert "| RTE" in capsys.readouterr().out


def test_a_report_has_the_settings_and_every_score(tmp_path):
    tuned(tmp_path, Task(), Task("MRPC"))
    report = json.loads((tmp_path / "results.json").read_text())
    assert {"fairseq_posenc", "fairseq", "torch", "python"} <= report["versions"][0].keys()
    task = report["tasks"]["RTE"]
    assert task["model"] == MODEL
    assert task["settings"] == {**SETTINGS, "lrs": [1.0], "seeds": [1]}
    assert [(run["lr"], run["seed"], run["scores"]) for run in task["runs"]] == [(1.0, 1, {"RTE": {"accuracy": 50.0}})]
