"""The checks before one of fairseq's programs starts anything: :data:`CHECKS`, and :data:`OF_TRAINING` for training.

Each check gets the configuration and raises InputError, which names the flag.
"""

import argparse
import math
import os
from collections.abc import Callable, Iterator
from typing import Any

from fairseq import utils
from fairseq.file_io import PathManager
from fairseq.models import ARCH_MODEL_REGISTRY
from omegaconf import DictConfig, ListConfig, OmegaConf

from ...base.errors import InputError, flag_of
from ..batches import batch_warmup
from ..models.building import complete_new
from ..optim import muon, stable_adamw
from ..optim.settings import pair, require_whole_tensors
from ..options.architectures import is_ours, require_architecture
from ..patches.configurations import job_number
from ..patches.distributed import without_gpus
from .refused_settings import check_training_settings

BOUNDS: dict[str, tuple[str, Callable[[float], bool]]] = {  # for fairseq's options
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
    **dict.fromkeys(
        ("task.random_token_prob", "task.leave_unmasked_prob"),
        ("a number from 0 to 1 is needed", lambda number: 0 <= number <= 1),
    ),
    "task.mask_prob": ("a number between 0 and 1 is needed", lambda number: 0 < number < 1),
}  # fmt: skip
ANY_NUMBER = ("a number is needed", lambda number: not math.isnan(number))
DROPOUT = ("a number from 0 to 1 is needed", lambda number: 0 <= number <= 1)


def import_user_dir(cfg: Any) -> None:
    """Import ``--user-dir``, which may define architectures."""
    utils.import_user_module(cfg.common)


def make_data_paths_absolute(cfg: Any) -> None:
    """Make the paths in ``cfg.task.data``, joined by ':', absolute, so that those in checkpoints resolve from any folder."""
    task: Any = None if OmegaConf.is_missing(cfg, "task") else cfg.task
    if isinstance(data := getattr(task, "data", None), str):
        task.data = ":".join(os.path.abspath(path) if os.path.exists(path) else path for path in data.split(":"))


def check_number_ranges(cfg: Any) -> None:
    """Refuse batch sizes below 1, learning rates that are not finite, and the like.

    ``--batch-size 0`` makes the whole data set one batch, and others end in unrelated errors, or in a model of NaN.
    """
    for path, number in _numbers(cfg):
        needed, fits = BOUNDS.get(path) or (DROPOUT if path.endswith("dropout") else ANY_NUMBER)
        if not fits(number):
            raise InputError(f"{flag_of(path.partition('.')[2])} {number}: {needed}")


def _numbers(cfg: DictConfig) -> Iterator[tuple[str, float]]:
    """Iterate over the numbers of a configuration, those in lists included, with their paths."""
    for section in map(str, cfg):
        for name, value in _options(cfg, section).items():
            for number in value if isinstance(value, (list, ListConfig)) else [value]:
                if type(number) in (int, float):
                    yield f"{section}.{name}", number


def _options(cfg: DictConfig, section: str) -> dict[str, Any]:
    """Return the values of one section of a configuration, without those that are missing."""
    options: Any = None if OmegaConf.is_missing(cfg, section) else cfg[section]
    if isinstance(options, argparse.Namespace):  # of a task, model or optimizer without a dataclass
        return vars(options)
    known = options if isinstance(options, DictConfig) else {}
    return {name: known[name] for name in known if not OmegaConf.is_missing(known, name)}


def check_batch_size(cfg: Any) -> None:
    """Refuse training without ``--batch-size`` and ``--max-tokens``, and a number of rows that fairseq silently makes less."""
    rows, multiple = cfg.dataset.batch_size, cfg.dataset.required_batch_size_multiple or 1
    if rows is None:
        if cfg.dataset.max_tokens is None:
            raise InputError("--batch-size or --max-tokens is missing")
        return
    if rows > multiple and rows % multiple:
        problem = f"fairseq makes batches of {rows - rows % multiple}, a multiple of --required-batch-size-multiple {multiple}"
        raise InputError(f"--batch-size {rows}: {problem}: add --required-batch-size-multiple 1")


def check_learning_rate_schedule(cfg: Any) -> None:
    """Refuse to train beyond the update from which ``polynomial_decay`` has a learning rate of 0.

    With ``--max-epoch`` or ``--stop-time-hours``, training may end before it.
    """
    schedule, limits = cfg.lr_scheduler, cfg.optimization
    updates, others = limits.max_update, limits.max_epoch or limits.stop_time_hours
    ends = getattr(schedule, "_name", None) == "polynomial_decay" and not schedule.end_learning_rate
    if ends and not others and (updates or math.inf) > schedule.total_num_update:
        given = f"--max-update {updates}" if updates else "--max-update is missing"
        problem = f"the learning rate is 0 from --total-num-update {schedule.total_num_update:g} on"
        raise InputError(f"{given}: {problem}: give both one number, or --end-learning-rate")


def check_optimizer(cfg: Any) -> None:
    """Refuse pairs of numbers that are none, what :mod:`..optim` cannot work with, and a batch warm-up without effect."""
    for option, value in _options(cfg, "optimizer").items():
        if option.endswith("_betas") or option == "adafactor_eps":
            pair(option, value)
    batch_warmup.require_update_freq(cfg)
    name = getattr(cfg.optimizer, "_name", None)
    if name in (muon.NAME, stable_adamw.NAME):
        require_whole_tensors(cfg)
    if name == muon.NAME:
        muon.require_muon(cfg)


def check_finetune_from_model(cfg: Any) -> None:
    """Refuse a ``--finetune-from-model`` that is missing."""
    path = cfg.checkpoint.finetune_from_model
    if path is not None and not PathManager.exists(path):
        raise InputError(f"--finetune-from-model {path} does not exist")


def check_restore_file(cfg: Any) -> None:
    """Refuse a ``--restore-file`` from which training would replace later checkpoints, as the same command does after a kill."""
    checkpoint = cfg.checkpoint
    last = os.path.abspath(os.path.join(checkpoint.save_dir, "checkpoint_last.pt"))
    continues = checkpoint.restore_file == "checkpoint_last.pt" or os.path.abspath(checkpoint.restore_file) == last
    if not continues and not checkpoint.no_save and os.path.exists(last):
        raise InputError(
            f"--restore-file {checkpoint.restore_file}: training from it would replace {last}. Leave --restore-file out to "
            "continue from that, or name another --save-dir"
        )


def check_fp16(cfg: Any) -> None:
    """Refuse ``--fp16`` on a CPU, where fairseq fails when it asks for the current CUDA device."""
    if without_gpus(cfg) and (cfg.common.fp16 or cfg.common.memory_efficient_fp16):
        why = "--cpu was given" if cfg.common.cpu else "PyTorch finds none"
        raise InputError(f"--fp16 needs a GPU, and {why}. Train with --bf16, or in float32 by leaving --fp16 out.")


def complete_model(cfg: Any) -> None:
    """Complete and check the options of a new model, where the configuration has one of ours."""
    model: Any = None if OmegaConf.is_missing(cfg, "model") else cfg.model  # it is missing in programs that use a trained model
    arch = model if isinstance(model, str) else getattr(model, "_name", None)
    if arch is None:
        return
    require_architecture(arch)
    if not is_ours(arch):
        return
    task = ARCH_MODEL_REGISTRY[arch].option_set.task
    if cfg.task._name == "translation" != task:
        raise InputError(f"--task is translation (fairseq's default), which --arch {arch} cannot learn: add --task {task}")
    complete_new(model, arch, cfg.task)


_job_of_save_dir: dict[str, int] = {}


def check_save_dir(cfg: Any) -> None:
    """Refuse two jobs of a multirun in one folder, where the second would continue the model of the first."""
    job = job_number()
    if job is not None and not cfg.checkpoint.no_save:
        before = _job_of_save_dir.setdefault(os.path.abspath(cfg.checkpoint.save_dir), job)
        if before != job:
            raise InputError(
                f"jobs {before} and {job} of this multirun have one checkpoint.save_dir, {cfg.checkpoint.save_dir}. Give a "
                "relative one, which is then in the folder of each job."
            )


CHECKS = (
    import_user_dir,
    make_data_paths_absolute,
    check_number_ranges,
    complete_model,
    check_save_dir,
)
OF_TRAINING = (
    check_training_settings,
    check_batch_size,
    check_learning_rate_schedule,
    check_fp16,
    check_optimizer,
    check_restore_file,
    check_finetune_from_model,
)
OF_JOBS = (check_number_ranges, complete_model, *OF_TRAINING[:-2])
"""The checks of all jobs of a multirun before the first starts; they do not depend on the current folder."""
