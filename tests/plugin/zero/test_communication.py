"""What is settled before processes talk: ranks, waiting, and that nothing is compiled."""

import subprocess
import sys
from datetime import timedelta

import pytest
from training_runs import environment, needs_deepspeed

from fairseq_posenc.plugin.zero import communication

SLURM = {"SLURM_PROCID": "11", "SLURM_STEP_NUM_TASKS": "16", "SLURM_LOCALID": "3"}


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
        {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_LOCALID": "0", "MASTER_ADDR": "node1"},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_LOCALID": "0", "MASTER_ADDR": "node1"},  # a batch script without srun
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
@pytest.mark.thorough
def test_nothing_is_compiled_for_training_on_a_cpu(tmp_path):
    """Without a compiler on the path, as on many hosts; the world of one process has DeepSpeed's communication at work."""
    program = """
import os, torch
from fairseq_posenc.plugin.zero import communication
communication.world_of_one(os.environ)
communication.without_inference_kernels()
import deepspeed
deepspeed.init_distributed("gloo")
one = torch.ones(3)
deepspeed.comm.all_reduce(one)
print("added", one.sum().item())
torch.distributed.destroy_process_group()  # whose threads may abort a process that exits with them
"""
    variables = {**environment(), "TORCH_EXTENSIONS_DIR": str(tmp_path), "DS_ACCELERATOR": "cpu", "PATH": "/nowhere"}
    done = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "added 3.0" in done.stdout
    assert not any(tmp_path.iterdir())
