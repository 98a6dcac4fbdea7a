"""Tasks of fine-tuning without padding: examples of similar lengths in a batch, and with ``--pack-examples`` several per row.

A packed example is a document of its row: its tokens attend to each other alone, and positions count from its start. The model's
heads read its features as those of a whole row, so that losses, gradients and scores are those of the padded batch, to rounding.

The data-bin of SQuAD holds ``dict.txt`` and, for each split, windows ``<s> question </s> </s> stretch of the context </s>`` as
``SPLIT.bin`` and ``SPLIT.idx``, and ``SPLIT.spans.npy``: a row of three int32 per window, (first token of the context, first
token of the answer, last token of the answer). Where a window holds no answer, the last two are 0: the answer is ``<s>``.
``fairseq-posenc squad`` writes it.
"""

import logging
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq import metrics
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.data import (
    BaseWrapperDataset,
    Dictionary,
    FairseqDataset,
    IdDataset,
    NestedDictionaryDataset,
    NumelDataset,
    NumSamplesDataset,
    RightPadDataset,
    SortDataset,
    data_utils,
)
from fairseq.data.iterators import EpochBatchIterator
from fairseq.dataclass import FairseqDataclass
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask, register_task
from fairseq.tasks.sentence_prediction import SentencePredictionConfig, SentencePredictionTask
from omegaconf import II, MISSING, open_dict
from torch import Tensor
from torch.nn import functional as F

from ..errors import InputError, Refused
from ..models.building import UNLIMITED, max_length
from ..models.roberta import PosencRobertaModel
from ..models.span_head import SpanHead
from ..vocabulary import load_dictionary
from .masked_lm import require_encoder

WIDTH = 8  # tokens; lengths in an interval of this width count as similar, so that batches remain random
FLAG = "--pack-examples"
HELP = (
    "put several examples into each row of so many tokens (or of as many as the longest has); they do not see each other, and "
    "losses are the same. 0: one example per row"
)
logger = logging.getLogger(__name__)


class Rows(NamedTuple):
    """How examples are put into rows."""

    places: list[tuple[int, int]]  # for each example, its row and its first position there
    filled: list[int]  # tokens per row

    @property
    def width(self) -> int:
        return max(self.filled)

    @property
    def area(self) -> int:
        """The number of positions, with padding."""
        return len(self.filled) * self.width


def arrange(lengths: Sequence[int], tokens: int) -> Rows:
    """Put examples of these lengths into rows of ``tokens`` at most, or of the longest example's length.

    Each example, the longest first, is put into the row with the fewest tokens. The number of rows is chosen between the minimum
    and twice as many, for the least padding, and then for the shortest rows.
    """
    limit, choices = max(tokens, *lengths), list[Rows]()
    longest_first = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    for count in range(-(-sum(lengths) // limit), len(lengths) + 1):
        if choices and count > 2 * len(choices[0].filled):
            break
        rows = Rows([(0, 0)] * len(lengths), [0] * count)
        for i in longest_first:
            row = rows.filled.index(min(rows.filled))
            rows.places[i] = row, rows.filled[row]
            rows.filled[row] += lengths[i]
        if rows.width <= limit:
            choices.append(rows)
    return min(choices, key=lambda rows: (rows.area, rows.width))


def pack(examples: Tensor, lengths: Tensor, tokens: int, pad: int) -> dict[str, Any]:
    """Return a model's input in place of ``examples`` (B, L), which are padded on the right and of ``lengths`` (B,).

    ``src_tokens`` is (R, W), ``mask`` has its padding, if any, and its documents, and ``read_at`` (B, L) is the position in the
    rows of each token of an example; beyond its end, of its last token.
    """
    rows = arrange(lengths.tolist(), tokens)
    row, starts = torch.tensor(rows.places).unbind(1)
    place = torch.arange(examples.shape[1])
    present = place < lengths[:, None]
    read_at = (row * rows.width + starts)[:, None] + torch.minimum(place, lengths[:, None] - 1)
    packed = examples.new_full((len(rows.filled), rows.width), pad)
    documents = torch.zeros(packed.shape, dtype=torch.int32)
    packed.view(-1)[read_at[present]] = examples[present]
    documents.view(-1)[read_at[present]] = starts.int()[:, None].expand_as(present)[present]
    padding = packed == pad
    mask = {"documents": documents.cummax(1).values}  # padding counts to the last one
    return {"src_tokens": packed, "mask": {**mask, "padding": padding} if padding.any() else mask, "read_at": read_at}


class PackedExamplesDataset(BaseWrapperDataset):
    """Examples, in batches that hold several per row.

    Args:
        dataset: examples, whose batches have ``net_input`` with ``src_tokens`` and ``src_lengths``.
        tokens: tokens per row.

    Attributes:
        reported: whether the log has how full the rows are.
    """

    reported = False

    def __init__(self, dataset: FairseqDataset, tokens: int, pad: int) -> None:
        super().__init__(dataset)
        self._tokens = tokens
        self._pad = pad

    def collater(self, samples: list[Any]) -> dict[str, Any]:
        batch = super().collater(samples)
        if not batch:
            return batch
        given = batch["net_input"]
        packed = pack(given["src_tokens"], given["src_lengths"], self._tokens, self._pad)
        return {**batch, "net_input": {**given, **packed}}


def order_by_length(sizes: np.ndarray, seed: int) -> list[np.ndarray]:
    """Return sort keys for ``SortDataset``: intervals of similar lengths, and a permutation within each."""
    with data_utils.numpy_seed(seed):
        permutation = np.random.permutation(len(sizes))
    return [permutation, sizes // WIDTH]


class PackingTask(FairseqTask):
    """A task that refuses rows which are too long for its model, and may put several examples into one.

    ``pack_examples`` is the number of tokens of a row, or 0 for one example per row. fairseq omits long rows in training, so that
    schemes would be trained on different data.

    Raises:
        Refused: a model of other architectures, or too few positions.
    """

    cfg: Any
    _max_length = UNLIMITED

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> BaseFairseqModel:
        model = super().build_model(cfg, from_checkpoint)
        if isinstance(model, PosencRobertaModel):
            self._max_length = max_length(model.encoder.sentence_encoder)
        if tokens := self.cfg.pack_examples:
            require_encoder(model, FLAG)
            if tokens > self._max_length:
                raise Refused(f"{FLAG} {tokens}: the model has {self._max_length} positions, and a row cannot have more tokens")
        return model

    def max_positions(self) -> None:
        return None

    def prepared(self, dataset: FairseqDataset, sizes: np.ndarray, split: str, shuffle: bool = True) -> FairseqDataset:
        """Return the examples of a split in batches of similar lengths, several per row with ``pack_examples``.

        Raises:
            Refused: an example is longer than the model takes.
        """
        longest = sizes.max(initial=0)
        if longest > self._max_length:
            raise Refused(
                f"a row of {split} has {longest} tokens, and the model has {self._max_length} positions: prepare the data with "
                "shorter rows, or take a model with higher --max-positions, or one of an inductive scheme"
            )
        if shuffle:
            dataset = SortDataset(dataset, sort_order=order_by_length(sizes, self.cfg.seed))
        tokens = self.cfg.pack_examples
        return PackedExamplesDataset(dataset, tokens, self.source_dictionary.pad()) if tokens else dataset

    def get_batch_iterator(self, dataset: FairseqDataset, **options: Any) -> EpochBatchIterator:
        batches = super().get_batch_iterator(dataset, **options)
        if isinstance(dataset, PackedExamplesDataset) and not dataset.reported:
            dataset.reported = True
            split = next(name for name, candidate in self.datasets.items() if candidate is dataset)
            sizes = np.asarray(dataset.sizes[0])
            lengths = [sizes[batch].tolist() for batch in batches.frozen_batches]
            held = sum(map(sum, lengths))
            packed = held / max(sum(arrange(batch, self.cfg.pack_examples).area for batch in lengths), 1)
            padded = held / max(sum(len(batch) * max(batch) for batch in lengths), 1)
            logger.info(
                f"{FLAG} {self.cfg.pack_examples}: tokens fill {packed:.1%} of the rows of {split}, {padded:.1%} without it"
            )
        return batches


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

    def state_dict(self) -> dict[str, Any]:
        """Return a checkpoint's ``task_state``; ``labels`` are the classes' names in order (none for a regression)."""
        symbols = [] if self.cfg.regression_target else self.label_dictionary.symbols[self.label_dictionary.nspecial :]
        return {**super().state_dict(), "labels": symbols[: self.cfg.num_classes]}

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> FairseqDataset:
        dataset = super().load_dataset(split, combine, **kwargs)
        self.datasets[split] = self.prepared(dataset, dataset.sizes[0], split, shuffle=not self.cfg.no_shuffle)
        return self.datasets[split]


@dataclass
class SquadConfig(FairseqDataclass):
    """Options of the task."""

    data: str = field(default=MISSING, metadata={"help": "folder of the prepared questions"})
    max_positions: int = field(default=512, metadata={"help": "size of the model's tables of positions, as in pretraining"})
    pack_examples: int = field(default=0, metadata={"help": HELP})
    seed: int = II("common.seed")


@register_task("squad", dataclass=SquadConfig)
class SquadTask(PackingTask):
    """Trains a model to predict the first and the last token of answers, with the criterion ``squad``."""

    source_dictionary = target_dictionary = property(lambda self: self.dictionary)

    def __init__(self, cfg: SquadConfig, dictionary: Dictionary | None = None) -> None:
        super().__init__(cfg)
        self.dictionary = load_dictionary(Path(cfg.data)) if dictionary is None else dictionary

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> FairseqDataset:
        """Load one split.

        Raises:
            FileNotFoundError: it has not been prepared.
            InputError: windows and spans do not belong together.
        """
        path = os.path.join(self.cfg.data, split)
        windows = data_utils.load_indexed_dataset(path, self.dictionary)
        if windows is None or not os.path.exists(f"{path}.spans.npy"):
            raise FileNotFoundError(
                f"{path}.bin, .idx and .spans.npy are not all there: DATA of --task squad is a folder that "
                "fairseq-posenc squad has prepared (data in its --out)"
            )
        spans = np.load(f"{path}.spans.npy", allow_pickle=False).astype(np.int64)
        if spans.shape != (len(windows), 3):
            raise InputError(
                f"{path}.spans.npy has the shape {spans.shape} and there are {len(windows)} windows: the files are not of one "
                "preparation. Remove the folder and prepare it again."
            )
        nested = NestedDictionaryDataset(
            {
                "id": IdDataset(),
                "net_input": {
                    "src_tokens": RightPadDataset(windows, pad_idx=self.dictionary.pad()),
                    "src_lengths": NumelDataset(windows, reduce=False),
                },
                "target": BaseWrapperDataset(spans),
                "nsentences": NumSamplesDataset(),
                "ntokens": NumelDataset(windows, reduce=True),
            },
            sizes=[windows.sizes],
        )
        self.datasets[split] = self.prepared(nested, windows.sizes, split)
        return self.datasets[split]

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> BaseFairseqModel:
        with open_dict(cfg):
            cfg.max_positions = self.cfg.max_positions
        model = super().build_model(cfg, from_checkpoint)
        model.encoder.lm_head = SpanHead(model.args.encoder_embed_dim)
        return model


def mask_scores(scores: Tensor, lengths: Tensor, context: Tensor) -> Tensor:
    """Mask the scores of all positions but ``<s>`` and the context.

    Args:
        scores: (B, n, 2), of the span head.
        lengths: (B,), the tokens of each window, before the padding.
        context: (B,), the first token of each window's context.

    Returns:
        (B, n, 2) float32, minus infinity at the question and the separators.
    """
    place = torch.arange(scores.shape[1], device=scores.device)
    last = lengths[:, None] - 1  # the closing </s>
    allowed = (place == 0) | ((place >= context[:, None]) & (place < last))
    return scores.float().masked_fill(~allowed[..., None], float("-inf"))


@register_criterion("squad", dataclass=FairseqDataclass)
class SquadCriterion(FairseqCriterion):
    """Cross-entropy of the answer's first and of its last token, the mean of both, over ``<s>`` and the context."""

    def forward(self, model: Any, sample: dict[str, Any], reduce: bool = True) -> tuple[Any, int, dict[str, Any]]:
        context, start, end = sample["target"].unbind(1)
        scores, _ = model(**sample["net_input"])
        starts, ends = mask_scores(scores, sample["net_input"]["src_lengths"], context).unbind(-1)
        loss = (F.cross_entropy(starts, start, reduction="sum") + F.cross_entropy(ends, end, reduction="sum")) / 2
        correct = (starts.argmax(1) == start) & (ends.argmax(1) == end)
        count = len(context)
        logged = {
            "loss": loss.data,
            "ncorrect": correct.sum(),
            "ntokens": sample["ntokens"],
            "nsentences": count,
            "sample_size": count,
        }
        return loss, count, logged

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        loss, correct, count = (sum(log.get(name, 0) for log in logging_outputs) for name in ("loss", "ncorrect", "nsentences"))
        metrics.log_scalar("loss", loss / count / math.log(2), count, round=3)
        metrics.log_scalar("accuracy", 100.0 * correct / count, count, round=1)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True
