"""The group of a run's processes: what all of them have, and where they run."""

import socket
from typing import Any

import torch


def without_gpus(cfg: Any) -> bool:
    """Return whether a fairseq config trains on the CPU."""
    return cfg.common.cpu or not torch.cuda.is_available()


def free_port() -> int:
    """Return a TCP port of this host that is not in use."""
    with socket.socket() as sock:
        sock.bind(("localhost", 0))
        return sock.getsockname()[1]


def from_first_process(value: Any) -> Any:
    """Return the first process's ``value`` in all processes; without a process group, this process's."""
    values = [value]
    if torch.distributed.is_initialized():
        torch.distributed.broadcast_object_list(values, src=0)
    return values[0]


def gather(value: Any, group: Any = None) -> list[Any]:
    """Return the values of all processes, or those of a group; without a process group, that of this process alone."""
    if not torch.distributed.is_initialized():
        return [value]
    values = [None] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(values, value, group)
    return values
