"""The outputs of a model for sequences of different lengths."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from ..engine.grid import Diverged
from .work import default_device

MAX_TOKENS = 8192
"""Tokens of a batch, padding included."""


def batches(sequences: Sequence[Tensor], pad: int) -> Iterator[tuple[list[int], Tensor]]:
    """Yield batches of similar lengths, the longest first.

    Args:
        sequences: ids of tokens, each of its own length.
        pad: the padding symbol.

    Yields:
        The numbers of the sequences of a batch, and the batch, (B, n), padded on the right.
    """
    order = sorted(range(len(sequences)), key=lambda i: -len(sequences[i]))
    while order:
        batch = order[: max(1, MAX_TOKENS // max(1, len(sequences[order[0]])))]
        order = order[len(batch) :]
        yield batch, pad_sequence([sequences[i] for i in batch], True, pad)


@torch.inference_mode()
def infer(model: nn.Module, sequences: Sequence[np.ndarray], forward: Callable[[Tensor], Tensor], pad: int) -> list[np.ndarray]:
    """Return ``forward`` of every sequence, in their order, computed in :func:`batches`.

    Args:
        model: in evaluation mode; moved to the GPU if there is one.
        sequences: ids of tokens, each of its own length.
        forward: (B, n) int64, padded on the right -> (B, …), or (B, n, …), of which each sequence gets its own n.
        pad: the padding symbol.

    Raises:
        Diverged: a number is not finite.
    """
    device = default_device()
    model.to(device)
    results: list[np.ndarray] = [np.empty(0)] * len(sequences)
    for batch, tokens in batches([torch.from_numpy(ids.astype(np.int64)) for ids in sequences], pad):
        output = forward(tokens.to(device)).float().cpu().numpy()
        for row, i in enumerate(batch):
            results[i] = output[row, : len(sequences[i])] if output.ndim == 3 else output[row]
            if not np.isfinite(results[i]).all():
                raise Diverged("the trained model's scores are not finite")
    return results
