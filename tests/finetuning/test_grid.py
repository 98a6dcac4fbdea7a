"""Grids: resumable, and never a result of another configuration."""

import json

import pytest

from fairseq_posenc.finetuning.grid import Cell, run_grid


def cells(lrs=(1.0, 2.0), **configuration):
    return [Cell("RTE", lr, seed, {"epochs": 3, **configuration}) for lr in lrs for seed in (1, 2)]


class Recorder:
    """Runs a cell by noting it; stops like a killed process at the one given."""

    def __init__(self, stop_at=None):
        self.done = []
        self.stop_at = stop_at

    def __call__(self, cell, folder, progress):
        if len(self.done) == self.stop_at:
            raise KeyboardInterrupt
        self.done.append((cell.lr, cell.seed))
        progress("half done")
        (folder / "checkpoint_last.pt").write_text("model")
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


def test_a_damaged_result_is_named(tmp_path):
    run_grid(cells(), tmp_path, Recorder(), {})
    path = cells()[0].folder(tmp_path) / "result.json"
    path.write_text(json.dumps({})[:-1])
    with pytest.raises(ValueError, match=r"result\.json is not JSON.*Remove it"):
        run_grid(cells(), tmp_path, Recorder(), {})
