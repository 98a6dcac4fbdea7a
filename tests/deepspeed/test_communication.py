"""What is settled before processes talk: ranks, waiting, and a compilation that cannot hang."""

import subprocess
import sys
from datetime import timedelta

import pytest
from training_runs import environment, needs_deepspeed

from fairseq_posenc.deepspeed import communication

SLURM = {"SLURM_PROCID": "11", "SLURM_NTASKS": "16", "SLURM_LOCALID": "3"}


def test_srun_says_the_rank():
    variables = {**SLURM, "MASTER_ADDR": "node1", "MASTER_PORT": "12345"}
    communication.rank_from_slurm(variables)
    assert {name: variables[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT")} == {
        "RANK": "11",
        "WORLD_SIZE": "16",
        "LOCAL_RANK": "3",
        "MASTER_PORT": "12345",
    }


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {**SLURM},  # nobody said where to meet
        {**SLURM, "MASTER_ADDR": "node1", "RANK": "0"},  # torchrun within srun
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_LOCALID": "0", "MASTER_ADDR": "node1"},
    ],
)
def test_other_launchers_ranks_are_left_alone(variables):
    before = dict(variables)
    communication.rank_from_slurm(variables)
    assert variables == before


def test_waiting_is_limited_for_every_group(monkeypatch):
    from torch.distributed import distributed_c10d

    for name in ("default_pg_timeout", "default_pg_nccl_timeout"):
        monkeypatch.setattr(distributed_c10d, name, None)
    communication.limit_waiting(90)
    for backend in ("gloo", "nccl"):
        assert distributed_c10d._get_default_timeout(distributed_c10d.Backend(backend)) == timedelta(seconds=90)


@needs_deepspeed
def test_a_lock_that_a_killed_compilation_left_is_removed(tmp_path):
    """PyTorch would wait for it for ever. The compilation itself is replaced: it takes half a minute.

    The path is that of a process started by ssh; ninja is found nevertheless.
    """
    stale = tmp_path / "deepspeed_shm_comm" / "lock"
    others = tmp_path / "somebody_elses" / "lock"  # TORCH_EXTENSIONS_DIR may name a folder that others compile in
    for lock in (stale, others):
        lock.parent.mkdir()
        lock.touch()
    program = """
from deepspeed.accelerator import get_accelerator
builder = type(get_accelerator().create_op_builder("ShareMemCommBuilder"))
from pathlib import Path
import shutil, sys
def load(self, verbose=True):
    assert not Path(sys.argv[1]).exists()
    assert shutil.which("ninja") == str(Path(sys.executable).with_name("ninja"))
    print("loaded")
builder.load = load
from fairseq_posenc.deepspeed.communication import prepare_engine
prepare_engine(on_cpu=True)
"""
    variables = {**environment(), "TORCH_EXTENSIONS_DIR": str(tmp_path), "DS_ACCELERATOR": "cpu", "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", program, stale], env=variables, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "loaded" in done.stdout
    assert others.exists()
