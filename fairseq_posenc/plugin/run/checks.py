"""The checks before one of fairseq's programs starts anything: :data:`CHECKS`, and for training :data:`OF_TRAINING`.

Each check gets the configuration and raises InputError, which names the flag. Combinations of flags are in :mod:`.refusals`.
"""

import argparse
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fairseq import utils
from fairseq.file_io import PathManager
from omegaconf import DictConfig, ListConfig, OmegaConf

from ...base.errors import InputError, flag_of
from ...base.files import read
from ..models.building import complete_new
from ..optim.settings import pair
from ..options.architectures import is_ours, require_architecture
from .hydra_job import job_number

SHARE = ("a number from 0 to 1 is needed", lambda number: 0 <= number <= 1)
BOUNDS: dict[str, tuple[str, Callable[[float], bool]]] = {  # for fairseq's options
    **dict.fromkeys(
        ("dataset.batch_size", "dataset.batch_size_valid", "dataset.max_tokens", "dataset.max_tokens_valid",
         "dataset.required_batch_size_multiple", "dataset.validate_interval", "task.tokens_per_sample", "common.log_interval",
         "checkpoint.save_interval", "optimization.update_freq", "lr_scheduler.total_num_update",
         "distributed_training.distributed_world_size", "generation.beam", "generation.nbest"),
        ("at least 1 is needed", lambda number: number >= 1),
    ),
    **dict.fromkeys(
        ("dataset.num_workers", "optimization.lr", "optimization.batch_warmup_updates", "task.pack_examples"),
        ("at least 0 is needed, and finite", lambda number: 0 <= number < math.inf),
    ),
    "common.seed": ("a number from 0 to 2^32 - 1 is needed, as NumPy takes it", lambda number: 0 <= number < 1 << 32),
    **dict.fromkeys(("task.random_token_prob", "task.leave_unmasked_prob"), SHARE),
    "task.mask_prob": ("a number between 0 and 1 is needed", lambda number: 0 < number < 1),
}  # fmt: skip
ANY_NUMBER = ("a number is needed", lambda number: not math.isnan(number))


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
        needed, fits = BOUNDS.get(path) or (SHARE if path.endswith("dropout") else ANY_NUMBER)
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


def check_pairs(cfg: Any) -> None:
    """Refuse options of optimizers that are no pairs of numbers, such as ``--adam-betas``."""
    for option, value in _options(cfg, "optimizer").items():
        if option.endswith("_betas") or option == "adafactor_eps":
            pair(option, value)


def check_finetune_from_model(cfg: Any) -> None:
    """Refuse a ``--finetune-from-model`` that is missing."""
    path = cfg.checkpoint.finetune_from_model
    if path is not None and not PathManager.exists(path):
        raise InputError(f"--finetune-from-model {path} does not exist")


def check_dictionaries(cfg: Any) -> None:
    """Refuse data-bins, joined by ':', with different words, of which fairseq reads the first only."""
    first, *others = (Path(path) for path in str(getattr(cfg.task, "data", "") or "").split(":"))
    for dictionary in sorted(first.glob("dict*.txt")) if others else ():
        for other in (folder / dictionary.name for folder in others):
            if other.exists() and _words(other) != _words(dictionary):
                raise InputError(f"{other} has other words than {dictionary}, the only one that fairseq reads")


def _words(dictionary: Path) -> list[bytes]:
    return [line.rpartition(b" ")[0] for line in read(dictionary).splitlines()]


def complete_model(cfg: Any) -> None:
    """Complete and check the options of a new model, where the configuration has one of ours."""
    model: Any = None if OmegaConf.is_missing(cfg, "model") else cfg.model  # it is missing in programs that use a trained model
    arch = model if isinstance(model, str) else getattr(model, "_name", None)
    if arch is None:
        return
    require_architecture(arch)
    if is_ours(arch):
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
OF_TRAINING = (check_pairs, check_dictionaries, check_finetune_from_model)
