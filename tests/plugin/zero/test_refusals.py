"""What cannot be meant is said once, by whichever process finds it, and no other process waits for that one."""

import platform
import subprocess
import sys

import pytest
from training_runs import OPTIONS, RANKS, call, needs_deepspeed

from fairseq_posenc import train
from fairseq_posenc.base.errors import InputError
from fairseq_posenc.plugin.processes import exits

ONLY_THE_SECOND = """
import os, sys
from fairseq_posenc import train
from fairseq_posenc.plugin.zero import sharded_checkpoint
if os.environ["RANK"] == "1":
    sharded_checkpoint.os.path.exists = lambda path: '.shared' not in str(path)
sys.exit(train.main())
"""


@pytest.mark.parametrize(("rank", "said"), [("0", 1), ("1", 0)])
def test_every_host_says_what_it_finds_before_it_meets_the_others(monkeypatch, capsys, rank, said):
    """By its first process: the file may be missing on one host only, which need not be the first."""
    monkeypatch.setattr(exits, "GRACE_SECONDS", 0)
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("LOCAL_RANK", rank)
    with pytest.raises(SystemExit) as ended:
        train.main(["data", "--deepspeed-config", "missing.json"])
    assert ended.value.code == exits.REFUSED
    assert capsys.readouterr().err.count(f"train on {platform.node()}: --deepspeed-config missing.json cannot be read") == said


@needs_deepspeed
@pytest.mark.thorough
@pytest.mark.parametrize("sharding", [("--deepspeed-config", "zero2"), ()])
def test_what_one_process_finds_ends_all(sharding, english_data_bin, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(ONLY_THE_SECOND)
    save_dir = tmp_path / "checkpoints"
    flags = (*sharding, "--save-dir", save_dir, "--max-update", 1)
    done = call(RANKS, 2, program, english_data_bin, *OPTIONS, *flags)
    assert done.returncode == exits.REFUSED, done.stdout
    assert "is not shared by all hosts" in done.stdout
    assert "lost another process" not in done.stdout
    assert not list(save_dir.rglob("*.pt"))
    assert not list(save_dir.glob(".shared*"))


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e99"])
def test_a_time_to_wait_is_a_number_of_seconds(seconds, capsys):
    with pytest.raises(SystemExit) as ended:
        train.main(["data", "--distributed-timeout", seconds])
    assert ended.value.code == exits.REFUSED
    assert "--distributed-timeout " in capsys.readouterr().err


@pytest.mark.thorough
def test_fairseq_and_deepspeed_are_imported_when_the_environment_is_complete():
    program = "import sys, fairseq_posenc.train; print({'fairseq', 'deepspeed', 'hydra'} & sys.modules.keys())"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "set()\n"


@needs_deepspeed
@pytest.mark.slow
def test_what_deepspeed_itself_does_not_take_is_one_line(english_data_bin, tmp_path):
    file = tmp_path / "ds.json"
    file.write_text('{"zero_optimization": {"stage": 2, "reduce_bucket_size": 0.5}}')
    flags = ("--deepspeed-config", file, "--no-save", "--max-update", 1)
    done = call("-m", "fairseq_posenc.train", english_data_bin, *OPTIONS, *flags)
    assert done.returncode == exits.REFUSED, done.stdout
    assert done.stdout.count("--deepspeed-config has a value that DeepSpeed rejects: reduce_bucket_size: ") == 1
    assert "Traceback" not in done.stdout


@needs_deepspeed
@pytest.mark.parametrize("zero", [{"mics_shard_size": 1}, {"leaf_module": 1}, {"reduce_bucket_size": []}], ids=str)
def test_however_deepspeed_says_it_it_is_a_refusal(zero):
    from fairseq_posenc.plugin.zero import trainer

    config = {"train_batch_size": 1, "zero_optimization": {"stage": 2, **zero}}
    with pytest.raises(InputError, match=f"--deepspeed-config .*{next(iter(zero))}"):
        trainer.check_config(config)


@pytest.mark.parametrize(
    ("message", "gone"),
    [
        ("[pair.cc:538] Connection closed by peer [127.0.0.1]:4711", True),
        ("[unbound_buffer.cc:81] Timed out waiting 12000ms for recv operation to complete", True),
        ("Found no gloo backend and no NCCL in this build", False),
        ("DataLoader timed out after 10 seconds", False),
    ],
)
def test_only_errors_of_communication_mean_a_lost_process(message, gone):
    assert train._peer_is_gone(RuntimeError(message)) is gone


@needs_deepspeed
def test_deepspeed_and_fairseq_train_on_one_device(monkeypatch):
    from types import SimpleNamespace

    import deepspeed.accelerator

    from fairseq_posenc.plugin.zero import communication

    monkeypatch.setattr(deepspeed.accelerator, "get_accelerator", lambda: SimpleNamespace(device_name=lambda: "cuda"))
    communication.require_one_device(on_cpu=False)
    with pytest.raises(ValueError, match=r"common\.cpu=true"):
        communication.require_one_device(on_cpu=True)
