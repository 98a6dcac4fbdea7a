"""The flags that both commands share, and the hyperparameters: defaults, overridden by a YAML file, overridden by flags."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ...base.commands import check_options, checkpoint_file, existing, option
from ...base.errors import InputError, require_known
from ...base.record import read_yaml

setting = partial(option, group="settings")


@dataclass(frozen=True)
class Settings:
    """The grid and the hyperparameters of one task; the defaults are RoBERTa's for GLUE (Liu et al. 2019, table 10)."""

    lrs: tuple[float, ...] = setting("learning rates to try", (2e-5, 3e-5, 4e-5), minimum=0.0, metavar="LR[,LR…]")
    seeds: int = setting("number of seeds per learning rate: 1 … N", 5, minimum=1, maximum=1000, metavar="N")
    epochs: int = setting("passes over the training set", 10, minimum=1, metavar="N")
    batch_size: int = setting("examples in a batch, over all devices", 32, minimum=1, metavar="N")
    warmup: float = setting("share of the updates in which the learning rate rises", 0.06, minimum=0.0, maximum=1.0, metavar="X")
    weight_decay: float = setting("decoupled weight decay", 0.1, minimum=0.0, metavar="X")
    dropout: float = setting("dropout probability", 0.1, minimum=0.0, maximum=1.0, metavar="X")
    attention_dropout: float = setting("dropout probability of attention weights", 0.1, minimum=0.0, maximum=1.0, metavar="X")
    adam_beta2: float = setting("decay of Adam's second moments", 0.98, minimum=0.0, maximum=1.0, metavar="X")
    adam_eps: float = setting("Adam's epsilon", 1e-6, minimum=0.0, metavar="X")
    clip_norm: float = setting("greatest norm of the gradient; 0 means no limit", 0.0, minimum=0.0, metavar="X")

    def arguments(self, lr: float, seed: int, examples: int, processes: int) -> list[str]:
        """Return fairseq-train's flags for ``examples`` training examples, of which each of the ``processes`` trains a share.

        Raises:
            InputError: a batch does not divide among the processes.
        """
        if self.batch_size % processes:
            raise InputError(
                f"--batch-size {self.batch_size}: {processes} processes do not divide it. There is one per GPU, of those that "
                "CUDA_VISIBLE_DEVICES names, or as many as --distributed-world-size in --train-flags"
            )
        updates = self.epochs * -(-examples // self.batch_size)
        return [
            *("--optimizer", "adam", "--adam-betas", f"(0.9,{self.adam_beta2})", "--adam-eps", str(self.adam_eps)),
            *("--weight-decay", str(self.weight_decay), "--clip-norm", str(self.clip_norm)),
            *("--lr", str(lr), "--lr-scheduler", "polynomial_decay", "--total-num-update", str(updates)),
            *("--warmup-updates", str(int(self.warmup * updates)), "--max-epoch", str(self.epochs)),
            *("--batch-size", str(self.batch_size // processes), "--required-batch-size-multiple", "1", "--seed", str(seed)),
        ]


@dataclass(frozen=True, kw_only=True)
class SharedOptions:
    """The flags that ``glue`` and ``squad`` share; settings that no flag gives are None."""

    data: Path
    checkpoint: Path = option(
        "the pretrained model, which determines scheme and sizes, or its run's folder", parse=checkpoint_file, metavar="FILE"
    )
    data_bin: Path | None = option(
        "folder of its dictionary and tokenizer (default: that of its training)", None, parse=existing, metavar="DIR"
    )
    out: Path = option("the folder to write", metavar="DIR")
    from_scratch: bool = option("do not load the checkpoint's weights, for a baseline without pretraining", False)
    keep_checkpoints: bool = option("keep the fine-tuned models in OUT/runs", False)
    train_flags: str = option("more flags for fairseq-train, in one string, such as '--bf16'", "", metavar="FLAGS")
    jobs: int = option("runs at a time, each in a process of its own", 1, minimum=1, metavar="N")
    config: Path | None = option(
        "file of settings, under the names of the flags below with _ for -; under 'tasks' and the name of a task, those of that "
        "task only", None, parse=existing, metavar="YAML",
    )  # fmt: skip
    settings: Settings = Settings()


def resolve(options: SharedOptions, task: str, tasks: Collection[str]) -> Settings:
    """Return the settings of one of ``tasks``, for each of which the file ``--config`` may have a section.

    Raises:
        InputError: an unknown name or a bad value; the message names the file and the flag.
    """
    common, sections = _read(options.config, tasks) if options.config else ({}, {})
    where = f" (--config {options.config})" if options.config else ""
    flags = vars(options.settings)
    values = {**common, **sections.get(task, {})}
    require_known(f"settings of {task}{where}:", values, flags)
    if empty := [name for name, value in values.items() if value is None]:
        raise InputError(f"settings of {task}{where}: {', '.join(empty)} has no value: give one, or leave it out")
    values |= {name: value for name, value in flags.items() if value is not None}
    settings = replace(type(options).settings, **values)
    try:
        check_options(settings)
        if not settings.lrs:
            raise InputError("--lrs must name at least one learning rate")
    except InputError as error:
        raise InputError(f"settings of {task}{where}: {error}") from None
    return settings


def _read(path: Path, tasks: Collection[str]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return (settings of all tasks, settings by task)."""
    content = read_yaml(path, f"--config {path}")
    sections = content.pop("tasks", {}) if isinstance(content, dict) else None
    if not isinstance(sections, dict) or not all(isinstance(section, dict) for section in sections.values()):
        raise InputError(f"--config {path} must map names of settings, and of tasks under 'tasks', to values")
    require_known(f"--config {path}: the task", sections, tasks)
    return content, sections
