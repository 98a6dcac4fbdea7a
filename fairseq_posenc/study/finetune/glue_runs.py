"""The runs of one GLUE task: its examples as sequences, its data-bin, and how a model is scored."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from ...base.errors import InputError
from ...base.files import atomic_write
from ...plugin.checkpoint.state_dict import SPANS
from ...text.vocabulary import Dictionary, Vocabulary
from ..measure.inference import infer
from .glue_data import Example, GlueTask, read
from .tuning import TaskRuns, max_length, write_items

if TYPE_CHECKING:
    from ...plugin.checkpoint.checkpoint import Checkpoint
    from .glue import Options
    from .hyperparameters import Settings


class GlueRuns(TaskRuns):
    """One task's runs. A run is scored at the epoch with the best validation accuracy (STS-B: loss), as in fairseq's recipe.

    Of epochs that are equal to 0.1% (0.001), as fairseq logs them, it is the last. The head is named after the task, so that
    fairseq leaves out, and logs, that of a checkpoint that was tuned on another one.

    Raises:
        InputError: the flags do not fit the checkpoint.
    """

    scored = "checkpoint_best.pt"

    def __init__(
        self, task: GlueTask, files: dict[str, Path], pretrained: Checkpoint, settings: Settings, options: Options
    ) -> None:
        super().__init__(task.name, files, pretrained, settings, options)
        self.task = task
        if f"{SPANS}weight" in pretrained.state and not options.from_scratch:
            raise InputError(f"--checkpoint {pretrained.path} was tuned on SQuAD: name the one that it was tuned from")
        self.length = max_length(options.max_length, pretrained, minimum=2 * len(task.columns) + 2)

    @property
    def arguments(self) -> list[str]:
        regression = ["--regression-target", "--best-checkpoint-metric", "loss"]
        classification = ["--best-checkpoint-metric", "accuracy", "--maximize-best-checkpoint-metric"]
        return [
            *(str(self.data), "--task", "sentence_prediction_by_length", "--criterion", "sentence_prediction"),
            *("--num-classes", str(len(self.task.labels) or 1), "--init-token", "0", "--separator-token", "2"),
            *("--classification-head-name", self.name),
            *(regression if self.task.regression else classification),
        ]

    def configuration(self) -> dict[str, Any]:
        return {"max_length": self.length}

    def write_data(self) -> int:
        valid, *_ = [[*read(self.files[name], self.task)] for name in self.task.dev]  # a bad row of any is found now
        vocabulary, train = self.pretrained.vocabulary, read(self.files["train"], self.task, skip_bad=True)
        write_split(self.task, valid, self.data, "valid", vocabulary, self.length)
        return write_split(self.task, train, self.data, "train", vocabulary, self.length)

    def score(self, model: nn.Module, folder: Path) -> dict[str, Any]:
        outcome: dict[str, Any] = {"scores": {}, "majority": {}, "constant": []}
        for name in self.task.dev:
            examples = list(read(self.files[name], self.task))
            targets, predictions = np.array([example.target for example in examples]), self._predict(model, examples)
            frequent = 0.0 if self.task.regression else np.bincount(targets).argmax()
            outcome["scores"][name] = score(self.task, targets, predictions)
            outcome["majority"][name] = score(self.task, targets, np.full(len(targets), frequent))
            if len(np.unique(predictions)) == 1:
                outcome["constant"].append(name)
        return outcome

    def _predict(self, model: nn.Module, examples: Iterable[Example]) -> np.ndarray:
        """Return (N,): the classes, or the scores / 5."""

        def forward(tokens: Tensor) -> Tensor:
            return model(tokens, head=self.name)

        vocabulary = self.pretrained.vocabulary
        sequences = [vocabulary.join(*encode(vocabulary, example.texts, self.length)) for example in examples]
        outputs = np.stack(infer(model, sequences, forward, vocabulary.dictionary.pad()))
        return outputs[:, 0] if self.task.regression else outputs.argmax(1)


def encode(vocabulary: Vocabulary, texts: tuple[str, ...], max_length: int) -> list[np.ndarray]:
    """Return the ids of each sentence of an example, cut so that the joined sequence has at most ``max_length`` tokens."""
    sentences = [vocabulary.encode(text).ids for text in texts]
    lengths = shortened([len(ids) for ids in sentences], max_length - 2 * len(texts))
    return [ids[:length] for ids, length in zip(sentences, lengths, strict=True)]


def shortened(lengths: list[int], room: int) -> list[int]:
    """Return the lengths, shortened to ``room`` in total, always by one of the longest, and of these one that was shortest."""
    left = lengths.copy()
    while sum(left) > room:
        left[min(range(len(left)), key=lambda i: (-left[i], lengths[i]))] -= 1
    return left


def write_split(
    task: GlueTask, examples: Iterable[Example], folder: Path, split: str, vocabulary: Vocabulary, max_length: int
) -> int:
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
        for items, ids in zip(texts, encode(vocabulary, example.texts, max_length), strict=True):
            items.append(np.append(ids, vocabulary.dictionary.eos()).astype(np.int32))
        targets.append(example.target)
    for i, items in enumerate(texts):
        write_items(folder / f"input{i}", split, vocabulary.dictionary, items)
    write_items(folder / "label", split, names, () if task.regression else ([names.nspecial + int(target)] for target in targets))
    if task.regression:
        with atomic_write(folder / "label" / f"{split}.label") as stream:
            stream.writelines(f"{target}\n" for target in targets)
    full = sum(sum(map(len, parts)) + len(parts) == max_length for parts in zip(*texts, strict=True))
    if full:
        print(f"{task.name}: {full} sequences of {split} have {max_length} tokens; longer ones are cut", file=sys.stderr)
    return len(targets)


def _correlation(measure: Callable[..., Any], targets: np.ndarray, predictions: np.ndarray) -> float:
    return float(measure(targets, predictions)[0]) if min(np.ptp(targets), np.ptp(predictions)) > 0 else 0.0


def score(task: GlueTask, targets: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Return the task's metrics in per cent. f1 is of class 1; a correlation with a constant, or of one row, is 0."""
    from scipy import stats
    from sklearn import metrics

    measures: dict[str, Callable[..., Any]] = {
        "accuracy": metrics.accuracy_score,
        "f1": partial(metrics.f1_score, zero_division=0.0),
        "matthews": metrics.matthews_corrcoef,
        "pearson": partial(_correlation, stats.pearsonr),
        "spearman": partial(_correlation, stats.spearmanr),
    }
    return {name: 100 * float(measures[name](targets, predictions)) for name in task.metrics}
