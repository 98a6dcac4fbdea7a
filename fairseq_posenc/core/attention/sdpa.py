"""PyTorch's fused ``scaled_dot_product_attention``, for terms that reduce to an additive bias."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from ..terms import LowRank, Terms
from .base import Attend, Backend, register_backend
from .bias import additive_bias, low_rank_bias, rounded
from .call import Call, Mask, cut
from .transform import fold, of_one_width, transform


@register_backend
class Sdpa(Backend):
    """``softmax(s·q·k + b) v`` without materialising the scores, where the device has a kernel for it.

    A bias of low rank becomes part of queries and keys, so that the kernel needs no mask; any other is a mask of all pairs.
    """

    name = "sdpa"

    def objection(self, terms: Terms, call: Call | None = None) -> str | None:
        kinds = {
            "vectors that multiply queries or keys (A, B)": terms.vectors,
            "vectors that are added to the values (V)": terms.value_tables,
            "gains that multiply the scores (g)": terms.gains,
        }
        unsupported = [kind for kind, present in kinds.items() if present]
        if not terms.content and not (terms.biases and all(isinstance(bias, LowRank) for bias in terms.biases)):
            unsupported.append("scores without q·k")
        if unsupported:
            return f"scaled_dot_product_attention has no place for {' or '.join(unsupported)}"
        if call is not None and call.weights:
            return "scaled_dot_product_attention does not give the attention weights"
        return None

    def suits(self, terms: Terms, call: Call | None = None) -> bool:
        """Not with dropout on a CPU, whose kernel has none: PyTorch would keep all scores there."""
        return super().suits(terms, call) and not (call is not None and call.device.type == "cpu" and call.dropout)

    def bind(self, terms: Terms, mask: Mask, call: Call) -> Attend:
        low_rank, fully_masked = low_rank_bias(terms, call), None
        scale = 1 / math.sqrt(terms.factor * call.head_dim)
        bias = additive_bias(terms, call) if low_rank is None else None
        causal = (
            bias is None and mask.only_causal and terms.window is None and call.queries == call.keys
        )  # which kernels support without a matrix
        blocked = None if causal else mask.blocked(call, terms.window)
        allowed = None if bias is None else rounded(bias, blocked, call.dtype)
        if blocked is not None:
            fully_masked = blocked.all(-1, keepdim=True)
            blocked = blocked & ~fully_masked  # a row of -inf alone is NaN in some kernels; its output is zeroed instead
            allowed = ~blocked if allowed is None else allowed.masked_fill(blocked, -torch.inf)
        every = slice(None)
        parts = [(*tile, cut(allowed, every, every, *tile)) for tile in call.tiles(terms.window)]

        def attend(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor | None]:
            q, k, v = of_one_width(*fold(*transform(q, k, terms), low_rank, scale, terms.content), v)
            tiles = [
                F.scaled_dot_product_attention(q[:, :, i], k[:, :, j], v[:, :, j], visible, call.dropout, causal, scale=scale)
                for i, j, visible in parts
            ]
            z = (tiles[0] if len(tiles) == 1 else torch.cat(tiles, dim=2))[..., : call.head_dim]
            return z if fully_masked is None else z.masked_fill(fully_masked, 0.0), None

        return attend
