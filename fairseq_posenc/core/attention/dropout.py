"""Dropout with few random bits."""

import torch
from torch import Tensor

STEPS = 2**16  # a rate is rounded down to a whole number of them


def draw(kept: Tensor, rate: float) -> None:
    """Fill a boolean tensor: False with the probability ``rate``, by PyTorch's generator for its device.

    That for the CPU draws numbers one after the other, in one thread. With one or more per entry, as in PyTorch's dropout, that
    takes longer than the product of queries and keys; here each number of 64 bits is for four entries.
    """
    words = torch.empty(-(-kept.numel() // 4), dtype=torch.int64, device=kept.device).random_(-(2**63), None)
    bits = words.view(torch.int16)[: kept.numel()].view(kept.shape)
    torch.ge(bits, min(int(rate * STEPS), STEPS - 1) - STEPS // 2, out=kept)


def kept_scale(rate: float) -> float:
    """The factor of the remaining entries that preserves the mean; 0 if all are dropped."""
    zeros = int(rate * STEPS)
    return 0.0 if zeros == STEPS else STEPS / (STEPS - zeros)
