"""Runs whose launcher is killed, that are started twice, or that are asked to leave off."""

import signal
import sys

import psutil
import pytest
from training_runs import deepspeed_launcher, launcher, needs_deepspeed, running, torchrun, workers

from fairseq_posenc.plugin.checkpoint.loading import load as load_checkpoint

pytestmark = [needs_deepspeed, pytest.mark.slow]

SPAWNED = (sys.executable, "-m", "fairseq_posenc.train", "--distributed-world-size", 2)
LAUNCHERS = [
    pytest.param(torchrun(), id="torchrun"),
    pytest.param(deepspeed_launcher(), id="deepspeed"),
    pytest.param(SPAWNED, id="python"),
]


def saved(save_dir):
    return load_checkpoint(str(save_dir / "checkpoint_last.pt"))["optimizer_history"][-1]["num_updates"]


@pytest.mark.parametrize("launch", LAUNCHERS)
def test_a_killed_launcher_takes_its_processes_along(english_data_bin, train, tmp_path, launch):
    save_dir = tmp_path / "checkpoints"
    with running(english_data_bin, save_dir, launch=launch) as process:
        below = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        _, alive = psutil.wait_procs(below, timeout=120)
        for each in alive:
            each.kill()
    output = (tmp_path / "log").read_text()
    assert not alive, output[-3000:]
    if launch != SPAWNED:  # these end at once, by the signal that PyTorch has asked for
        assert f"the launcher of this process (process {process.pid}) has ended" in output
    reached = saved(save_dir)
    again = train("--deepspeed-config", "zero2", save_dir=save_dir, launch=launch, updates=reached + 2)
    assert list(again.curve) == [reached + 1, reached + 2]


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_all_processes_leave_off_when_one_is_asked(english_data_bin, train, tmp_path, stage):
    """torchrun has no exit status of its own for it."""
    save_dir = tmp_path / "checkpoints"
    flags = ("--deepspeed-config", f"zero{stage}")
    with running(english_data_bin, save_dir, *flags, "--save-interval-updates", 10**5, "--save-interval", 1) as process:
        workers(process)[1].send_signal(signal.SIGUSR1)
        assert process.wait(timeout=1200) == 1
    output = (tmp_path / "log").read_text()
    assert output.count("asked by SIGUSR1 to stop") == 2
    assert output.count("exitcode  : 75 ") >= 1
    assert "lost another process" not in output
    reached = saved(save_dir)
    assert f"to stop, after {reached} updates" in output
    again = train(*flags, save_dir=save_dir, launch=launcher(), updates=reached + 2)
    assert list(again.curve) == [reached + 1, reached + 2]


def test_a_second_run_in_the_same_folder_is_refused_and_the_first_goes_on(english_data_bin, train, tmp_path):
    save_dir = tmp_path / "checkpoints"
    with running(english_data_bin, save_dir) as process:
        alone = (sys.executable, "-m", "fairseq_posenc.train")
        second = train("--deepspeed-config", "zero2", save_dir=save_dir, launch=alone, status=2)
        before = saved(save_dir)
        assert second.output.count("fairseq_posenc.train: another training (process ") == 1
        assert f"writes to --save-dir {save_dir}; name another" in second.output
        assert "Traceback" not in second.output
        while saved(save_dir) == before:
            assert process.poll() is None
