"""Several processes on a host without GPUs, which communicate by gloo."""

from typing import Any

import torch
from fairseq.distributed import utils
from fairseq.models import distributed_fairseq_model

from ...base.patching import wrap
from ..processes.group import gather, without_gpus


def gloo_without_gpus() -> None:
    """Use gloo on CPUs, since fairseq's default, NCCL, needs GPUs. Can be removed when fairseq does the same."""

    @wrap(utils, "distributed_init")
    def init_with_gloo(init, cfg):
        if without_gpus(cfg):
            cfg.distributed_training.distributed_backend = "gloo"
        return init(cfg)


def data_parallel_without_gpus() -> None:
    """Pass no device to DistributedDataParallel for a model on the CPU; PyTorch rejects the GPU that fairseq names.

    Can be removed when fairseq passes none.
    """
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

    @wrap(utils, "all_gather_list")
    def gather_objects(all_gather_list, data, group=None, max_size=16384):
        group = utils.get_global_group() if group is None else group
        if torch.distributed.get_backend(group) != "gloo":
            return all_gather_list(data, group, max_size)
        return gather(data, group)
