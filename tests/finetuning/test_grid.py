"""Grids: resumable, and never a result of another configuration."""

import json

import pytest

from fairseq_posenc.finetuning.grid import Cell, Diverged, run_grid
from fairseq_posenc.finetuning.prepared import Preparation
from fairseq_posenc.finetuning.records import differences, write_json


def cells(lrs=(1.0, 2.0), **configuration):
    return [Cell("RTE", lr, seed, {"epochs": 3, **configuration}) for lr in lrs for seed in (1, 2)]


class Recorder:
    """Runs a cell by noting it; stops like a killed process at the one given."""

    def __init__(self, stop_at=None, diverges=()):
        self.done = []
        self.stop_at = stop_at
        self.diverges = diverges

    def __call__(self, cell, folder, progress):
        if len(self.done) == self.stop_at:
            raise KeyboardInterrupt
        self.done.append((cell.lr, cell.seed))
        progress("half done")
        (folder / "checkpoint_last.pt").write_text("model")
        if cell.lr in self.diverges:
            raise Diverged("gradients are Nan/Inf")
        return {"scores": {"RTE": {"accuracy": 10 * cell.lr + cell.seed}}}


def test_a_stopped_grid_goes_on(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_grid(cells(), tmp_path, Recorder(stop_at=2), {})
    second = Recorder()
    results = run_grid(cells(), tmp_path, second, {})
    assert second.done == [(2.0, 1), (2.0, 2)]
    assert [result["scores"]["RTE"]["accuracy"] for result in results] == [11.0, 12.0, 21.0, 22.0]
    assert not list(tmp_path.rglob("checkpoint*.pt"))
    more = Recorder()
    run_grid(cells(lrs=(1.0, 2.0, 3.0)), tmp_path, more, {})
    assert more.done == [(3.0, 1), (3.0, 2)]


def test_a_cell_that_lacks_a_needed_file_is_run_again(tmp_path):
    run_grid(cells(), tmp_path, Recorder(), {}, keep_checkpoints=True)
    again = Recorder()
    run_grid(cells(), tmp_path, again, {"RTE": ["RTE.tsv"]})
    assert len(again.done) == 4


def test_another_configuration_is_refused(tmp_path):
    run_grid(cells(), tmp_path, Recorder(), {})
    recorder = Recorder()
    with pytest.raises(ValueError, match="lr-1_seed-1 is of another configuration: epochs was 3, now 4"):
        run_grid(cells(epochs=4), tmp_path, recorder, {})
    assert recorder.done == []


def test_a_begun_cell_of_another_configuration_is_refused(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_grid(cells(), tmp_path, Recorder(stop_at=0), {})
    with pytest.raises(ValueError, match="another configuration"):
        run_grid(cells(epochs=4), tmp_path, Recorder(), {})


def test_a_diverged_cell_is_recorded_and_the_rest_goes_on(tmp_path):
    results = run_grid(cells(), tmp_path, Recorder(diverges=[1.0]), {"RTE": ["RTE.tsv"]})
    assert [result["status"] for result in results] == ["diverged", "diverged", "finished", "finished"]
    assert results[0]["reason"] == "gradients are Nan/Inf"
    assert not list(tmp_path.rglob("checkpoint*.pt"))
    again = Recorder()
    assert run_grid(cells(), tmp_path, again, {"RTE": ["RTE.tsv"]})[0] == results[0]
    assert again.done == [(2.0, 1), (2.0, 2)]  # which lack the file that is needed, and a diverged one needs none


def test_other_errors_stop_the_grid(tmp_path):
    def run(cell, folder, progress):
        raise FileNotFoundError("train.tsv")

    with pytest.raises(FileNotFoundError):
        run_grid(cells(), tmp_path, run, {})
    assert not list(tmp_path.rglob("result.json"))


@pytest.mark.parametrize("name", ["result.json", "configuration.json"])
@pytest.mark.parametrize("content", ["{}", "[]", "", '{"task": "RTE"}', "[" * 5000, '"\\ud800"', None])
def test_damaged_records_are_named(tmp_path, name, content):
    run_grid(cells(), tmp_path, Recorder(), {})
    path = cells()[0].folder(tmp_path) / name
    path.write_text(path.read_text()[:-5] if content is None else content)
    if name == "configuration.json" and content in ("{}", '{"task": "RTE"}'):
        message = "is of another configuration"
    else:
        message = rf"{name} (is not JSON|has another shape than it must).*Remove it to have that part done anew"
    with pytest.raises(ValueError, match=message):
        run_grid(cells(), tmp_path, Recorder(), {})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": {}}, r"\.finished\.scores: .*at least 1 item"),
        ({"scores": {"RTE": {"accuracy": "high"}}}, r"\.finished\.scores\.RTE\.accuracy: .*, got 'high'"),
        ({"scores": {"RTE": {"accuracy": float("nan")}}}, "should be a finite number, got nan"),
        ({"status": "running"}, "'status'"),
        ({"status": "diverged"}, r"\.diverged\.reason: Field required"),
        ({"seed": "1"}, r"\.seed: Input should be a valid integer, got '1'"),
        ({"lr": 3.0}, "another configuration: lr was 3.0, now 1.0"),
        ({"configuration": {"epochs": 4}}, "another configuration: configuration.epochs was 4, now 3"),
    ],
)
def test_edited_results_are_named(tmp_path, change, message):
    run_grid(cells(), tmp_path, Recorder(), {})
    path = cells()[0].folder(tmp_path) / "result.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ValueError, match=message):
        run_grid(cells(), tmp_path, Recorder(), {})


def test_a_grid_may_be_moved(tmp_path):
    run_grid(cells(), tmp_path, Recorder(), {})
    path = cells()[0].folder(tmp_path) / "result.json"
    path.write_text(path.read_text().replace("runs/RTE", "../../elsewhere"))
    assert run_grid(cells(), tmp_path, Recorder(), {})[0]["folder"] == "runs/RTE/lr-1_seed-1"


def test_json_has_no_form_of_infinity(tmp_path):
    for number in (float("inf"), float("nan")):
        with pytest.raises(ValueError, match="JSON"):
            write_json(tmp_path / "x.json", {"a": [number]})
    assert not list(tmp_path.iterdir())


def prepared(folder, source, **identity):
    """Whether the folder was made anew, and its count."""
    made = []
    count = Preparation("glue", "examples").make(folder, {"train": source}, identity, lambda: made.append(1) or {"train": 5})
    return bool(made), count


def test_a_damaged_note_of_what_was_prepared(tmp_path):
    """An edited one is named; one that is none any more is as if it were not there."""
    (tmp_path / "train.tsv").write_text("data")
    arguments = tmp_path / "made", tmp_path / "train.tsv"
    assert [prepared(*arguments, length=3) for _ in range(2)] == [(True, 5), (False, 5)]
    note = tmp_path / "made" / "prepared.json"
    for count in ("5", 0, None, {"train": -1}, {"valid": 3}):
        note.write_text(json.dumps({**json.loads(note.read_text()), "examples": count}))
        with pytest.raises(ValueError, match=r"prepared\.json has another shape than it must: \.examples.*Remove it"):
            prepared(*arguments, length=3)
    note.write_text(note.read_text()[:-9])
    assert prepared(*arguments, length=3) == (True, 5)


def test_differences_are_named_by_their_place():
    before = {"a": 1, "data": {"train": "x", "dev": "y"}, "gone": 2}
    now = {"a": 1, "data": {"train": "z", "dev": "y"}, "new": [1]}
    assert differences(before, now) == ["data.train was 'x', now 'z'", "gone was 2, now None", "new was None, now [1]"]
    assert differences(before, before) == []
