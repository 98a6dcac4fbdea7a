"""Trainings in sequence, at once, without their launcher, and asked to leave off."""

import fcntl
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from commands import environment
from fairseq import checkpoint_utils, options
from fairseq.dataclass.configs import FairseqConfig
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import progress_bar
from omegaconf import OmegaConf

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.base.files import sole_writer
from fairseq_posenc.plugin.checkpoint.loading import load as load_checkpoint
from fairseq_posenc.plugin.processes import graceful_stop
from fairseq_posenc.plugin.run import ProgramRun, program_run, session

SCRIPTS = Path(sys.executable).parent
FLAGS = """
    --cpu --num-workers 0 --no-progress-bar --task masked_lm --criterion masked_lm --tokens-per-sample 16 --batch-size 8
    --encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 --encoder-attention-heads 2 --no-epoch-checkpoints
    --optimizer adam
""".split()  # noqa: SIM905


@pytest.fixture
def train(data_bin):
    """``train(save_dir, *flags)`` runs fairseq's own training in this process."""
    from fairseq_cli import train as command

    def train(save_dir, *flags, arch="roberta_tisa", lr=1e-3, updates=10):
        arguments = [data_bin, *FLAGS, "--arch", arch, "--lr", lr, "--max-update", updates, "--save-dir", save_dir, *flags]
        arguments = options.parse_args_and_arch(options.get_training_parser(), [*map(str, arguments)])
        distributed_utils.call_main(convert_namespace_to_omegaconf(arguments), command.main)
        return checkpoint(save_dir)

    return train


def checkpoint(save_dir):
    return load_checkpoint(str(save_dir / "checkpoint_last.pt"))


def updates(state):
    return state["optimizer_history"][-1]["num_updates"]


def same_weights(first, second):
    return first["model"].keys() == second["model"].keys() and all(
        torch.equal(first["model"][name], second["model"][name]) for name in first["model"]
    )


def files(folder):
    """Relative paths, but for the time and the host in the names of TensorBoard's."""
    return {str(path.relative_to(folder)).partition("tfevents")[0] for path in folder.rglob("*") if path.is_file()}


@pytest.mark.thorough
def test_sampled_positions_are_drawn_alike_after_a_resume(train, tmp_path):
    """With two batches per update and dropout, which draws from PyTorch's generator."""
    flags = ["--position-sampling", "random:40", "--update-freq", 2, "--dropout", 0.1]
    whole = train(tmp_path / "whole", *flags, arch="roberta_shaw", updates=6)
    for end in (3, 6):
        resumed = train(tmp_path / "resumed", *flags, arch="roberta_shaw", updates=end)
    assert same_weights(whole, resumed)
    plain = train(tmp_path / "plain", *flags[2:], arch="roberta_shaw", updates=6)
    assert not same_weights(whole, plain)
    assert resumed["cfg"]["model"]["position_sampling"] == "random:40"


@pytest.mark.thorough
def test_a_second_training_of_a_process_is_as_in_a_fresh_one(train, tmp_path, caplog):
    """Two, in either order: what one comes second to must not show. The one that learns nothing has no better score."""
    caplog.set_level("INFO")
    ways = {"learns": ("roberta_tisa", 1e-2), "learns nothing": ("roberta_rope", 1e-9)}
    ends = {}
    for order in (list(ways), list(reversed(ways))):
        for name in order:
            arch, lr = ways[name]
            folder = tmp_path / f"{name}, {'first' if name == order[0] else 'second'}"
            logs = ("--tensorboard-logdir", folder / "tensorboard", "--log-file", tmp_path / f"{folder.name}.log")
            ends[folder.name] = train(folder, *logs, "--log-interval", 5, "--log-format", "json", arch=arch, lr=lr), files(folder)
    for name in ways:
        (first, there), (second, here) = ends[f"{name}, first"], ends[f"{name}, second"]
        assert {"checkpoint_best.pt", "checkpoint_last.pt"} < there
        assert any(file.startswith("tensorboard/valid/") for file in there)
        assert there == here
        assert first["extra_state"]["val_loss"] == second["extra_state"]["val_loss"]
        assert first["extra_state"]["best"] == second["extra_state"]["best"] == first["extra_state"]["val_loss"]
        assert same_weights(first, second)
        logged = [(tmp_path / f"{name}, {place}.log").read_text().count('num_updates": "10"') for place in ("first", "second")]
        assert logged[0] == logged[1] > 0


def test_runs_of_wandb_and_aim_end_with_the_training(train, tmp_path, monkeypatch):
    ended = []
    monkeypatch.setattr(progress_bar, "wandb", SimpleNamespace(run=None, finish=lambda: ended.append("wandb")))
    forget = SimpleNamespace(cache_clear=lambda: ended.append("aim"))
    monkeypatch.setattr(progress_bar, "get_aim_run", forget)
    train(tmp_path, updates=1)
    assert ended == ["wandb", "aim"]


@pytest.mark.thorough
def test_a_finished_training_started_again_stays_as_it_is(train, tmp_path):
    whole = train(tmp_path, updates=3)
    again = train(tmp_path, updates=3)
    assert updates(again) == 3
    assert same_weights(whole, again)
    assert updates(train(tmp_path, updates=5)) == 5


HOLD = """
import fcntl, sys, time
from pathlib import Path
from fairseq_posenc.base.files import sole_writer
with sole_writer(Path(sys.argv[1]), sys.argv[2], lock=fcntl.lockf):
    print("held", flush=True)
    time.sleep(600)
"""


@contextmanager
def in_use(save_dir):
    """Another process trains there, as far as its lock can tell."""
    with subprocess.Popen([sys.executable, "-c", HOLD, save_dir, session.LOCK], stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        try:
            yield other
        finally:
            other.kill()


def test_a_second_training_in_one_folder_is_refused(train, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(session, "LOCK_WAIT_SECONDS", 0)
    with in_use(tmp_path) as other, pytest.raises(InputError, match=f"process {other.pid} on .*--save-dir {tmp_path}"):
        train(tmp_path)
    assert not list(tmp_path.glob("*.pt"))


def test_a_training_waits_for_one_that_is_about_to_end(train, tmp_path):
    """A kill of the launcher is noticed by its processes a moment later; a restart may come first."""
    with in_use(tmp_path) as other:
        subprocess.Popen(["sh", "-c", f"sleep 1; kill -9 {other.pid}"])
        assert updates(train(tmp_path, updates=1)) == 1


def test_the_lock_ends_with_each_training_and_is_not_taken_without_saving(train, tmp_path):
    train(tmp_path, updates=1)
    with in_use(tmp_path):
        from fairseq_cli import train as command

        with pytest.raises(FileNotFoundError):
            train(tmp_path / "elsewhere", "--no-save", updates=1)
        assert "validate_and_save" in vars(command)


def test_children_of_a_training_do_not_hold_its_lock(tmp_path):
    """As a worker that loads data would, a moment longer than the training that was killed."""
    with sole_writer(tmp_path, session.LOCK, lock=fcntl.lockf):
        child = os.fork()
        if child == 0:
            time.sleep(600)
            os._exit(0)
    try:
        with in_use(tmp_path):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_file_system_without_locks_is_said_and_a_folder_that_cannot_be_written_is_refused(tmp_path, monkeypatch, caplog):
    from contextlib import ExitStack

    def none(*_):
        raise OSError(session.NO_LOCK_ERRNOS[0], "Function not implemented")

    monkeypatch.setattr(session.fcntl, "lockf", none)
    with ExitStack() as held:
        assert session.take_lock(held, tmp_path) is None
    assert "has no locks" in caplog.text
    (tmp_path / "file").touch()
    with ExitStack() as held:
        assert session.take_lock(held, tmp_path / "file" / "folder").startswith(
            f"--save-dir {tmp_path / 'file' / 'folder'} cannot be"
        )


@pytest.mark.thorough
def test_a_training_asked_to_leave_off_goes_on_as_if_it_had_not(train, tmp_path, monkeypatch):
    """Asked in the middle of an epoch; nothing but the time differs from a training that was not."""
    from fairseq.trainer import Trainer

    whole = train(tmp_path / "whole")
    step = Trainer.train_step

    def step_and_ask(self, *arguments):
        if self.get_num_updates() == 4:
            os.kill(os.getpid(), signal.SIGUSR1)
        return step(self, *arguments)

    with monkeypatch.context() as asking:
        asking.setattr(Trainer, "train_step", step_and_ask)
        with pytest.raises(SystemExit) as exited:
            train(tmp_path / "asked")
    assert exited.value.code == graceful_stop.STOPPED
    assert updates(checkpoint(tmp_path / "asked")) == 5
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
    again = train(tmp_path / "asked")
    assert updates(again) == 10
    assert same_weights(whole, again)
    assert again["extra_state"]["val_loss"] == whole["extra_state"]["val_loss"]


def test_a_killed_training_that_saves_by_time_loses_no_more(train, tmp_path, monkeypatch):
    """Saved after every update, killed in the sixth, within an epoch; then as if it had not been."""
    from fairseq.trainer import Trainer

    whole = train(tmp_path / "whole", "--validate-interval-updates", 4)
    step = Trainer.train_step

    def step_or_end(self, *arguments):
        if self.get_num_updates() == 5:
            raise MemoryError("killed")
        return step(self, *arguments)

    monkeypatch.setenv(graceful_stop.SAVE_SECONDS, "0")
    with monkeypatch.context() as ending:
        ending.setattr(Trainer, "train_step", step_or_end)
        with pytest.raises(MemoryError):
            train(tmp_path / "killed", "--validate-interval-updates", 4)
    assert updates(checkpoint(tmp_path / "killed")) == 5
    assert files(tmp_path / "killed") <= files(tmp_path / "whole")  # no checkpoints of single updates
    monkeypatch.setenv(graceful_stop.SAVE_SECONDS, "1000")
    with monkeypatch.context() as counting:
        steps = []
        counting.setattr(Trainer, "train_step", lambda self, *arguments: steps.append(1) or step(self, *arguments))
        again = train(tmp_path / "killed", "--validate-interval-updates", 4)
    assert (len(steps), updates(again)) == (5, 10)
    assert same_weights(whole, again)
    assert again["extra_state"]["val_loss"] == whole["extra_state"]["val_loss"]


def test_a_handler_of_somebody_else_stays(train, tmp_path):
    heard = []
    before = signal.signal(signal.SIGUSR1, lambda *_: heard.append("USR1"))
    try:
        train(tmp_path, updates=1)
        os.kill(os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert heard == ["USR1"]


@pytest.fixture
def saving(monkeypatch):
    """``saving(option)`` is what an update ends with that the signal came in, and the options with which was saved."""

    def saving(option, asked=True):
        saved = []
        monkeypatch.setattr(checkpoint_utils, "save_checkpoint", lambda cfg, *_: saved.append(cfg))
        monkeypatch.setattr(graceful_stop, "request", graceful_stop.Request())
        cfg = OmegaConf.structured(FairseqConfig)
        cfg.checkpoint[option] = True
        trainer = SimpleNamespace(data_parallel_world_size=1, get_num_updates=lambda: 3)
        graceful_stop.request.here = asked
        _, stops = graceful_stop.save_and_stop(lambda *_: ([None], False))(cfg, trainer, None, None)
        assert graceful_stop.request.granted == stops
        assert cfg.checkpoint[option]
        return stops, saved, graceful_stop.request.here

    return saving


def test_asked_to_leave_off_a_training_saves_also_without_last_checkpoints(saving):
    stops, (options,), _ = saving("no_last_checkpoints")
    assert stops
    assert not options.no_last_checkpoints


def test_asked_to_leave_off_a_training_that_saves_nothing_goes_on(saving, caplog):
    assert saving("no_save") == (False, [], False)
    assert "--no-save" in caplog.text


def test_a_training_that_saves_nothing_is_not_told_so_at_every_update(saving, caplog, monkeypatch):
    monkeypatch.setenv(graceful_stop.SAVE_SECONDS, "0")
    assert saving("no_save", asked=False) == (False, [], False)
    assert not caplog.text


def test_seconds_between_checkpoints_that_are_no_number_name_the_variable(monkeypatch):
    monkeypatch.setenv(graceful_stop.SAVE_SECONDS, "5min")
    with pytest.raises(InputError, match="FAIRSEQ_POSENC_SAVE_SECONDS=5min"):
        graceful_stop.save_and_stop(print)


def test_a_signal_while_training_starts_is_kept_for_this_training_alone():
    run = ProgramRun(None, print, None)
    for asked in (True, False):
        with program_run.forward_stop_signal(run):
            if asked:
                os.kill(os.getpid(), signal.SIGUSR1)
            with graceful_stop.listening():
                assert graceful_stop.request.here == asked


def test_a_process_that_the_signal_ends_while_it_starts_has_left_off(capsys):
    with pytest.raises(SystemExit) as left, program_run.end_with_the_processes(ProgramRun(None, print, "fairseq-train")):
        raise torch.multiprocessing.ProcessExitedException("", 0, 1, exit_code=-signal.SIGUSR1, signal_name="SIGUSR1")
    assert left.value.code == graceful_stop.STOPPED
    assert capsys.readouterr().err.startswith("fairseq-train: asked to stop before")


def test_the_parent_of_spawned_processes_passes_the_signal_on():
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    child.start()
    graceful_stop.forward(signal.SIGUSR1)
    child.join(120)
    assert child.exitcode == -signal.SIGUSR1


@pytest.mark.slow
def test_several_processes_may_leave_layers_out(run, data_bin, tmp_path):
    """PyTorch's data parallelism else waits for the gradients of all parameters."""
    flags = [*FLAGS, "--arch", "roberta_tisa", "--lr", "1e-3", "--encoder-layerdrop", "0.5", "--no-save", "--max-update", 8]
    assert "num_updates 8" in run("fairseq-train", data_bin, *flags, cwd=tmp_path, processes=2).stdout


@pytest.mark.slow
def test_two_processes_continue_what_one_began_and_leave_off_together(train, data_bin, tmp_path):
    """The second is asked; both stop after the same update, or the first would wait for it, or save without it.

    fairseq starts them itself, and its default is PyTorch's data parallelism; the first sends the checkpoint to the second.
    """
    import psutil

    train(tmp_path, updates=2)
    flags = [*FLAGS, "--arch", "roberta_tisa", "--lr", "1e-3", "--distributed-world-size", "2", "--log-interval", "1"]
    command = [SCRIPTS / "fairseq-train", data_bin, *flags, "--max-update", "100000", "--save-dir", tmp_path]
    output = tmp_path / "log"
    with output.open("w") as log:
        parent = subprocess.Popen([*map(str, command)], stdout=log, stderr=log, env=environment())
    try:
        wait_until(lambda: "num_updates" in output.read_text(), parent)
        second = max(child.pid for child in psutil.Process(parent.pid).children() if "spawn_main" in " ".join(child.cmdline()))
        os.kill(second, signal.SIGUSR1)
        assert parent.wait(300) == graceful_stop.STOPPED, output.read_text()
    finally:
        parent.kill()
    said = output.read_text()
    assert "training on the CPU (processes: 2," in said
    assert re.findall(r"train_inner.*?num_updates=(\d+)", said)[0] == "3"
    assert said.count("asked by SIGUSR1 to stop, after") == 2
    assert f"after {updates(checkpoint(tmp_path))} updates" in said
    assert "Traceback" not in said


def wait_until(condition, process, seconds=300):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)


WATCHED = """
import os, time
from fairseq_posenc.plugin.processes import launchers
launchers.watch()
print(os.getpid(), flush=True)
time.sleep(600)
"""
STARTING = """
import os, time
print(os.getpid(), flush=True)
time.sleep(1)  # meanwhile, the launcher is killed
from fairseq.dataclass.configs import FairseqConfig
from fairseq.distributed import utils
from omegaconf import OmegaConf
utils.infer_init_method = lambda *_: time.sleep(600)
utils.call_main(OmegaConf.structured(FairseqConfig), print)
"""
START = """
import subprocess, sys
subprocess.run([sys.executable, *sys.argv[1:]])
"""


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("above", "variables", "ends"),
    [
        ([SCRIPTS / "torchrun", "--standalone", "--nproc-per-node", "1"], {}, True),
        (["program"], {"TORCHELASTIC_RUN_ID": "none"}, True),
        (["deepspeed.launcher.launch"], {}, True),
        (["deepspeed", "deepspeed.launcher.launch"], {}, True),
        (["fairseq-posenc"], {}, True),
        (["program"], {}, False),
        (["program", "program"], {}, False),
    ],
    ids=["torchrun", "elastic", "launch", "deepspeed", "grid", "shell", "shells"],
)
def test_a_process_ends_with_its_launcher_and_with_nothing_else(tmp_path, above, variables, ends):
    """The first of ``above`` is killed; but for torchrun, all are a program that starts what its arguments say."""
    outlives(tmp_path, above, variables, ends, WATCHED)


@pytest.mark.thorough
def test_a_process_that_is_starting_ends_with_its_launcher(tmp_path):
    outlives(tmp_path, ["program"], {"TORCHELASTIC_RUN_ID": "none"}, True, STARTING)


def outlives(tmp_path, above, variables, ends, watched):
    (tmp_path / "watched.py").write_text(watched)
    for name in ("deepspeed", "deepspeed.launcher.launch", "fairseq-posenc", "program"):
        (tmp_path / name).write_text(START)
    command = [sys.executable, *above, "watched.py"]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
                             env=environment(**variables))  # fmt: skip
    pid = int(first.stdout.readline())
    try:
        first.kill()
        deadline = time.monotonic() + (120 if ends else 2)
        while alive(pid) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert alive(pid) != ends
    finally:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
        first.wait()
    assert (f"the launcher of this process (process {first.pid}) has ended" in first.stderr.read()) == ends
