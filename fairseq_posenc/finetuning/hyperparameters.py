"""The hyperparameters of fine-tuning: defaults, a YAML file, and flags, the later before the earlier."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml


def _declare(default: Any, text: str, metavar: str, low: float = 0, high: float = float("inf")) -> Any:
    return field(default=default, metadata={"help": text, "metavar": metavar, "low": low, "high": high})


@dataclass(frozen=True)
class Hyperparameters:
    """What one run of fine-tuning is told; the defaults are RoBERTa's (Liu et al. 2019, table 10).

    Raises:
        ValueError: a value of another type, or out of its range; names it.
    """

    epochs: int = _declare(10, "passes over the training set", "N", low=1)
    batch_size: int = _declare(32, "examples in a batch, over all devices", "B", low=1)
    warmup: float = _declare(0.06, "share of the updates in which the learning rate rises, to fall then", "SHARE", high=1)
    weight_decay: float = _declare(0.1, "decoupled weight decay", "W")
    dropout: float = _declare(0.1, "dropout probability", "P", high=1)
    attention_dropout: float = _declare(0.1, "dropout probability of attention weights", "P", high=1)
    adam_beta2: float = _declare(0.98, "decay of Adam's second moments", "BETA", high=1)
    adam_eps: float = _declare(1e-6, "Adam's epsilon", "EPS")
    clip_norm: float = _declare(0.0, "greatest norm of the gradient; 0 is no limit", "G")

    def __post_init__(self) -> None:
        for declared in dataclasses.fields(self):
            value, kind = getattr(self, declared.name), type(declared.default)
            if isinstance(value, bool) or not isinstance(value, (int, kind)):
                raise ValueError(f"{declared.name} must be of the type {kind.__name__}, got {value!r}")
            low, high = declared.metadata["low"], declared.metadata["high"]
            if not low <= value <= high:
                most = "" if high == float("inf") else f" and at most {high}"
                raise ValueError(f"{declared.name} must be at least {low}{most}, got {value}")

    def arguments(self, lr: float, seed: int, examples: int) -> list[str]:
        """fairseq-train's flags for ``examples`` training examples."""
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


@dataclass(frozen=True)
class Grid:
    """The learning rates and the seeds that are tried."""

    lrs: tuple[float, ...]
    seeds: tuple[int, ...]


def add_flags(parser: argparse.ArgumentParser, defaults: Hyperparameters, lrs: Sequence[float], seeds: int) -> None:
    """Declare ``--config``, the grid's flags and one flag for each hyperparameter."""
    group = parser.add_argument_group("hyperparameters")
    group.add_argument("--config", type=Path, metavar="YAML", help="file of hyperparameters, by the names of the flags below "
                       "with _ for -; under 'tasks', by the name of a task, those that are its own")  # fmt: skip
    group.add_argument("--lrs", type=_floats, metavar="LR[,LR…]",
                       help=f"learning rates to try (default: {','.join(map(str, lrs))})")  # fmt: skip
    group.add_argument("--seeds", type=int, metavar="N", help=f"seeds 1 … N of each learning rate (default: {seeds})")
    for hyperparameter in dataclasses.fields(Hyperparameters):
        default = getattr(defaults, hyperparameter.name)
        group.add_argument(
            f"--{hyperparameter.name.replace('_', '-')}", type=type(default), metavar=hyperparameter.metadata["metavar"],
            help=f"{hyperparameter.metadata['help']} (default: {default})",
        )  # fmt: skip


def resolve(
    args: argparse.Namespace, task: str, defaults: Hyperparameters, lrs: Sequence[float], seeds: int
) -> tuple[Hyperparameters, Grid]:
    """The hyperparameters and the grid of one task.

    Raises:
        ValueError: an unknown name or a bad value; the message names the file or the flag.
    """
    names = [f.name for f in dataclasses.fields(Hyperparameters)]
    values: dict[str, Any] = {**dataclasses.asdict(defaults), "lrs": lrs, "seeds": seeds}
    if args.config:
        values |= _read(args.config, task, list(values))
    values |= {name: value for name in values if (value := getattr(args, name)) is not None}
    try:
        found_lrs = tuple(float(lr) for lr in values["lrs"])
    except (TypeError, ValueError):
        raise ValueError(f"{args.config}: lrs must be a list of numbers, got {values['lrs']!r}") from None
    if not found_lrs or min(found_lrs) <= 0:
        raise ValueError(f"--lrs must be numbers above 0, got {list(found_lrs)}")
    if not isinstance(values["seeds"], int) or values["seeds"] < 1:
        raise ValueError(f"--seeds must be a whole number from 1 on, got {values['seeds']!r}")
    try:
        hyperparameters = Hyperparameters(**{name: values[name] for name in names})
    except ValueError as error:
        raise ValueError(f"hyperparameters of {task}: {error}") from None
    return hyperparameters, Grid(found_lrs, tuple(range(1, values["seeds"] + 1)))


def _read(path: Path, task: str, names: Sequence[str]) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"--config {path} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict) or not isinstance(content.get("tasks", {}), dict):
        raise ValueError(f"--config {path} must map names of hyperparameters, and of tasks under 'tasks', to values")
    own = content.pop("tasks", {}).get(task) or {}
    for section in (content, own):
        _refuse_unknown(path, section, names)
    return {**content, **own}


def _refuse_unknown(path: Path, section: Mapping[str, Any], names: Sequence[str]) -> None:
    for name in section:
        if name not in names:
            near = difflib.get_close_matches(str(name), names, n=1)
            raise ValueError(
                f"--config {path} names {name!r}, which is no hyperparameter"
                f"{f': did you mean {near[0]}?' if near else ''}. Known are {', '.join(names)}, and tasks."
            )


def _floats(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))
