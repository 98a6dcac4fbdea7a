"""What comes before and after training, on tasks that train nothing."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from fairseq_posenc.finetuning.hyperparameters import SharedOptions
from fairseq_posenc.finetuning.tuning import fine_tune
from fairseq_posenc.runs.grid import Cell, Failures

MODEL = {"checkpoint": "a1", "arch": "roberta_tisa", "positions": "tisa"}
SETTINGS = {"max_length": 128, "epochs": 3, "data": {"train": "f00", "dev": "ba2"}}


class Task:
    """Scores 50."""

    pretrained = SimpleNamespace(vocabulary=SimpleNamespace(folder=Path("data-bin")))

    def __init__(self, name="RTE", lrs=(1.0,), seeds=(1,), **changes):
        self.name = name
        self.done = []
        configuration = {"model": MODEL, **SETTINGS, **changes}
        self.cells = [Cell({"task": name, "lr": lr, "seed": seed}, configuration) for lr in lrs for seed in seeds]

    def prepare(self):
        self.done.append("prepared")

    def run(self, cell, folder, progress):
        self.done.append(cell.key["lr"])
        return {"scores": {self.name: {"accuracy": 50.0}}, "majority": {}, "constant": []}

    def finish(self, results):
        self.done.append(len(results))


def tuned(out, *tasks, baseline=None):
    options = SharedOptions(data=Path("d"), checkpoint=Path("c.pt"), out=out, baseline=baseline, command=())
    fine_tune("glue", tasks, options, [])


@pytest.fixture
def baseline(tmp_path):
    tuned(tmp_path / "before", Task(), Task("MRPC"))
    return tmp_path / "before" / "results.json"


def test_another_model_is_compared(baseline, tmp_path, capsys):
    task = Task(model={"checkpoint": None, "arch": "roberta_t5", "positions": "t5"})
    tuned(tmp_path / "out", task, baseline=baseline)
    assert task.done == ["prepared", 1.0, 1]
    printed = capsys.readouterr().out
    assert "+0.00" in printed
    assert "Δ is against" not in printed
    tuned(tmp_path / "out", task)
    assert task.done == ["prepared", 1.0, 1, 1]  # once every run has finished, no data set is made


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_length": 64}, "max_length was 128, now 64 (RTE)"),
        ({"epochs": 4, "lrs": (1.0, 2.0)}, "epochs was 3, now 4 (RTE); lrs was [1.0], now [1.0, 2.0] (RTE)"),
        ({"data": {"train": "f01", "dev": "ba2"}}, "data.train was 'f00', now 'f01' (RTE)"),
        ({"name": "QNLI"}, "it has none of these tasks"),
    ],
)
def test_other_settings_are_named_below_the_table(changes, message, baseline, tmp_path, capsys):
    tuned(tmp_path / "out", Task(**changes), baseline=baseline)
    note = (tmp_path / "out" / "results.md").read_text().splitlines()[-1]
    assert note == f"Δ is against {baseline}, which differs: {message}."
    assert note in capsys.readouterr().out


def test_a_difference_of_several_tasks_is_named_once(baseline, tmp_path, capsys):
    tuned(tmp_path / "out", *(Task(name, max_length=64) for name in ("RTE", "MRPC", "QNLI")), baseline=baseline)
    assert "differs: max_length was 128, now 64 (RTE, MRPC)." in capsys.readouterr().out


def test_a_damaged_baseline_is_refused_first(baseline, tmp_path):
    baseline.write_text(baseline.read_text()[:-20])
    task = Task()
    with pytest.raises(ValueError, match=r"results\.json is damaged"):
        tuned(tmp_path / "out", task, baseline=baseline)
    assert task.done == []


def test_all_tasks_are_prepared_before_any_is_run(tmp_path):
    class Unreadable(Task):
        def prepare(self):
            raise ValueError("line 3")

    first = Task()
    with pytest.raises(ValueError, match="line 3"):
        tuned(tmp_path / "out", first, Unreadable("MRPC"))
    assert first.done == ["prepared"]


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


def test_a_report_has_the_settings_and_every_score(baseline):
    report = json.loads(baseline.read_text())
    assert {"fairseq_posenc", "fairseq", "torch", "python"} <= report["versions"][0].keys()
    task = report["tasks"]["RTE"]
    assert task["model"] == MODEL
    assert task["settings"] == {**SETTINGS, "lrs": [1.0], "seeds": [1]}
    assert [(run["lr"], run["seed"], run["scores"]) for run in task["runs"]] == [(1.0, 1, {"RTE": {"accuracy": 50.0}})]
