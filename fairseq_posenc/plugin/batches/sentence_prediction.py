"""Fine-tuning on sentences and pairs of them, such as GLUE's: fairseq's ``sentence_prediction`` without padding."""

from dataclasses import dataclass, field
from typing import Any

from fairseq.data import FairseqDataset
from fairseq.tasks import register_task
from fairseq.tasks.sentence_prediction import SentencePredictionConfig, SentencePredictionTask

from .example_packing import HELP, PackingTask


@dataclass
class SentencePredictionByLengthConfig(SentencePredictionConfig):
    """Options of the task."""

    pack_examples: int = field(default=0, metadata={"help": HELP})


@register_task("sentence_prediction_by_length", dataclass=SentencePredictionByLengthConfig)
class SentencePredictionByLength(PackingTask, SentencePredictionTask):
    """fairseq's ``sentence_prediction`` with batches of sentences of similar lengths.

    fairseq draws batches at random, so that most of a batch is padding. Rows are cut to length when they are prepared, so this
    task has no limit.
    """

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> FairseqDataset:
        dataset = super().load_dataset(split, combine, **kwargs)
        self.datasets[split] = self.prepared(dataset, dataset.sizes[0], split, shuffle=not self.cfg.no_shuffle)
        return self.datasets[split]
