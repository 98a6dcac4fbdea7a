"""How much a language model that reads from left to right uses the order of words, beyond which word is the last.

Its inputs cannot change places as those of a masked language model, since they are what is predicted, too. So the order is taken
from all but the last token of each block of :data:`BLOCK` tokens, and only the token after a block is predicted. What precedes it
are the same tokens, and the last of them is in its place, which a model without attention would read. A model that uses no order
of the others has the same loss on both.

``--valid-subset valid,ordered,permuted`` validates on these predictions, in order and permuted.
"""

from typing import Any

import torch
from fairseq.data import BaseWrapperDataset, FairseqDataset
from torch import Tensor

BLOCK = 8
ORDERED = "ordered"


def ends_block(places: Tensor) -> Tensor:
    """Return whether a token at these places (T,) of its sequence is the last of its block: (T,) bool."""
    return places % BLOCK == BLOCK - 1


def permuted(tokens: Tensor, visible: Tensor, groups: Tensor, seed: int) -> Tensor:
    """Return tokens (T,) whose ``visible`` ones, (T,) bool, change places at random within their ``groups``, (T,)."""
    keys = torch.rand(int(visible.sum()), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    tokens = tokens.clone()
    tokens[visible] = tokens[visible][(groups[visible] + keys).argsort()]
    return tokens


class BlockEndDataset(BaseWrapperDataset):
    """Samples of ``language_modeling`` of which only the tokens after blocks are predicted.

    Args:
        dataset: the samples.
        pad: the number of padding.
        permutes: whether the inputs change places.
    """

    def __init__(self, dataset: FairseqDataset, pad: int, permutes: bool) -> None:
        super().__init__(dataset)
        self._pad, self._permutes = pad, permutes

    def __getitem__(self, index: int) -> dict[str, Any]:
        sample = self.dataset[index]
        source, places = sample["source"], torch.arange(len(sample["source"]))
        between = ~ends_block(places)
        source = permuted(source, between, places // BLOCK, int(index)) if self._permutes else source
        return {**sample, "source": source, "target": sample["target"].masked_fill(between, self._pad)}

    def collater(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        """Return a batch, whose ``ntokens`` are those that are predicted."""
        batch = super().collater(samples)
        return {**batch, "ntokens": int((batch["target"] != self._pad).sum())} if batch else batch
