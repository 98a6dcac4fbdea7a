"""Number formats and devices in training."""

import argparse
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from omegaconf import DictConfig, ListConfig, OmegaConf

from fairseq_posenc.compat.exits import refuse
from fairseq_posenc.compat.view import View
from fairseq_posenc.errors import Refused, flag_of

BOUNDS: dict[str, tuple[str, Callable[[float], bool]]] = {  # of fairseq's options
    **dict.fromkeys(
        ("dataset.batch_size", "dataset.batch_size_valid", "dataset.max_tokens", "dataset.max_tokens_valid",
         "dataset.required_batch_size_multiple", "dataset.validate_interval", "task.tokens_per_sample", "common.log_interval",
         "checkpoint.save_interval", "optimization.update_freq", "lr_scheduler.total_num_update",
         "distributed_training.distributed_world_size", "generation.beam", "generation.nbest"),
        ("at least 1 is needed", lambda number: number >= 1),
    ),
    **dict.fromkeys(
        ("dataset.num_workers", "optimization.lr", "task.pack_examples"),
        ("at least 0 is needed, and finite", lambda number: 0 <= number < math.inf),
    ),
    "common.seed": ("a number from 0 to 2^32 - 1 is needed, as NumPy takes it", lambda number: 0 <= number < 1 << 32),
    "task.mask_prob": ("a number between 0 and 1 is needed", lambda number: 0 < number < 1),
}  # fmt: skip
ANY_NUMBER = ("a number is needed", lambda number: not math.isnan(number))
DROPOUT = ("a number from 0 to 1 is needed", lambda number: 0 <= number <= 1)


def bf16_without_tpu() -> None:
    """Let ``--bf16`` and ``--memory-efficient-bf16`` mean the number format alone.

    fairseq takes them for a request to train on a TPU and fails without torch_xla; its Hydra entry point does not. Can go
    when fairseq's options do not set ``tpu``.
    """
    from fairseq import options

    parse = options.parse_args_and_arch

    @functools.wraps(parse)
    def parse_without_tpu(parser, input_args=None, *args, **kwargs):
        parsed = parse(parser, input_args, *args, **kwargs)
        namespace = parsed[0] if isinstance(parsed, tuple) else parsed
        if getattr(namespace, "tpu", False):
            namespace.tpu = getattr(parser.parse_known_args(input_args)[0], "tpu", False)
        return parsed

    options.parse_args_and_arch = parse_without_tpu


def numbers_that_mean_something() -> None:
    """Refuse batches of no size, learning rates that are no number and the like, before anything is started.

    ``--batch-size 0`` makes the whole data set one batch, and others end in errors about something else, or in a model of NaN.
    Can go when fairseq refuses them.
    """
    from fairseq.distributed import utils

    call_main = utils.call_main

    @functools.wraps(call_main)
    def call_checked(cfg, main, **kwargs):
        for path, number in _numbers(cfg):
            needed, fits = BOUNDS.get(path) or (DROPOUT if path.endswith("dropout") else ANY_NUMBER)
            if not fits(number):
                refuse(f"{flag_of(path.partition('.')[2])} {number}: {needed}")
        return call_main(cfg, main, **kwargs)

    utils.call_main = call_checked


def _numbers(cfg: DictConfig) -> Iterator[tuple[str, float]]:
    """Every number of a configuration, with its path; of a list, each."""
    for section in cfg:
        options: Any = None if OmegaConf.is_missing(cfg, section) else cfg[section]
        if isinstance(options, argparse.Namespace):  # of a task or model without a dataclass
            options = vars(options)
        elif isinstance(options, DictConfig):
            options = {name: options[name] for name in options if not OmegaConf.is_missing(options, name)}
        for name, value in (options if isinstance(options, dict) else {}).items():
            for each in value if isinstance(value, (list, ListConfig)) else [value]:
                if type(each) in (int, float):
                    yield f"{section}.{name}", each


def fp16_needs_gpu() -> None:
    """Say that ``--fp16`` needs a GPU, where fairseq fails when it asks for the current CUDA device.

    Can go when fairseq says it.
    """
    from fairseq.trainer import Trainer

    init = Trainer.__init__

    @functools.wraps(init)
    def checked(self, cfg, *args, **kwargs):
        on_cpu = cfg.common.cpu or not torch.cuda.is_available()
        if on_cpu and (cfg.common.fp16 or cfg.common.memory_efficient_fp16):
            why = "--cpu was given" if cfg.common.cpu else "PyTorch finds none"
            raise Refused(f"--fp16 needs a GPU, and {why}. Train with --bf16, or in float32 by leaving --fp16 out.")
        init(self, cfg, *args, **kwargs)

    Trainer.__init__ = checked


def current_amp() -> None:
    """Give fairseq ``torch.amp`` where it uses ``torch.cuda.amp``, for which PyTorch gives a deprecation warning per run.

    Can go when fairseq uses ``torch.amp``.
    """
    from fairseq.optim import amp_optimizer
    from fairseq.tasks import fairseq_task

    autocast = functools.partial(torch.amp.autocast, "cuda")
    scaler = functools.partial(torch.amp.GradScaler, "cuda")
    amp = View(torch.cuda.amp, autocast=autocast, GradScaler=scaler)
    amp_optimizer.torch = fairseq_task.torch = View(torch, cuda=View(torch.cuda, amp=amp))


def pinned_memory_needs_gpu() -> None:
    """Let fairseq's batches be in pinned memory only where there is a GPU; without one, PyTorch warns in every process.

    Can go when fairseq asks for pinned memory only with a GPU.
    """
    from fairseq.data import iterators

    def data_loader(*args, pin_memory: bool = False, **kwargs):
        return torch.utils.data.DataLoader(*args, pin_memory=pin_memory and torch.cuda.is_available(), **kwargs)

    utils = View(torch.utils, data=View(torch.utils.data, DataLoader=data_loader))
    iterators.torch = View(torch, utils=utils)


def nan_detector_forward_only() -> None:
    """Let training end in fairseq's "gradients are Nan/Inf", where it ends in a bare StopIteration.

    fairseq computes such a batch once more with hooks that log where the first NaN is. Its backward hooks are of a kind that
    PyTorch refuses where a module returns a dictionary without a tensor, as encoders do; the forward hooks, and the norms of
    the gradients that are logged after them, remain. Can go when fairseq uses full backward hooks.
    """
    from fairseq import trainer

    trainer.NanDetector = functools.partial(trainer.NanDetector, backward=False)


PATCHES = (
    bf16_without_tpu, numbers_that_mean_something, fp16_needs_gpu, current_amp, pinned_memory_needs_gpu,
    nan_detector_forward_only,
)  # fmt: skip
