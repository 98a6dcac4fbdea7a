"""The runs of one GLUE task: its examples as sequences, its data-bin, how a model is scored, and the leaderboard's files."""

from __future__ import annotations

import shutil
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from fairseq.data import Dictionary
from fairseq.models import BaseFairseqModel
from torch import Tensor

from ..errors import InputError
from ..files import atomic_write
from ..ownership import own
from ..runs.grid import Cell
from ..runs.record import digests
from ..vocabulary import Vocabulary
from .fairseq_run import infer
from .glue_data import SCALE, Example, GlueTask, TaskFiles, read
from .grid_report import best_run
from .tuning import TaskRuns, max_length, write_items

if TYPE_CHECKING:
    from ..models.checkpoint import Checkpoint
    from .glue import GlueOptions
    from .hyperparameters import Settings

HEAD = "sentence_classification_head"
Measure = Callable[[np.ndarray, np.ndarray], float]
"""(targets, predictions), each (N,) -> score, 1 at best."""


class GlueRuns(TaskRuns):
    """One task's runs. A run is scored at the epoch with the best validation accuracy (STS-B: loss), as in fairseq's recipe.

    Args:
        task: the task.
        files: its files.
        pretrained, settings, options: as of :class:`.TaskRuns`.

    Raises:
        InputError: the flags do not fit the checkpoint.
    """

    scored = "checkpoint_best.pt"

    def __init__(
        self, task: GlueTask, files: TaskFiles, pretrained: Checkpoint, settings: Settings, options: GlueOptions
    ) -> None:
        super().__init__(task.name, pretrained, settings, options)
        self.task, self.files = task, files
        self.length = max_length(options.max_length, pretrained, least=2 * len(task.columns) + 2)
        self.encoder = Encoder(pretrained.vocabulary, self.length)
        self.outputs = [f"{test}.tsv" for test in files.tests]

    @property
    def arguments(self) -> list[str]:
        regression = ["--regression-target", "--best-checkpoint-metric", "loss"]
        classification = ["--best-checkpoint-metric", "accuracy", "--maximize-best-checkpoint-metric"]
        return [
            *(str(self.data), "--task", "sentence_prediction_by_length", "--criterion", "sentence_prediction"),
            *("--num-classes", str(len(self.task.labels) or 1), "--init-token", "0", "--separator-token", "2"),
            *("--classification-head-name", HEAD),
            *(regression if self.task.regression else classification),
        ]

    def configuration(self) -> dict[str, Any]:
        return {"data": digests({"train": self.files.train, **self.files.dev}), "max_length": self.length}

    def prepare(self) -> None:
        for labelled, files in ((True, self.files.dev), (False, self.files.tests)):
            for path in files.values():
                deque(read(path, self.task, labelled), maxlen=0)
        super().prepare()

    def write_data(self) -> int:
        train = write_split(self.task, read(self.files.train, self.task, skip_bad=True), self.data, "train", self.encoder)
        selecting = next(iter(self.files.dev.values()))
        write_split(self.task, read(selecting, self.task), self.data, "valid", self.encoder)
        if self.encoder.cut:
            print(f"{self.name}: {self.encoder.cut} sequences cut to the length limit", file=sys.stderr)
        return train

    def score(self, model: BaseFairseqModel, folder: Path) -> dict[str, Any]:
        outcome: dict[str, Any] = {"scores": {}, "majority": {}, "constant": []}
        for name, path in self.files.dev.items():
            examples = list(read(path, self.task))
            targets, predictions = np.array([example.target for example in examples]), self._predict(model, examples)
            frequent = 0.0 if self.task.regression else np.bincount(targets).argmax()
            outcome["scores"][name] = score(self.task, targets, predictions)
            outcome["majority"][name] = score(self.task, targets, np.full(len(targets), frequent))
            if len(np.unique(predictions)) == 1:
                outcome["constant"].append(name)
        for name, path in self.files.tests.items():
            predictions = self._predict(model, read(path, self.task, labelled=False))
            write_predictions(self.task, predictions, folder / f"{name}.tsv")
        return outcome

    def _predict(self, model: BaseFairseqModel, examples: Iterable[Example]) -> np.ndarray:
        """(N,): the classes, or the scores / 5."""

        def forward(tokens: Tensor) -> Tensor:
            return model(tokens, features_only=True, classification_head_name=HEAD)[0]

        sequences = [self.encoder.sequence(example.texts) for example in examples]
        outputs = np.stack(infer(model, sequences, forward, self.encoder.vocabulary.dictionary.pad()))
        return outputs[:, 0] if self.task.regression else outputs.argmax(1)

    def finish(self, results: Sequence[Mapping[str, Any]]) -> None:
        """Copy the best run's predictions to the folder for submission; if every run diverged, report that there are none."""
        best, out = best_run(results), self.options.out
        for name in self.outputs:
            target = out / "submission" / name
            if best is None:
                print(f"{target} is not written, because every run diverged", file=sys.stderr)
            else:
                target.parent.mkdir(exist_ok=True)
                shutil.copyfile(Cell({key: best[key] for key in ("task", "lr", "seed")}, {}).folder(out) / name, own(target))


class Encoder:
    """Sentences of one task to ids, cut to length.

    Args:
        vocabulary: the checkpoint's.
        max_length: tokens of a whole sequence, with ``<s>`` and all ``</s>``.

    Attributes:
        cut: how many sequences were too long.
    """

    def __init__(self, vocabulary: Vocabulary, max_length: int) -> None:
        self.vocabulary = vocabulary
        self._max_length = max_length
        self.cut = 0

    def parts(self, texts: tuple[str, ...]) -> list[np.ndarray]:
        """Each sentence's ids, closed by ``</s>``; the longer one is cut first."""
        return [np.append(ids, self.vocabulary.dictionary.eos()) for ids in self._pieces(texts)]

    def sequence(self, texts: tuple[str, ...]) -> np.ndarray:
        """The whole sequence as a model reads it: ``<s> a </s>`` or ``<s> a </s> </s> b </s>``."""
        return self.vocabulary.join(*self._pieces(texts))

    def _pieces(self, texts: tuple[str, ...]) -> list[np.ndarray]:
        pieces = [self.vocabulary.encode(text).ids for text in texts]
        room = self._max_length - 2 * len(texts)  # <s> a </s>, <s> a </s> </s> b </s>
        if sum(map(len, pieces)) <= room:
            return pieces
        self.cut += 1
        return [ids[:length] for ids, length in zip(pieces, shares([len(ids) for ids in pieces], room), strict=True)]


def shares(lengths: list[int], room: int) -> list[int]:
    """The lengths, shortened to ``room`` in total: the longest is shortened first."""
    left: dict[int, int] = {}
    shortest_first = sorted(range(len(lengths)), key=lengths.__getitem__)
    for done, part in enumerate(shortest_first):
        left[part] = min(lengths[part], room // (len(lengths) - done))
        room -= left[part]
    return [left[part] for part in range(len(lengths))]


def write_split(task: GlueTask, examples: Iterable[Example], folder: Path, split: str, encoder: Encoder) -> int:
    """Write one split in the form that ``sentence_prediction`` reads; returns the number of examples.

    ``FOLDER/input0``, and ``input1`` for pairs, hold one sentence per item, closed by ``</s>``; ``label`` the class (or, for a
    regression, one number per line in ``SPLIT.label``). The task itself puts ``<s>`` first and a second ``</s>`` between.
    """
    names = Dictionary()
    for name in task.names:
        names.add_symbol(name)
    texts: list[list[np.ndarray]] = [[] for _ in task.columns]
    targets = []
    for example in examples:
        for items, ids in zip(texts, encoder.parts(example.texts), strict=True):
            items.append(ids.astype(np.int32))
        targets.append(example.target)
    for i, items in enumerate(texts):
        write_items(folder / f"input{i}", split, encoder.vocabulary.dictionary, items)
    write_items(folder / "label", split, names, () if task.regression else ([names.nspecial + target] for target in targets))
    if task.regression:
        with atomic_write(own(folder / "label" / f"{split}.label")) as stream:
            stream.writelines(f"{target}\n" for target in targets)
    return len(targets)


@cache
def measures() -> dict[str, Measure]:
    """Every measure by its name. f1 is of class 1; a correlation with a constant is 0.

    Raises:
        InputError: scikit-learn or scipy is not installed.
    """
    try:
        from scipy import stats
        from sklearn import metrics
    except ModuleNotFoundError as error:
        raise InputError("scikit-learn and scipy compute GLUE's metrics: pip install -e '.[glue]'") from error

    def correlation(measure: Callable[[np.ndarray, np.ndarray], tuple[float, float]]) -> Measure:
        def correlate(targets: np.ndarray, predictions: np.ndarray) -> float:
            with warnings.catch_warnings():  # of constant predictions
                warnings.simplefilter("ignore", stats.ConstantInputWarning)
                return float(np.nan_to_num(measure(targets, predictions)[0]))

        return correlate

    return {
        "accuracy": metrics.accuracy_score,
        "f1": lambda targets, predictions: metrics.f1_score(targets, predictions, zero_division=0.0),
        "matthews": metrics.matthews_corrcoef,
        "pearson": correlation(stats.pearsonr),
        "spearman": correlation(stats.spearmanr),
    }


def score(task: GlueTask, targets: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """The task's metrics in per cent."""
    return {name: 100 * float(measures()[name](targets, predictions)) for name in task.metrics}


def write_predictions(task: GlueTask, predictions: np.ndarray, path: Path) -> None:
    """Write classes (or scores / 5) as labels (or scores from 0 to 5), numbered from 0."""
    with atomic_write(path) as stream:
        stream.write("index\tprediction\n")
        for index, prediction in enumerate(predictions.tolist()):
            label = f"{SCALE * min(max(prediction, 0.0), 1.0):.3f}" if task.regression else task.labels[prediction]
            stream.write(f"{index}\t{label}\n")
