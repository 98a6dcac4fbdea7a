"""The outputs of a model for sequences of different lengths."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from ..engine.grid import Diverged
from ..measure.work import default_device

MAX_TOKENS = 8192  # of a batch, padding included


@torch.inference_mode()
def infer(model: nn.Module, sequences: Sequence[np.ndarray], forward: Callable[[Tensor], Tensor], pad: int) -> list[np.ndarray]:
    """Return ``forward`` of every sequence, in their order, computed in batches of similar lengths.

    Args:
        model: in evaluation mode; moved to the GPU if there is one.
        sequences: ids of tokens, each of its own length.
        forward: (B, n) int64, padded on the right -> (B, …), or (B, n, …), of which each sequence gets its own n.

    Raises:
        Diverged: a number is not finite.
    """
    device = default_device()
    model.to(device)
    results: list[np.ndarray] = [np.empty(0)] * len(sequences)
    order = sorted(range(len(sequences)), key=lambda i: -len(sequences[i]))
    while order:
        longest = max(1, len(sequences[order[0]]))
        batch = order[: max(1, MAX_TOKENS // longest)]
        order = order[len(batch) :]
        tokens = torch.full((len(batch), longest), pad, dtype=torch.int64)
        for row, i in enumerate(batch):
            tokens[row, : len(sequences[i])] = torch.from_numpy(sequences[i].astype(np.int64))
        output = forward(tokens.to(device)).float().cpu().numpy()
        for row, i in enumerate(batch):
            results[i] = output[row, : len(sequences[i])] if output.ndim == 3 else output[row]
            if not np.isfinite(results[i]).all():
                raise Diverged("the trained model's scores are not finite")
    return results
