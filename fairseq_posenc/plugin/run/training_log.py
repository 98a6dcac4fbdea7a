"""What the log of a training says beside fairseq's, and ``--profile-steps``."""

import functools
import logging
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from fairseq.logging import meters, metrics
from torch import nn
from torch.profiler import ProfilerAction, profile

from ...base.files import partial_of
from ...core.transformer import Stack
from ..processes.gpus import GPUS
from ..processes.group import without_gpus

log = logging.getLogger(__name__)

OPTION = "profile_steps"
HELP = "write a trace of torch.profiler of these updates, such as 10-15, to --save-dir"


def untimed(function: Callable) -> Callable:
    """Let the speeds of training leave out the time of a function, as of validating and saving."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        result = function(*args, **kwargs)
        for name in ("train", "train_inner"):
            for meter in (metrics.get_meters(name) or {}).values():
                if isinstance(meter, meters.TimeMeter):
                    meter.start += time.perf_counter() - start
        return result

    return call


@contextmanager
def name_the_processor(run: Any) -> Iterator[None]:
    """Without a GPU, log so in place of fairseq's line on the number of GPUs."""
    common, processes = run.cfg.common, run.cfg.distributed_training.distributed_world_size

    def named(record: logging.LogRecord) -> bool:
        if str(record.msg).endswith("devices (GPUs/TPUs)"):
            why = "" if common.cpu else ", as PyTorch finds no GPU"
            record.msg = f"training on the CPU{why} (processes: {processes}, threads of each: {torch.get_num_threads()}); "
            record.msg += f"the loss is logged after every {common.log_interval} updates (--log-interval)"
        return True

    if without_gpus(run.cfg):
        run.module["logger"].addFilter(named)
    try:
        yield
    finally:
        run.module["logger"].removeFilter(named)


class Speed:
    """Adds to what is logged how long the training will take, and how well it uses the GPUs.

    ``seconds_left`` is the time to ``--max-update`` without validating and saving. ``mfu``, the utilization of FLOPs by the model
    in per cent (Chowdhery et al. 2022, appendix B), is that of 16 bits on :data:`.gpus.GPUS`, where samples have a length.
    """

    def __init__(self, max_update: int) -> None:
        self._max_update, self._limit = max_update, math.inf  # tokens per second with which every GPU computed at its peak

    def measured(self, train: Callable) -> Callable:
        """Wrap fairseq's ``train`` of an epoch, which has the trainer."""

        @functools.wraps(train)
        def train_measured(cfg: Any, trainer: Any, *args: Any) -> Any:
            length = getattr(cfg.task, "tokens_per_sample", None)
            if length and (cfg.common.bf16 or cfg.common.fp16) and (peak := peak_of(trainer.device)):
                self._limit = peak * trainer.data_parallel_world_size / flops_per_token(trainer.model, length)
            return train(cfg, trainer, *args)

        return train_measured

    def logged(self, get_stats: Callable) -> Callable:
        """Wrap fairseq's ``get_training_stats``."""

        def get_stats_and_speed(values: Mapping[str, Any]) -> Mapping[str, Any]:
            stats = get_stats(values)
            if self._max_update and stats.get("wps"):  # more digits than ups
                stats["seconds_left"] = round((self._max_update - stats["num_updates"]) * stats["wpb"] / stats["wps"])
            if self._limit < math.inf and stats.get("wps"):
                stats["mfu"] = round(100 * stats["wps"] / self._limit, 1)
            return stats

        return get_stats_and_speed


def peak_of(device: torch.device) -> float | None:
    """Return the FLOP/s of a GPU in 16 bits; None if it is none of :data:`.gpus.GPUS`."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    whole = {" ?".join(known): peak for known, (_, peak) in GPUS.items()}  # with a space or none at any place
    return next((1e12 * peak for known, peak in whole.items() if re.search(rf"{known}(?!\d|.*(Laptop|MIG))", name)), None)


def flops_per_token(model: nn.Module, n: int) -> int:
    """Return ``6 N + 12 L n D``, the FLOPs of a token's forward and backward pass through the L layers of N weights.

    Layers that share weights count each time. Word embeddings, output layers and positions are left out.
    """
    flops = 0
    for stack in (module for module in model.modules() if isinstance(module, Stack)):
        for layer in stack.layers_in_order:
            weights = sum(getattr(weight, "ds_numel", weight.numel()) for weight in layer.parameters())  # ZeRO's, or PyTorch's
            flops += 6 * weights + 12 * n * stack.config.dim
    return flops


def updates_of(steps: str) -> range:
    """Return the updates of the option; none if it is not of the form 10-15."""
    found = re.fullmatch(r"([0-9]{1,9})-([0-9]{1,9})", steps)
    return range(int(found[1]), int(found[2]) + 1) if found and int(found[1]) else range(0)


def profiled(train: Callable) -> Callable:
    """Wrap fairseq's ``train`` of an epoch, so that the first process writes a trace of those of its updates."""

    @functools.wraps(train)
    def train_profiled(cfg: Any, trainer: Any, task: Any, epoch_itr: Any) -> Any:
        updates, step = updates_of(getattr(cfg.common, OPTION, "") or ""), trainer.train_step
        if not updates or cfg.distributed_training.distributed_rank:
            return train(cfg, trainer, task, epoch_itr)
        first = max(updates[0], trainer.get_num_updates() + 1)  # of this epoch

        def action(_: int) -> ProfilerAction:
            update = trainer.get_num_updates() + 1
            recorded = ProfilerAction.RECORD_AND_SAVE if update == updates[-1] else ProfilerAction.RECORD
            return recorded if update in updates else ProfilerAction.NONE

        def write(done: profile) -> None:
            path = Path(cfg.checkpoint.save_dir) / f"trace_{first}-{min(updates[-1], trainer.get_num_updates())}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            done.export_chrome_trace(str(partial_of(path)))
            partial_of(path).replace(path)
            log.info(f"wrote {path}, which https://ui.perfetto.dev shows")

        def step_and_tell(*args: Any, **kwargs: Any) -> Any:
            result = step(*args, **kwargs)
            profiler.step()
            return result

        with (
            profile(schedule=action, on_trace_ready=write, record_shapes=True) as profiler,
            mock.patch.object(trainer, "train_step", step_and_tell),
        ):
            return train(cfg, trainer, task, epoch_itr)

    return train_profiled
