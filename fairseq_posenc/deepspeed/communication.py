"""What must be right before the processes of a run talk to each other."""

from __future__ import annotations

from collections.abc import MutableMapping
from datetime import timedelta
from typing import Any

import torch
from torch import distributed
from torch.distributed import distributed_c10d

from ..compat.distributed import free_port
from ..errors import Refused

SLURM = {"RANK": "SLURM_PROCID", "WORLD_SIZE": "SLURM_NTASKS", "LOCAL_RANK": "SLURM_LOCALID"}


def rank_from_slurm(environment: MutableMapping[str, str]) -> None:
    """Take rank and size of the world from Slurm where ``srun`` started this process and MASTER_ADDR says where to meet.

    A world of one process is left alone: that is what ``srun torchrun …`` looks like from outside.
    """
    started_by_srun = "RANK" not in environment and int(environment.get("SLURM_NTASKS", "1")) > 1
    if started_by_srun and "MASTER_ADDR" in environment and all(name in environment for name in SLURM.values()):
        environment.update({name: environment[slurm] for name, slurm in SLURM.items()})
        environment.setdefault("MASTER_PORT", "29500")


def world_of_one(environment: MutableMapping[str, str]) -> None:
    """Describe a single process as a world, for the engine communicates even with itself."""
    world = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}
    environment.update(world)


def limit_waiting(seconds: float) -> None:
    """Let every process group made from now on, also by fairseq and DeepSpeed, wait at most this long for its peers.

    Both make groups without saying how long to wait, which means 30 minutes (NCCL: 10), and a host whose network is gone is
    not noticed in any other way.
    """
    for name in ("default_pg_timeout", "default_pg_nccl_timeout"):
        if not hasattr(distributed_c10d, name):
            raise RuntimeError(f"--distributed-timeout cannot be set: this PyTorch ({torch.__version__}) has no {name}")
        setattr(distributed_c10d, name, timedelta(seconds=seconds))


def gather(found: Any) -> list[Any]:
    """What each process has found, on all of them; without a process group, that of this process alone."""
    if not distributed.is_initialized():
        return [found]
    everything = [None] * distributed.get_world_size()
    distributed.all_gather_object(everything, found)
    return everything


def require_one_device(on_cpu: bool) -> None:
    """Refuse a run in which fairseq would use the CPU but DeepSpeed, which chose when it was imported, GPUs.

    Raises:
        Refused: they disagree; says how to tell DeepSpeed.
    """
    from deepspeed.accelerator import get_accelerator

    if on_cpu and get_accelerator().device_name() != "cpu":
        raise Refused(
            "the configuration says that the CPU trains (cpu: true), which DeepSpeed has to know before a configuration is "
            "read: add --cpu, or in the form of Hydra common.cpu=true, to the command."
        )


def without_inference_kernels() -> None:
    """Keep DeepSpeed on a CPU from compiling its communication through shared memory, which only inference uses.

    It would take half a minute and a C++ compiler on each host. Training communicates by gloo.
    """
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
