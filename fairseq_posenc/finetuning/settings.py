"""The settings of fine-tuning: defaults, overridden by a YAML file, overridden by flags; and the flags of both commands."""

from __future__ import annotations

import argparse
import re
import reprlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..errors import InputError, flag_of


class Settings(BaseModel):
    """The grid and the hyperparameters of one task; the defaults are RoBERTa's for GLUE (Liu et al. 2019, table 10)."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    lrs: list[Annotated[float, Field(gt=0)]] = Field([2e-5, 3e-5, 4e-5], min_length=1, description="learning rates to try")
    seeds: int = Field(5, ge=1, le=1000, description="number of seeds per learning rate: 1 … N")
    epochs: int = Field(10, ge=1, description="passes over the training set")
    batch_size: int = Field(32, ge=1, description="examples in a batch, over all devices")
    warmup: float = Field(0.06, ge=0, le=1, description="share of the updates in which the learning rate rises; then it falls")
    weight_decay: float = Field(0.1, ge=0, description="decoupled weight decay")
    dropout: float = Field(0.1, ge=0, le=1, description="dropout probability")
    attention_dropout: float = Field(0.1, ge=0, le=1, description="dropout probability of attention weights")
    adam_beta2: float = Field(0.98, ge=0, le=1, description="decay of Adam's second moments")
    adam_eps: float = Field(1e-6, ge=0, description="Adam's epsilon")
    clip_norm: float = Field(0.0, ge=0, description="greatest norm of the gradient; 0 means no limit")

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """All but the grid, by name."""
        return self.model_dump(exclude={"lrs", "seeds"})

    def arguments(self, lr: float, seed: int, examples: int) -> list[str]:
        """fairseq-train's flags for ``examples`` training examples."""
        import torch

        devices = max(1, torch.cuda.device_count())
        per_device = max(1, self.batch_size // devices)
        updates = self.epochs * -(-examples // (per_device * devices))
        return [
            *("--optimizer", "adam", "--adam-betas", f"(0.9,{self.adam_beta2})", "--adam-eps", str(self.adam_eps)),
            *("--weight-decay", str(self.weight_decay), "--clip-norm", str(self.clip_norm)),
            *("--lr", str(lr), "--lr-scheduler", "polynomial_decay", "--total-num-update", str(updates)),
            *("--warmup-updates", str(int(self.warmup * updates)), "--max-epoch", str(self.epochs)),
            *("--batch-size", str(per_device), "--required-batch-size-multiple", "1", "--seed", str(seed)),
        ]


def resolve(args: Mapping[str, Any], task: str, tasks: Iterable[str], defaults: Settings) -> Settings:
    """The settings of one of ``tasks``, for each of which the file may have a section.

    Args:
        args: the values of the flags, None for those that are not given; ``config`` is the file.

    Raises:
        InputError: an unknown name or a bad value; the message names the file and the flag.
    """
    config, flags = args["config"], {name: args[name] for name in Settings.model_fields if args[name] is not None}
    common, sections = _read(config, tasks) if config else ({}, {})
    resolved = {}
    for name in [*sections, task]:
        values = {**defaults.model_dump(), **common, **sections.get(name, {}), **flags}
        try:
            resolved[name] = Settings(**values)
        except (ValidationError, TypeError) as error:
            problem = str(error)
            if isinstance(error, ValidationError):
                first = error.errors(include_url=False)[0]
                problem = f"{flag_of(str(first['loc'][0]))}: {first['msg']}, got {reprlib.repr(first['input'])}"
            where = f" (--config {config})" if config else ""
            raise InputError(f"settings of {name}{where}: {problem}") from None
    return resolved[task]


class _Loader(yaml.SafeLoader):
    """Takes 1e-5 for a number, as YAML 1.2 does, and PyYAML only where it has a point and a sign: 1.0e-5."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def _read(path: Path, tasks: Iterable[str]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """(settings of all tasks, settings by task)."""
    try:
        content = yaml.load(path.read_text("utf-8"), _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"--config {path} is not YAML: {' '.join(str(error).split())}") from None
    sections = content.pop("tasks", {}) if isinstance(content, dict) else None
    if not isinstance(sections, dict) or not all(isinstance(section, dict) for section in sections.values()):
        raise InputError(f"--config {path} must map names of settings, and of tasks under 'tasks', to values")
    if unknown := [name for name in sections if name not in tasks]:
        raise InputError(f"--config {path} names {unknown[0]!r}, which is not a task. Known are {', '.join(tasks)}.")
    return content, sections


def add_flags(parser: argparse.ArgumentParser, defaults: Settings) -> None:
    """Declare the flags about the checkpoint and the output, and one flag per setting."""
    add = parser.add_argument
    add("--checkpoint", required=True, type=Path, metavar="FILE", help="the pretrained model, which determines scheme and sizes")
    add("--data-bin", type=Path, metavar="DIR",
        help="folder of its dictionary and tokenizer (default: the one it was trained on)")  # fmt: skip
    add("--out", required=True, type=Path, metavar="DIR", help="the folder to write")
    add("--from-scratch", action="store_true",
        help="use the checkpoint's options and vocabulary but none of its weights: the baseline without pretraining")  # fmt: skip
    add("--keep-checkpoints", action="store_true", help="keep the fine-tuned models in OUT/runs")
    add("--baseline", type=Path, metavar="RESULTS",
        help="results.json of another grid to compare with: adds Δ and Δ%%, and what differs besides the model")  # fmt: skip
    add("--train-flags", default="", metavar="FLAGS", help="more flags for fairseq-train, in one string, such as '--bf16'")
    add("--jobs", type=int, default=1, metavar="N", help="runs at a time, each in a process of its own (default: 1)")
    add("--cell", help=argparse.SUPPRESS)  # the name of the run that a process of --jobs does
    group = parser.add_argument_group("settings")
    group.add_argument("--config", type=Path, metavar="YAML", help="file of settings, under the names of the flags below with "
                       "_ for -; under 'tasks' and the name of a task, those of that task only")  # fmt: skip
    for name, setting in Settings.model_fields.items():
        default = getattr(defaults, name)
        kind, shown = (_floats, ",".join(map(str, default))) if isinstance(default, list) else (type(default), default)
        metavar = "LR[,LR…]" if kind is _floats else "N" if kind is int else "X"
        group.add_argument(flag_of(name), type=kind, metavar=metavar, help=f"{setting.description} (default: {shown})")


def _floats(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers such as 1e-5,2e-5") from None
