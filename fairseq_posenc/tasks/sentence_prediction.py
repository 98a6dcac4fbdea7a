"""fairseq's ``sentence_prediction`` with batches of sentences of like lengths.

fairseq's own draws batches at random, so that most of a batch is padding. Rows are cut to length when they are prepared, so
this task imposes no limit of its own; rows beyond the model's are refused.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from fairseq.data import FairseqDataset, SortDataset, data_utils
from fairseq.tasks import register_task
from fairseq.tasks.sentence_prediction import SentencePredictionConfig, SentencePredictionTask

from .packing import HELP, PackingTask

WIDTH = 8  # tokens; lengths within one stretch of this count as like, which keeps some chance in the batches


def order_by_length(sizes: np.ndarray, seed: int) -> list[np.ndarray]:
    """Sort keys for ``SortDataset``: stretches of lengths, and a permutation within each."""
    with data_utils.numpy_seed(seed):
        permutation = np.random.permutation(len(sizes))
    return [permutation, sizes // WIDTH]


@dataclass
class SentencePredictionByLengthConfig(SentencePredictionConfig):
    """Options of the task."""

    pack_examples: int = field(default=0, metadata={"help": HELP})


@register_task("sentence_prediction_by_length", dataclass=SentencePredictionByLengthConfig)
class SentencePredictionByLength(PackingTask, SentencePredictionTask):
    """Classification of, or regression on, sentences and pairs of sentences."""

    def state_dict(self) -> dict[str, Any]:
        """A checkpoint's ``task_state``; ``labels`` are the names of the classes in their order (none for a regression)."""
        symbols = [] if self.cfg.regression_target else self.label_dictionary.symbols[self.label_dictionary.nspecial :]
        return {**super().state_dict(), "labels": symbols[: self.cfg.num_classes]}

    def load_dataset(self, split: str, combine: bool = False, **kwargs) -> FairseqDataset:
        dataset = super().load_dataset(split, combine, **kwargs)
        self.require_length(dataset.sizes[0], split)
        if not self.cfg.no_shuffle:
            dataset = SortDataset(dataset, sort_order=order_by_length(dataset.sizes[0], self.cfg.seed))
        self.datasets[split] = self.packed(dataset)
        return self.datasets[split]
