"""The runs of one GLUE task: what they are made from, and how one is scored."""

from __future__ import annotations

import argparse
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from ...files import sha256
from ..grid import Cell
from ..hyperparameters import Hyperparameters, resolve
from ..inference import infer
from ..options import max_length
from ..pretrained import Pretrained
from ..training import Progress, load
from ..tuning import FineTuning
from .metrics import score
from .prepare import Encoder, prepare
from .submission import prediction_file, write_predictions
from .tasks import OPTIONAL_TESTS, GlueTask
from .tsv import Example, read

DEFAULTS, LRS, SEEDS = Hyperparameters(), (2e-5, 3e-5, 4e-5), 5
HEAD = "sentence_classification_head"


class TaskRuns:
    """One task's data, grid and hyperparameters, prepared for training.

    Args:
        task: the task.
        args: the command's flags.
        pretrained: what is fine-tuned.

    Attributes:
        tests: the test sets to be labelled, by name.
        cells: the grid.

    Raises:
        ValueError, OSError: the files, the flags, or the checkpoint's fit to them are wrong.
    """

    def __init__(self, task: GlueTask, args: argparse.Namespace, pretrained: Pretrained) -> None:
        self.task = task
        self._args = args
        self._pretrained = pretrained
        settings, grid = resolve(args, task.name, DEFAULTS, LRS, SEEDS)
        length = max_length(args.max_length, pretrained, least=2 * len(task.columns) + 2)
        self._encoder = Encoder(pretrained.vocabulary, length)
        folder, data = args.data / task.name, args.out / "data" / task.name
        self._dev = {name: folder / file for name, file in task.dev.items()}
        self.tests = _existing_tests(task, folder) if args.predict else {}
        for labelled, files in ((True, self._dev), (False, self.tests)):  # before hours of training
            for path in files.values():
                next(read(path, task, labelled, args.skip_bad))
        splits = {"train": folder / "train.tsv", "valid": next(iter(self._dev.values()))}
        identity = {"vocabulary": pretrained.vocabulary.digests(), "max_length": length}
        examples = prepare(task, splits, data, self._encoder, identity, args.skip_bad)
        self._tuning = FineTuning(task.name, args, pretrained, settings, _arguments(task, data), examples)
        files = {"train": splits["train"], **self._dev}
        self.cells = self._tuning.cells(
            grid, data={name: sha256(path) for name, path in files.items()}, max_length=length, select=args.select
        )

    def run(self, cell: Cell, folder: Path, progress: Progress) -> dict[str, Any]:
        """Train and score one cell; returns its scores, and which parameters it started from."""
        self._tuning.train(cell, folder, progress)
        progress("scoring")
        model = load(folder / f"checkpoint_{self._args.select}.pt")
        scores = {
            name: score(self.task, np.array([example.target for example in examples]), self._predict(model, sequences))
            for name, (examples, sequences) in self._dev_sets.items()
        }
        for name, path in self.tests.items():
            sequences = [self._encoder.sequence(example.texts) for example in read(path, self.task, labelled=False)]
            write_predictions(self.task, self._predict(model, sequences), folder / prediction_file(name))
        return {"scores": scores, "parameters": self._tuning.parameters}

    @cached_property
    def _dev_sets(self) -> dict[str, tuple[list[Example], list[np.ndarray]]]:
        """Each development set's examples and their sequences."""
        sets = {name: list(read(path, self.task, skip_bad=self._args.skip_bad)) for name, path in self._dev.items()}
        return {
            name: (examples, [self._encoder.sequence(example.texts) for example in examples]) for name, examples in sets.items()
        }

    def _predict(self, model: nn.Module, sequences: list[np.ndarray]) -> np.ndarray:
        """(N,): the classes, or the scores / 5."""

        def forward(tokens: Tensor) -> Tensor:
            return model(tokens, features_only=True, classification_head_name=HEAD)[0]

        outputs = np.stack(infer(model, sequences, forward, self._pretrained.vocabulary.dictionary.pad()))
        return outputs[:, 0] if self.task.regression else outputs.argmax(1)


def _existing_tests(task: GlueTask, folder: Path) -> dict[str, Path]:
    tests = {name: folder / file for name, file in task.test.items()}
    return {name: path for name, path in tests.items() if path.exists() or name not in OPTIONAL_TESTS}


def _arguments(task: GlueTask, data: Path) -> list[str]:
    """fairseq-train's flags that a task decides."""
    regression = ["--regression-target", "--best-checkpoint-metric", "loss"]
    classification = ["--best-checkpoint-metric", "accuracy", "--maximize-best-checkpoint-metric"]
    return [
        *(str(data), "--task", "sentence_prediction_by_length", "--criterion", "sentence_prediction"),
        *("--num-classes", str(len(task.labels) or 1), "--init-token", "0", "--separator-token", "2"),
        *("--classification-head-name", HEAD),
        *(regression if task.regression else classification),
    ]
