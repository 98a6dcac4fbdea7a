"""Fine-tuning one checkpoint on one prepared data set: the runs of a grid that differ in learning rate and seed alone."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from ..models.checkpoint import explained
from .grid import Cell
from .hyperparameters import Grid, Hyperparameters
from .options import model_changes
from .pretrained import Pretrained
from .training import Progress, build, configure, train

START = "start"


def _start_of(out: Path, task: str) -> Path:
    return out / START / f"{task}.pt"


def remove_starts(out: Path, tasks: Iterable[str]) -> None:
    """Remove what the runs of these tasks started from; it is made anew where more runs follow."""
    for task in tasks:
        _start_of(out, task).unlink(missing_ok=True)
    with suppress(OSError):  # there is none, or something else is in it
        (out / START).rmdir()


class FineTuning:
    """How the runs of one task start and are trained.

    Args:
        name: of the task.
        args: the command's flags.
        pretrained: what is fine-tuned.
        settings: hyperparameters.
        arguments: fairseq-train's flags that the task decides: its data, task, criterion and how checkpoints are chosen.
        examples: the number of training examples.
    """

    def __init__(
        self,
        name: str,
        args: argparse.Namespace,
        pretrained: Pretrained,
        settings: Hyperparameters,
        arguments: list[str],
        examples: int,
    ) -> None:
        self.name = name
        self._args = args
        self._pretrained = pretrained
        self._settings = settings
        self._arguments = arguments
        self._examples = examples

    def cells(self, grid: Grid, **configuration: Any) -> list[Cell]:
        """One run for each learning rate and seed; ``configuration`` is what else of the task decides the result."""
        complete = {
            "checkpoint": None if self._args.from_scratch else self._pretrained.digest,
            "arch": self._pretrained.arch,
            **configuration,
            "train_flags": self._args.train_flags,
            **dataclasses.asdict(self._settings),
        }
        return [Cell(self.name, lr, seed, complete) for lr in grid.lrs for seed in grid.seeds]

    def train(self, cell: Cell, folder: Path, progress: Progress) -> None:
        """Train one run; its checkpoints and its log come into ``folder``."""
        start = [] if self._start is None else ["--finetune-from-model", str(self._start)]
        schedule = self._settings.arguments(cell.lr, cell.seed, self._examples)
        train(self._configure(folder, [*schedule, *start]), folder / "train.log", progress)

    @property
    def parameters(self) -> str:
        """Which parameters the runs start with."""
        return self._report[1]

    @property
    def _start(self) -> Path | None:
        return self._report[0]

    @cached_property
    def _report(self) -> tuple[Path | None, str]:
        """The file that every run starts from, written once, and what it holds."""
        if self._args.from_scratch:
            return None, "from scratch: every parameter is new"
        path = _start_of(self._args.out, self.name)
        path.parent.mkdir(exist_ok=True)
        with explained(self._pretrained.path):
            model = build(self._configure(path.parent, self._settings.arguments(lr=1e-5, seed=1, examples=self._examples)))
        report = str(self._pretrained.save_for(model, path, self._args.allow_partial))
        print(f"{self.name}: {report}", file=sys.stderr)
        return path, report

    def _configure(self, save_dir: Path, arguments: list[str]) -> DictConfig:
        model = self._pretrained.model_options(**model_changes(self._settings))
        common = [
            *("--save-dir", str(save_dir), "--no-epoch-checkpoints", "--max-positions", str(model.max_positions)),
            *("--log-format", "json", "--log-interval", "20", "--num-workers", "0"),
        ]
        return configure(self._pretrained.arch, model, [*self._arguments, *common, *arguments], self._args.train_flags)
