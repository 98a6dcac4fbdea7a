"""The runs of fine-tuning for both benchmarks: how they are trained, continued, scored and reported."""

import shlex
import sys
from abc import ABC, abstractmethod
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.data import indexed_dataset
from fairseq.models import ARCH_MODEL_REGISTRY
from torch import nn

from ...base.commands import show
from ...base.errors import InputError, flag_value
from ...base.record import Recorded, digests, read_object, write_json
from ...plugin.checkpoint.checkpoint import Checkpoint
from ...plugin.checkpoint.trust import user_dir
from ...plugin.models.building import parse
from ...text.vocabulary import Dictionary, fingerprint
from ..engine.grid import Cell, Progress, finished
from ..engine.study import Study
from .grid_report import report
from .hyperparameters import Settings, SharedOptions

CHECKPOINTS = ("checkpoint_best.pt", "checkpoint_last.pt", "crash.pt")
FIXED = frozenset(
    shlex.split("""
    --arch -a --finetune-from-model --restore-file --max-tokens --max-sentences --update-freq --max-update --train-subset
    --valid-subset --maximize-best-checkpoint-metric --disable-validation --validate-interval --save-interval --regression-target
    --checkpoint-suffix --no-save --no-last-checkpoints
    """)
)
"""fairseq-train's flags on whose defaults the results rest, in addition to those of the model, the task and its settings."""
UNDECIDED = ("--log-format", "json", "--log-interval", "20", "--num-workers", "0", "--find-unused-parameters")
"""Flags that decide no result. Heads that fine-tuning does not use, such as the language model's, get no gradients."""
PREPARED, FORMAT = "prepared.json", 1


class Scores(Recorded):
    """The outcome of a run: see :meth:`TaskRuns.score`."""

    scores: dict[str, dict[str, float]]
    majority: dict[str, dict[str, float]]
    constant: list[str]


def write_items(folder: Path, split: str, dictionary: Dictionary, items: Iterable[np.ndarray | list[int]]) -> None:
    """Write one split of a data-bin, and its dictionary; each item is (n,) ids."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "dict.txt").write_text(dictionary.text(), "utf-8")
    dtype = indexed_dataset.best_fitting_int_dtype(len(dictionary))
    builder = indexed_dataset.MMapIndexedDatasetBuilder(str(folder / f"{split}.bin"), dtype=dtype)
    for item in items:
        builder.add_item(torch.as_tensor(item))
    builder.finalize(str(folder / f"{split}.idx"))


class TaskRuns(ABC):
    """The runs of one task, which differ only in learning rate and seed; ``data`` is the folder of its data-bin.

    Args:
        files: of the data set, by the names of their splits.
    """

    scored = "checkpoint_last.pt"  # the checkpoint that is scored
    outputs: Sequence[str] = ()  # names of the files that score() writes into the folder of a run

    def __init__(
        self, name: str, files: dict[str, Path], pretrained: Checkpoint, settings: Settings, options: SharedOptions
    ) -> None:
        self.name, self.files, self.pretrained, self.settings, self.options = name, files, pretrained, settings, options
        self.data = options.out / "data" / name

    @property
    @abstractmethod
    def arguments(self) -> list[str]:
        """fairseq-train's flags that the task decides: its data, task, criterion and how checkpoints are chosen."""

    @abstractmethod
    def configuration(self) -> dict[str, Any]:
        """Return everything about the task, besides its files, that decides a result, in JSON's types."""

    @abstractmethod
    def write_data(self) -> int:
        """Write the data-bin; returns the number of training examples."""

    @abstractmethod
    def score(self, model: nn.Module, folder: Path) -> dict[str, Any]:
        """Return ``scores`` by evaluation set and metric, ``majority`` scores, and the sets with ``constant`` answers."""

    @cached_property
    def cells(self) -> list[Cell]:
        """One run per learning rate and seed; grids are comparable whose configurations differ in ``model`` alone."""
        pretrained = self.pretrained
        configuration = {
            "model": {
                "checkpoint": None if self.options.from_scratch else pretrained.digest,
                "arch": pretrained.arch,
                "positions": pretrained.positions,
                **{name: getattr(pretrained.config, name) for name in ("position_sampling", "position_evaluation")},
            },
            "vocabulary": fingerprint(pretrained.vocabulary.dictionary, pretrained.vocabulary.folder),
            "data": digests(self.files),
            **self.configuration(),
            "train_flags": self.options.train_flags,
            **{name: value for name, value in vars(self.settings).items() if name not in ("lrs", "seeds")},  # all but the grid
        }
        until = ("update", self.settings.epochs)
        return [
            Cell({"task": self.name, "lr": lr, "seed": seed}, configuration, (), until, self.outputs, CHECKPOINTS, outcome=Scores)
            for lr in self.settings.lrs
            for seed in range(1, self.settings.seeds + 1)
        ]

    def check(self) -> None:
        """Raise InputError if fairseq-train rejects --train-flags, or they set something that the task or the grid decides."""
        flags = self._flags(self.options.out, lr=1e-5, seed=1, examples=1, processes=1)
        decided = FIXED | {*flags, *(name for action in self._model_actions for name in action.option_strings)}
        try:
            words = shlex.split(self.options.train_flags)
            if conflicts := [flag for word in words if (flag := word.partition("=")[0]).startswith("-") and flag in decided]:
                raise InputError(f"{conflicts[0]} is decided by this command: leave it out there")
            devices = max(1, torch.cuda.device_count() // self.options.jobs)
            cfg = parse([*flags, "--distributed-world-size", str(devices), *words])
        except Exception as error:  # of any kind, as fairseq evaluates some values as Python
            if not self.options.train_flags:
                raise
            raise InputError(f"--train-flags {self.options.train_flags!r} cannot be used: {error}") from None
        self._processes = cfg.distributed_training.distributed_world_size
        self.settings.arguments(lr=1e-5, seed=1, examples=1, processes=self._processes)

    def prepare(self) -> None:
        """Read all of the data, and write the data-bin unless that is done.

        Raises:
            InputError: a file cannot be read.
        """
        identity = {name: self.cells[0].configuration[name] for name in ("vocabulary", "data", *self.configuration())}
        done = read_object(self.data / PREPARED, FORMAT)
        if done is None or done["identity"] != identity:
            (self.data / PREPARED).unlink(missing_ok=True)
            examples = self.write_data()
            write_json(self.data / PREPARED, {"format": FORMAT, "identity": identity, "examples": examples})

    def command(self, cell: Cell) -> list[str]:
        """Return the command that trains a run on the data that :meth:`prepare` has written."""
        prepared, key = read_object(self.data / PREPARED, FORMAT) or {}, dict[str, Any](cell.key)
        folder = cell.folder(self.options.out)
        flags = self._flags(folder, key["lr"], key["seed"], prepared["examples"], self._processes)
        flags += [*UNDECIDED, "--distributed-world-size", str(self._processes)]
        flags += [] if torch.cuda.is_available() else ["--cpu"]
        return [sys.executable, "-m", "fairseq_cli.train", *user_dir(), *flags, *shlex.split(self.options.train_flags)]

    def run(self, cell: Cell, folder: Path, progress: Progress) -> dict[str, Any]:
        """Score the model that the command of a run has left in its folder."""
        progress("scoring")
        return self.score(Checkpoint(folder / self.scored).model, folder)

    @cached_property
    def _model_actions(self) -> list[Any]:
        """The flags of the model's options."""
        parser = ArgumentParser(add_help=False)
        ARCH_MODEL_REGISTRY[self.pretrained.arch].add_args(parser)
        return parser._actions

    @cached_property
    def _model_flags(self) -> list[str]:
        """The model's options as flags; those of pretraining alone have their defaults."""
        dropout = {"dropout": self.settings.dropout, "attention_dropout": self.settings.attention_dropout}
        dropout |= dict.fromkeys(("pooler_dropout", "activation_dropout", "encoder_layerdrop"), 0.0)
        options = Namespace(**{**vars(self.pretrained.options), **dropout, "compile": False, "attention_backend": "auto"})
        flags = ["--arch", self.pretrained.arch]
        for action in self._model_actions:
            value = getattr(options, action.dest, None)
            if action.nargs == 0:
                flags += [action.option_strings[0]] if value is action.const else []
            elif value is not None:
                flags += [action.option_strings[0], flag_value(value)]
        return flags

    def _flags(self, save_dir: Path, lr: float, seed: int, examples: int, processes: int) -> list[str]:
        """Return fairseq-train's flags that decide a result."""
        return [
            *self.arguments,
            *self._model_flags,
            *("--save-dir", str(save_dir), "--no-epoch-checkpoints"),
            *self.settings.arguments(lr, seed, examples, processes),
            *([] if self.options.from_scratch else ["--finetune-from-model", str(self.options.checkpoint)]),
        ]


def max_length(length: int | None, pretrained: Checkpoint, minimum: int, default: int = 512) -> int:
    """Return the number of tokens per sequence: what is given, or the length of pretraining, but at most ``default``.

    The default is the same for every scheme, although some would take more, so that runs of two schemes are comparable.

    Raises:
        InputError: the model has fewer positions, or there is no room for text; the message names the flag.
    """
    length = min(default, pretrained.length) if length is None else length
    if length > pretrained.max_length:
        sampling = pretrained.config.position_sampling
        limits = f"--positions {pretrained.positions}" + (f" with --position-sampling {sampling}" if sampling else "")
        raise InputError(
            f"--max-length {length}: {pretrained.path} takes at most {pretrained.max_length} tokens, by its {limits}. Name a "
            "lower length, or use a checkpoint with an inductive scheme whose positions are not sampled, which takes any length."
        )
    if length < minimum:
        raise InputError(f"--max-length {length}: at least {minimum} tokens are needed")
    return length


def fine_tune(command: str, tasks: Sequence[TaskRuns], options: SharedOptions) -> None:
    """Run what is not done yet, write the report into ``--out``, and print it. Bad input is rejected before training.

    Raises:
        InputError, OSError: data cannot be read, or as :meth:`.Study.open` and :meth:`.Study.run`.
    """
    vocabulary, out, keep = tasks[0].pretrained.vocabulary.folder, options.out, options.keep_checkpoints
    read = [("--checkpoint", options.checkpoint), ("--data-bin", vocabulary / "dict.txt")]
    read += [("--data", path) for task in tasks for path in task.files.values()]
    for task in tasks:
        task.check()
    with Study.open(out, command, read) as study:
        waiting = {cell: task for task in tasks for cell in task.cells if finished(cell, out) is None}
        for task in dict.fromkeys(waiting.values()):
            task.prepare()
        commands = {cell: task.command(cell) for cell, task in waiting.items()}
        task_of = {replace(cell, command=commands.get(cell, ())): task for task in tasks for cell in task.cells}
        results = study.run(
            [*task_of], lambda cell, folder, tell: task_of[cell].run(cell, folder, tell), jobs=options.jobs, keep_temporary=keep
        )
        if results:
            show(report(results).write(study.out))
