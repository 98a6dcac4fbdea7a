"""Several processes without GPUs."""

import os
import socket
from collections.abc import Callable
from typing import Any

import torch

from .patching import wrap


def start_processes(call_main: Callable, cfg: Any, main: Callable, **kwargs: Any) -> None:
    """Call fairseq's ``call_main``, or start the processes of ``--cpu --distributed-world-size N``.

    fairseq asserts that there are as many GPUs as processes. Can be removed when fairseq takes ``--cpu`` into account.
    """
    from fairseq.distributed import utils

    distributed = cfg.distributed_training
    launched = "RANK" in os.environ or distributed.distributed_init_method or distributed.distributed_port > 0
    if not without_gpus(cfg) or distributed.distributed_world_size == 1 or launched:
        call_main(cfg, main, **kwargs)
        return
    distributed.distributed_init_method = f"tcp://localhost:{free_port()}"
    distributed.distributed_rank = None  # each process gets its own
    torch.multiprocessing.spawn(
        utils.distributed_main, args=(main, cfg, {"start_rank": 0, **kwargs}), nprocs=distributed.distributed_world_size
    )


def gloo_without_gpus() -> None:
    """Use gloo on CPUs, since fairseq's default, NCCL, needs GPUs. Can be removed when fairseq does the same."""
    from fairseq.distributed import utils

    @wrap(utils, "distributed_init")
    def init_with_gloo(init, cfg):
        if without_gpus(cfg):
            cfg.distributed_training.distributed_backend = "gloo"
        return init(cfg)


def data_parallel_without_gpus() -> None:
    """Pass no device to DistributedDataParallel for a model on the CPU; PyTorch rejects the GPU that fairseq names.

    Can be removed when fairseq passes none.
    """
    from fairseq.models import distributed_fairseq_model

    wrapper = distributed_fairseq_model.DistributedDataParallel

    def data_parallel(module: torch.nn.Module, device_ids: Any = None, output_device: Any = None, **options: Any):
        if next(module.parameters()).device.type == "cpu":
            device_ids = output_device = None
        return wrapper(module=module, device_ids=device_ids, output_device=output_device, **options)

    distributed_fairseq_model.DistributedDataParallel = data_parallel


def gather_objects_without_gpus() -> None:
    """Gather Python objects (logging outputs that cannot be summed) through PyTorch, since fairseq's buffer is on a GPU.

    Can be removed when the buffer is on the device of the process group.
    """
    from fairseq.distributed import utils

    @wrap(utils, "all_gather_list")
    def gather(all_gather_list, data, group=None, max_size=16384):
        group = utils.get_global_group() if group is None else group
        if torch.distributed.get_backend(group) != "gloo":
            return all_gather_list(data, group, max_size)
        gathered = [None] * utils.get_world_size(group)
        torch.distributed.all_gather_object(gathered, data, group=group)
        return gathered


def without_gpus(cfg: Any) -> bool:
    """Return whether a fairseq config trains on the CPU."""
    return cfg.common.cpu or not torch.cuda.is_available()


def free_port() -> int:
    """Return a TCP port of this host that is not in use."""
    with socket.socket() as sock:
        sock.bind(("localhost", 0))
        return sock.getsockname()[1]


PATCHES = (gloo_without_gpus, data_parallel_without_gpus, gather_objects_without_gpus)


def from_first_process(value: Any) -> Any:
    """Return the first process's ``value`` in all processes; without a process group, this process's."""
    values = [value]
    if torch.distributed.is_initialized():
        torch.distributed.broadcast_object_list(values, src=0)
    return values[0]


def gather(value: Any) -> list[Any]:
    """Return the values of all processes; without a process group, that of this process alone."""
    if not torch.distributed.is_initialized():
        return [value]
    values = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(values, value)
    return values
