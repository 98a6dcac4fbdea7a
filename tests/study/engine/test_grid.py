"""Grids: resumable, and never a result of another configuration."""

import json
import sys
import threading

import pytest

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.base.ownership import claim
from fairseq_posenc.study.engine import grid
from fairseq_posenc.study.engine import study as studies
from fairseq_posenc.study.engine.grid import Cell, Diverged, finished
from fairseq_posenc.study.engine.statistics import by, spread
from fairseq_posenc.study.engine.study import Failures, Study


def cells(lrs=(1.0, 2.0), needs=(), **configuration):
    keys = [{"task": "RTE", "lr": lr, "seed": seed} for lr in lrs for seed in (1, 2)]
    return [Cell(key, {"epochs": 3, **configuration}, needs=needs, temporary=["checkpoint_last.pt"]) for key in keys]


def run_grid(cells, out, run, **options):
    with Study.open(out, "glue") as study:
        return study.run(cells, run, **options)


class Recorder:
    """Runs a cell by noting it; raises an error at the one given."""

    def __init__(self, stop_at=None, error=KeyboardInterrupt, diverges=()):
        self.done, self.stop_at, self.error, self.diverges = [], stop_at, error, diverges

    def __call__(self, cell, folder, progress):
        if len(self.done) == self.stop_at:
            self.stop_at = None
            raise self.error
        lr, seed = cell.key["lr"], cell.key["seed"]
        self.done.append((lr, seed))
        progress("half done", 0.5)
        (folder / "checkpoint_last.pt").write_text("model")
        if lr in self.diverges:
            raise Diverged("gradients are Nan/Inf")
        return {"score": 10 * lr + seed}


def test_a_stopped_grid_is_resumed(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_grid(cells(), tmp_path, Recorder(stop_at=2))
    second = Recorder()
    results = run_grid(cells(), tmp_path, second)
    assert second.done == [(2.0, 1), (2.0, 2)]
    assert [result["score"] for result in results] == [11.0, 12.0, 21.0, 22.0]
    assert not list(tmp_path.rglob("checkpoint*.pt"))
    more = Recorder()
    run_grid(cells(lrs=(1.0, 2.0, 3.0)), tmp_path, more, keep_temporary=True)
    assert more.done == [(3.0, 1), (3.0, 2)]
    assert len(list(tmp_path.rglob("checkpoint_last.pt"))) == 2


def test_a_finished_cell_that_lacks_a_needed_file_keeps_its_result(tmp_path):
    run_grid(cells(), tmp_path, Recorder())
    folder, again = cells()[0].folder(tmp_path), Recorder()
    before = (folder / "result.json").read_bytes()
    with pytest.raises(InputError, match=rf"{folder} .*RTE\.tsv"):
        run_grid(cells(lrs=(0.5, 1.0), needs=["RTE.tsv"]), tmp_path, again)
    assert again.done == []
    assert (folder / "result.json").read_bytes() == before


def test_a_file_of_the_users_in_a_cells_folder_is_left(tmp_path):
    run_grid(cells(), tmp_path, Recorder())
    mine = [cells()[0].folder(tmp_path) / name for name in ("checkpoint_mine.pt", "checkpoint_best.pt")]
    for path in mine:
        path.write_text("mine")
    (mine[0].parent / "result.json").unlink()
    run_grid(cells(), tmp_path, Recorder())
    assert [path.read_text() for path in mine] == ["mine", "mine"]


@pytest.mark.parametrize("stop_at", [None, 0])
def test_another_configuration_is_refused(tmp_path, stop_at):
    """Of a cell that has finished, or has only begun."""
    try:
        run_grid(cells(), tmp_path, Recorder(stop_at=stop_at))
    except KeyboardInterrupt:
        assert stop_at == 0
    recorder = Recorder()
    with pytest.raises(InputError, match=r"lr-1_seed-1 .*epochs was 3, now 4"):
        run_grid(cells(epochs=4), tmp_path, recorder)
    assert recorder.done == []


def test_a_diverged_cell_is_recorded_and_the_rest_goes_on(tmp_path):
    results = run_grid(cells(), tmp_path, Recorder(diverges=[1.0]))
    assert [result["status"] for result in results] == ["diverged", "diverged", "finished", "finished"]
    assert results[0]["reason"] == "gradients are Nan/Inf"
    assert not list(tmp_path.rglob("checkpoint*.pt"))
    again = Recorder()
    assert run_grid(cells(lrs=[1.0], needs=["RTE.tsv"]), tmp_path, again) == results[:2]
    assert again.done == []  # a diverged cell needs no file


def test_a_failed_cell_is_recorded_and_run_again(tmp_path):
    recorder = Recorder(stop_at=1, error=RuntimeError("out of memory"))
    message = r"1 of 4 runs failed: RTE lr=1 seed=2 \(RuntimeError: out of memory"
    with pytest.raises(Failures, match=message), Study.open(tmp_path, "glue") as study:
        results = study.run(cells(), recorder)
    assert [result["score"] for result in results] == [11.0, 21.0, 22.0]
    failed = cells()[1].folder(tmp_path)
    assert json.loads((failed / "result.json").read_text())["status"] == "failed"
    assert "Traceback" in (failed / "train.log").read_text()
    again = Recorder()
    run_grid(cells(), tmp_path, again)
    assert again.done == [(1.0, 2)]


@pytest.mark.parametrize("error", [InputError("--flag"), FileNotFoundError("train.tsv")])
def test_errors_that_a_user_can_mend_stop_the_grid(tmp_path, error):
    recorder = Recorder(stop_at=1, error=error)
    with pytest.raises(type(error)):
        run_grid(cells(), tmp_path, recorder)
    assert len(recorder.done) == 1


def test_an_error_stops_a_grid_that_runs_in_threads(tmp_path, monkeypatch):
    """Also if a cell before it is still running."""
    begun, stopped, shutdown = [], threading.Event(), studies.ThreadPoolExecutor.shutdown

    def stop(pool, wait=True, cancel_futures=False):
        shutdown(pool, wait=False, cancel_futures=cancel_futures)
        stopped.set()
        shutdown(pool)

    def run(cell, folder, progress):
        begun.append(cell)
        if cell.key["seed"] == 2:
            raise InputError("--flag")
        stopped.wait(5)
        return {}

    monkeypatch.setattr(studies.ThreadPoolExecutor, "shutdown", stop)
    with pytest.raises(InputError, match="--flag"):
        run_grid(cells(lrs=(1.0, 2.0, 3.0)), tmp_path, run, jobs=2)
    assert len(begun) <= 3


def test_a_result_without_a_form_in_json_is_a_failure(tmp_path):
    with pytest.raises(Failures, match=r"1 of 1 runs failed: .*not JSON"):
        run_grid(cells(lrs=[1.0])[:1], tmp_path, lambda *_: {"score": float("nan")})


@pytest.mark.parametrize("content", ["{}", "[]", "", '{"format": 1, "task"', "[" * 5000, '{"format": 2}'])
def test_damaged_records_are_named(tmp_path, content):
    run_grid(cells(), tmp_path, Recorder())
    (cells()[0].folder(tmp_path) / "result.json").write_text(content)
    with pytest.raises(InputError, match=r"result\.json"):
        run_grid(cells(), tmp_path, Recorder())


def test_a_key_names_its_folder_and_its_run(tmp_path):
    """Words by themselves, numbers with their names."""
    for key, folder, name in [
        ({"task": "RTE", "lr": 1e-5, "seed": 1}, "runs/RTE/lr-1e-05_seed-1", "RTE lr=1e-05 seed=1"),
        ({"arch": "roberta_tisa", "seed": 2}, "runs/roberta_tisa/seed-2", "roberta_tisa seed=2"),
        ({"task": "en-de", "positions": "absolute+t5"}, "runs/en-de/absolute+t5", "en-de absolute+t5"),
        ({"seed": 1234567}, "runs/seed-1234567", "seed=1234567"),
        ({"paradigm": "../a/b%"}, "runs/%2E.%2Fa%2Fb%25", "../a/b%"),
    ]:
        cell = Cell(key, {})
        assert (cell.folder(tmp_path), cell.name) == (tmp_path / folder, name)


PROGRAM = "import sys; print('loss', sys.argv[1]); sys.exit(sys.argv[2] if len(sys.argv) > 2 else 0)"
ARGUMENTS = {1: ["3.5"], 2: ["3.5", "gradients are Nan/Inf"], 3: ["3.5", "no such file"], 4: ["4.5"]}


@pytest.mark.parametrize("jobs", [1, 3])
def test_commands(tmp_path, jobs):
    """A comparison of schemes over seeds, as commands: one diverges and one fails."""
    commands = [
        Cell({"arch": "roberta_t5", "seed": seed}, {"updates": 10}, [sys.executable, "-c", PROGRAM, *arguments])
        for seed, arguments in ARGUMENTS.items()
    ]
    calls = []

    def run(cell, folder, progress):
        calls.append((cell.key["seed"], threading.current_thread() is threading.main_thread()))
        return {"loss": float((folder / "train.log").read_text().split()[-1])}

    message = r"1 of 4 runs failed: roberta_t5 seed=3 \(.*status 1: no such file"
    with pytest.raises(Failures, match=message), Study.open(tmp_path, "glue") as study:
        results = study.run(commands, run, jobs=jobs)
    assert sorted(calls) == [(1, jobs == 1), (4, jobs == 1)]
    assert [(result["seed"], result["status"], result.get("loss")) for result in results] == [
        (1, "finished", 3.5),
        (2, "diverged", None),
        (4, "finished", 4.5),
    ]
    assert finished(commands[0], tmp_path) == results[0]
    assert finished(commands[2], tmp_path) is None


@pytest.mark.parametrize(
    ("jobs", "devices", "given", "expected"),
    [
        (1, 8, None, [None]),
        (2, 0, None, [None] * 2),
        (2, 4, None, ["0,1", "2,3"]),
        (3, 2, None, ["0", "1", "0"]),
        (2, 2, "2,GPU-a", ["2", "GPU-a"]),
    ],
)
def test_jobs_share_the_devices_that_the_user_names(jobs, devices, given, expected, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if given:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    assert [share and share["CUDA_VISIBLE_DEVICES"] for share in grid.shares(devices, jobs)] == expected


def test_the_progress_of_a_command_is_that_of_its_log(tmp_path):
    """While it runs, without lines of other kinds; an earlier attempt says where it begins."""
    lines = [json.dumps({"loss": "8.5", "num_updates": str(number)}) for number in (10, 20, 40)]
    program = f"import time\nfor line in {lines}: print('| train_inner |', line); print('a line'); time.sleep(0.5)"
    cell = Cell({"seed": 1}, {}, [sys.executable, "-c", program], until=("num_updates", 40))
    seen = []

    class Shown(grid.Bar):
        def progress_of(self, cell):
            return lambda text, share=None: seen.append((text, share))

    claim(tmp_path, "glue")
    cell.folder(tmp_path).mkdir(parents=True)
    (cell.folder(tmp_path) / grid.LOG).write_text(lines[0] + "\n")
    run_grid([cell], tmp_path, lambda *_: {}, bar=Shown(1))
    assert seen == [("started", 0.25), ("loss 8.5", 0.25), ("loss 8.5", 0.5), ("loss 8.5", 0.99), ("finished", 1)]


def test_a_run_that_fails_is_named_at_once(tmp_path, capsys):
    """While others still run; the bar counts it apart from those that are done."""
    said = {}

    def run(cell, folder, progress):
        said[cell.name] = capsys.readouterr().err
        if cell.key["lr"] == 1.0:
            raise Diverged("gradients are Nan/Inf") if cell.key["seed"] == 1 else RuntimeError("a broken scheme")
        return {}

    with pytest.raises(Failures):
        run_grid(cells(), tmp_path, run)
    assert "RTE lr=1 seed=1 has diverged: gradients are Nan/Inf\n" in said["RTE lr=1 seed=2"]
    assert "RTE lr=1 seed=2 has failed: RuntimeError: a broken scheme; see " in said["RTE lr=2 seed=1"]
    assert "runs (1 diverged, 1 failed): " in said["RTE lr=2 seed=1"]


def test_the_remaining_time_is_right_after_a_restart(monkeypatch):
    """Runs, and parts of runs, that were done before are no work of this process."""
    bar, (resumed, new, *_) = grid.Bar(4), cells()
    bar.skip(1)
    first, second = bar.progress_of(resumed), bar.progress_of(new)
    first("started", 0.5)
    assert (bar.n, bar.initial) == (1.5, 1.5)
    first("loss 8.5", 0.75)
    second("started", 0)
    second("loss 9.1", 0.25)
    meter = bar.format_meter(**{**bar.format_dict, "elapsed": 60, "ncols": None})
    assert "50%" in meter
    assert "2.0/4 [01:00<04:00" in meter  # half a run in a minute
    second("started", 0)  # a checkpoint was older than the log, or lost
    assert (bar.n, bar.initial) == (1.75, 1.5)
    bar.close()


def test_statistics():
    assert spread([1.0, 2.0, 3.0]) == {"median": 2.0, "mean": 2.0, "std": 1.0, "min": 1.0, "max": 3.0}
    assert spread([1.0, 3.0], diverged=1)["median"] == 1.0
    runs = [{"arch": "a", "seed": 1}, {"arch": "b", "seed": 1}, {"arch": "a", "seed": 2}]
    assert by("arch", runs) == {"a": [runs[0], runs[2]], "b": [runs[1]]}


def test_cells_of_one_folder_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"lr-1_seed-1"):
        run_grid([*cells(), *cells()], tmp_path, Recorder())
