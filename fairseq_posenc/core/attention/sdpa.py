"""PyTorch's fused ``scaled_dot_product_attention``, for terms that reduce to an additive bias."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from ..terms import Terms
from .base import Attend, Backend, register_backend
from .bias import additive_bias, beyond_bias, low_rank_bias, rounded
from .call import Call, Mask
from .transform import fold, of_one_width, transform

WIDTHS = 8
"""Features of which kernels for GPUs take a multiple."""


@register_backend
class Sdpa(Backend):
    """``softmax(s·q·k + b) v`` without materialising the scores, where the device has a kernel for it.

    A bias of low rank becomes part of queries and keys, so that the kernel needs no mask; any other is a mask of all pairs.
    """

    name = "sdpa"

    def objection(self, terms: Terms, call: Call | None = None) -> str | None:
        if kinds := beyond_bias(terms):
            return f"scaled_dot_product_attention has no place for {kinds}"
        if call is not None and call.weights:
            return "scaled_dot_product_attention does not give the attention weights"
        return None

    def suits(self, terms: Terms, call: Call | None = None) -> bool:
        """Not with dropout on a CPU, whose kernel has none: PyTorch would keep all scores there."""
        return super().suits(terms, call) and not (call is not None and call.device.type == "cpu" and call.dropout)

    def bind(self, terms: Terms, mask: Mask, call: Call) -> Attend:
        low_rank = low_rank_bias(terms, call)
        scale = 1 / math.sqrt(terms.factor * call.head_dim)
        biased = low_rank is None and (bool(terms.biases) or terms.cls_bias is not None)
        plain = not biased and mask.causal and mask.padding is None and mask.documents is None and terms.window is None
        causal = plain and bool(call.queries == call.keys)  # which kernels support without a matrix
        parts = []
        for tile in call.tiles(terms.window):
            blocked, fully_masked = None if causal else mask.blocked(call, terms.window, *tile), None
            bias = None if low_rank is not None else additive_bias(terms, call, tile)
            allowed = None if bias is None else rounded(bias, blocked, call.dtype).contiguous()  # as kernels for GPUs need it
            if blocked is not None:
                fully_masked = blocked.all(-1, keepdim=True)
                blocked = blocked & ~fully_masked  # a row of -inf alone is NaN in some kernels; its output is zeroed instead
                # Not a boolean mask, of which PyTorch would make one of numbers in every layer, and keep it.
                allowed = torch.zeros_like(blocked, dtype=call.dtype) if allowed is None else allowed
                allowed = allowed.masked_fill(blocked, -torch.inf)
            parts.append((*tile, allowed, fully_masked))

        def attend(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor | None]:
            q, k = fold(*transform(q, k, terms), low_rank, scale, terms.content)
            width = q.shape[-1] if call.device.type == "cpu" else -(-q.shape[-1] // WIDTHS) * WIDTHS
            q, k, v = of_one_width(q, k, v, least=width)
            tiles = []
            for i, j, allowed, fully_masked in parts:
                tile = q[:, :, i], k[:, :, j], v[:, :, j]
                z = F.scaled_dot_product_attention(*tile, allowed, call.dropout, causal, scale=scale)
                tiles.append(z if fully_masked is None else z.masked_fill(fully_masked, 0.0))
            return (tiles[0] if len(tiles) == 1 else torch.cat(tiles, dim=2))[..., : call.head_dim], None

        return attend
