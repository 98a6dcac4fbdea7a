"""PyTorch's fused ``scaled_dot_product_attention``, for terms that reduce to an additive bias."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ..terms import Terms
from .base import Backend, register_backend, rotate


class PreparedMask(NamedTuple):
    mask: Tensor | None  # bool, True where allowed, or an additive float mask; (B or 1, H or 1, Q, K)
    dead: Tensor | None  # (B or 1, 1, Q or 1, 1), True where a query may see no key


@register_backend
class Sdpa(Backend):
    """``softmax(s·q·k + b) v`` without materialising the scores, where the device has a kernel for it."""

    name = "sdpa"

    def unsupported(self, terms: Terms) -> str | None:
        kinds = {
            "vectors that multiply queries or keys (A, B)": terms.vectors,
            "vectors that are added to the values (V)": terms.value_tables,
            "gains that multiply the scores (g)": terms.gains,
        }
        found = [kind for kind, present in kinds.items() if present]
        if not terms.content:
            found.append("scores without q·k")
        return f"scaled_dot_product_attention has no place for {' or '.join(found)}" if found else None

    def prepare(self, terms: Terms, blocked: Tensor | None, like: Tensor) -> PreparedMask:
        bias = terms.bias()
        if blocked is None:
            return PreparedMask(None if bias is None else bias.to(like.dtype), None)
        dead = blocked.all(-1, keepdim=True)
        blocked = blocked & ~dead  # a row of -inf alone is NaN in some kernels; its output is zeroed instead
        if bias is None:
            return PreparedMask(~blocked, dead)
        return PreparedMask(bias.to(like.dtype).masked_fill(blocked, -torch.inf), dead)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, terms: Terms, prepared: PreparedMask, dropout: float
    ) -> tuple[Tensor, Tensor | None]:
        q, k = rotate(q, k, terms)
        scale = 1 / math.sqrt(terms.factor * q.shape[-1])
        z = F.scaled_dot_product_attention(q, k, v, prepared.mask, dropout_p=dropout, scale=scale)
        return z if prepared.dead is None else z.masked_fill(prepared.dead, 0.0), None
