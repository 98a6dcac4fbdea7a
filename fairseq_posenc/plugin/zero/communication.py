"""Prepares the communication of a run's processes."""

from collections.abc import MutableMapping
from datetime import timedelta

import torch
from torch.distributed import distributed_c10d

from ...base.errors import InputError
from ..processes.group import free_port

SLURM = {"RANK": "SLURM_PROCID", "WORLD_SIZE": "SLURM_STEP_NUM_TASKS", "LOCAL_RANK": "SLURM_LOCALID"}


def rank_from_slurm(environment: MutableMapping[str, str]) -> None:
    """Take rank and size of the world from Slurm if ``srun`` started this process and MASTER_ADDR is set.

    A world of one process is left alone, since ``srun torchrun …`` looks like that. The number of tasks is the step's, which only
    srun sets; a batch script has the others of :data:`SLURM` too.
    """
    started_by_srun = "RANK" not in environment and int(environment.get(SLURM["WORLD_SIZE"], "1")) > 1
    if started_by_srun and "MASTER_ADDR" in environment and all(name in environment for name in SLURM.values()):
        environment.update({name: environment[slurm] for name, slurm in SLURM.items()})
        environment.setdefault("MASTER_PORT", "29500")


def world_of_one(environment: MutableMapping[str, str]) -> None:
    """Describe a single process as a world, since the engine communicates even with itself."""
    environment.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="localhost", MASTER_PORT=str(free_port()))


def limit_waiting(seconds: float) -> None:
    """Let every process group that fairseq or DeepSpeed makes from now on wait at most this long for other processes.

    Neither passes a time-out, so PyTorch's default of 30 minutes (NCCL: 10) would apply, and nothing else detects a host that
    has lost its network.
    """
    for name in ("default_pg_timeout", "default_pg_nccl_timeout"):
        if not hasattr(distributed_c10d, name):
            raise RuntimeError(f"--distributed-timeout cannot be set: this PyTorch ({torch.__version__}) has no {name}")
        setattr(distributed_c10d, name, timedelta(seconds=seconds))


def require_one_device(on_cpu: bool) -> None:
    """Check that DeepSpeed, which chose a device when it was imported, uses the CPU if fairseq does.

    Raises:
        InputError: it uses GPUs.
    """
    from deepspeed.accelerator import get_accelerator

    if on_cpu and get_accelerator().device_name() != "cpu":
        raise InputError(
            "the configuration trains on the CPU (cpu: true), which DeepSpeed must know before a configuration is read: add "
            "--cpu, or in the form of Hydra common.cpu=true, to the command."
        )


def without_inference_kernels() -> None:
    """Keep DeepSpeed on a CPU from compiling its sums in shared memory, which only inference needs; training uses gloo.

    Compiling takes half a minute and a C++ compiler on each host.
    """
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
