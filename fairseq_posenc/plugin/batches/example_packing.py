"""Fine-tuning without padding: examples of similar lengths in a batch, and with ``--pack-examples`` several per row.

A packed example is a document of its row: its tokens attend to each other alone, and positions count from its start. The model's
heads read its features as those of a whole row, so that losses, gradients and scores are those of the padded batch, to rounding.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq.data import BaseWrapperDataset, FairseqDataset, SortDataset, data_utils
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask
from torch import Tensor

from ...base.errors import InputError
from ..checkpoint.state_dict import LONGEST
from ..models.building import UNLIMITED
from ..models.roberta import PosencRobertaModel

WIDTH = 8  # tokens; lengths in an interval of this width count as similar, so that batches remain random
FLAG = "--pack-examples"
HELP = (
    "put several examples into each row of so many tokens (or of as many as the longest has); they do not see each other, and "
    "losses are the same. 0: one example per row"
)


class Rows(NamedTuple):
    """How examples are put into rows."""

    places: list[tuple[int, int]]  # for each example, its row and its first position there
    filled: list[int]  # tokens per row

    @property
    def width(self) -> int:
        return max(self.filled)


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
    return min(choices, key=lambda rows: (len(rows.filled) * rows.width, rows.width))  # positions, with padding


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
    """

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


class PackingTask(FairseqTask):
    """A task that refuses rows which are too long for its model, and may put several examples into one.

    ``pack_examples`` is the number of tokens of a row, or 0 for one example per row. fairseq omits long rows in training, so that
    schemes would be trained on different data.

    Raises:
        InputError: the model has too few positions.
    """

    cfg: Any
    _max_length = UNLIMITED

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> BaseFairseqModel:
        model = super().build_model(cfg, from_checkpoint)
        if isinstance(model, PosencRobertaModel):
            self._max_length = model.encoder.sentence_encoder.max_length or UNLIMITED
        if (tokens := self.cfg.pack_examples) > self._max_length:
            raise InputError(f"{FLAG} {tokens}: the model has {self._max_length} positions, and a row cannot have more tokens")
        return model

    def max_positions(self) -> None:
        return None

    def prepared(self, dataset: FairseqDataset, sizes: np.ndarray, split: str, shuffle: bool = True) -> FairseqDataset:
        """Return the examples of a split in batches of similar lengths, several per row with ``pack_examples``.

        Raises:
            InputError: an example is longer than the model takes.
        """
        longest = int(sizes.max(initial=0))
        if longest > self._max_length:
            raise InputError(
                f"a row of {split} has {longest} tokens, and the model has {self._max_length} positions: prepare the data with "
                "shorter rows, or take a model with higher --max-positions, or one of an inductive scheme"
            )
        self.state.merge_state_dict({LONGEST: max(longest, getattr(self.state, LONGEST, 0))})
        if shuffle:
            with data_utils.numpy_seed(self.cfg.seed):
                permutation = np.random.permutation(len(sizes))
            dataset = SortDataset(dataset, sort_order=[permutation, sizes // WIDTH])  # at random within similar lengths
        tokens = self.cfg.pack_examples
        return PackedExamplesDataset(dataset, tokens, self.source_dictionary.pad()) if tokens else dataset
