"""Several examples per row: ``--pack-examples``, for fine-tuning without padding.

Each example is a document of its row: it sees itself alone, and its positions count from its own start. The model's heads get its
features as if it had stood in a row of its own, so that losses, gradients and scores are those of the padded batch, to rounding.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq.data import BaseWrapperDataset, FairseqDataset
from fairseq.data.iterators import EpochBatchIterator
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask
from torch import Tensor

from ..errors import FieldError, Refused
from ..models.building import max_length
from ..models.option_set import flag
from ..models.roberta import PosencRobertaModel

FLAG = "--pack-examples"
HELP = (
    "put several examples into each row of so many tokens (or of as many as the longest has); they do not see each other, and "
    "losses are the same. 0: each has a row of its own"
)
logger = logging.getLogger(__name__)


class Rows(NamedTuple):
    """How examples are put into rows."""

    places: list[tuple[int, int]]  # of each example: its row, and where in it the example starts
    filled: list[int]  # tokens per row

    @property
    def width(self) -> int:
        return max(self.filled)

    @property
    def area(self) -> int:
        """Places for tokens, padding included."""
        return len(self.filled) * self.width


def arrange(lengths: Sequence[int], tokens: int) -> Rows:
    """Examples of these lengths in rows of ``tokens`` at most, or of the longest one's.

    Of the fewest rows that do, and up to twice as many, it is the number with the least padding; then, with the shortest rows.
    """
    most, found = max(tokens, *lengths), list[Rows]()
    for count in range(-(-sum(lengths) // most), len(lengths) + 1):
        if found and count > 2 * len(found[0].filled):
            break
        rows = _spread(lengths, count)
        if rows.width <= most:
            found.append(rows)
    return min(found, key=lambda rows: (rows.area, rows.width))


def _spread(lengths: Sequence[int], count: int) -> Rows:
    """The longest first, each in the row that has the least."""
    rows = Rows([(0, 0)] * len(lengths), [0] * count)
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        row = rows.filled.index(min(rows.filled))
        rows.places[i] = row, rows.filled[row]
        rows.filled[row] += lengths[i]
    return rows


def pack(examples: Tensor, lengths: Tensor, tokens: int, pad: int) -> dict[str, Any]:
    """What a model reads in place of ``examples`` (B, L), which are padded on the right and of ``lengths`` (B,).

    ``src_tokens`` is (R, W), ``mask`` has its padding, where there is any, and its documents, and ``read_at`` (B, L) is the
    position in the rows of each token of an example; beyond its end, of its last token.
    """
    rows = arrange(lengths.tolist(), tokens)
    row, starts = torch.tensor(rows.places).unbind(1)
    place = torch.arange(examples.shape[1])
    there = place < lengths[:, None]
    read_at = (row * rows.width + starts)[:, None] + torch.minimum(place, lengths[:, None] - 1)
    packed = examples.new_full((len(rows.filled), rows.width), pad)
    documents = torch.zeros(packed.shape, dtype=torch.int32)
    padding = torch.ones(packed.shape, dtype=torch.bool)
    packed.view(-1)[read_at[there]] = examples[there]
    documents.view(-1)[read_at[there]] = starts.int()[:, None].expand_as(there)[there]
    padding.view(-1)[read_at[there]] = False
    mask = {"documents": documents.cummax(1).values}  # padding counts to the last one
    return {"src_tokens": packed, "mask": {**mask, "padding": padding} if padding.any() else mask, "read_at": read_at}


class PackedExamples(BaseWrapperDataset):
    """Examples, in batches that hold several per row.

    Args:
        dataset: of examples, whose batches have ``net_input`` with ``src_tokens`` and ``src_lengths``.
        tokens: of a row.
        pad: the padding symbol.

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

    def filling(self, batches: Iterable[Sequence[int]]) -> tuple[float, float]:
        """The share of the places of rows that hold tokens: in these batches, and if every example had a row."""
        sizes = np.asarray(self.sizes[0])
        held = packed = padded = 0
        for batch in batches:
            lengths = sizes[batch].tolist()
            held += sum(lengths)
            packed += arrange(lengths, self._tokens).area
            padded += len(lengths) * max(lengths)
        return held / max(packed, 1), held / max(padded, 1)


def require_restart(model: PosencRobertaModel, flag_name: str) -> None:
    """Refuse to restart positions within a row where the model cannot.

    Raises:
        Refused: a scheme depends on the position in the row; the message names the flag that needs the restart.
    """
    try:
        model.encoder.sentence_encoder.positions.require_restart()
    except FieldError as error:
        raise Refused(f"{flag_name}: {error.named(flag)}") from error


class PackingTask(FairseqTask):
    """A task that refuses longer rows than its model takes, and may put several examples into one.

    ``pack_examples`` is the number of tokens of a row, or 0 where each example has its own. fairseq leaves long rows out of
    training, which would give some schemes other data than others.

    Raises:
        Refused: a model of other architectures, positions that cannot restart within a row, or too few of them.
    """

    cfg: Any
    _max_length: int | None = None

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> BaseFairseqModel:
        model = super().build_model(cfg, from_checkpoint)
        if isinstance(model, PosencRobertaModel):
            self._max_length = max_length(model.encoder.sentence_encoder)
        tokens = self.cfg.pack_examples
        if not tokens:
            return model
        if not isinstance(model, PosencRobertaModel):
            raise Refused(f"{FLAG} {tokens} is for the architectures of fairseq_posenc: leave it out, or train one of those")
        require_restart(model, FLAG)
        if self._max_length is not None and tokens > self._max_length:
            raise Refused(f"{FLAG} {tokens}: the model has {self._max_length} positions, and a row cannot have more tokens")
        return model

    def require_length(self, sizes: np.ndarray, split: str) -> None:
        """Look at the lengths of a split's rows.

        Raises:
            Refused: one is longer than the model takes.
        """
        longest = sizes.max(initial=0)
        if self._max_length is not None and longest > self._max_length:
            raise Refused(
                f"a row of {split} has {longest} tokens, and the model has {self._max_length} positions: prepare the data with "
                "shorter rows, or take a model with higher --max-positions, or one of an inductive scheme"
            )

    def max_positions(self) -> None:
        return None

    def packed(self, dataset: FairseqDataset) -> FairseqDataset:
        """The examples of a split, several per row where that is asked for."""
        tokens = self.cfg.pack_examples
        return PackedExamples(dataset, tokens, self.source_dictionary.pad()) if tokens else dataset

    def get_batch_iterator(self, dataset: FairseqDataset, **options: Any) -> EpochBatchIterator:
        batches = super().get_batch_iterator(dataset, **options)
        if isinstance(dataset, PackedExamples) and not dataset.reported:
            dataset.reported = True
            split = next(name for name, each in self.datasets.items() if each is dataset)
            now, before = dataset.filling(batches.frozen_batches)
            logger.info(f"{FLAG} {self.cfg.pack_examples}: tokens fill {now:.1%} of the rows of {split}, {before:.1%} without it")
        return batches
