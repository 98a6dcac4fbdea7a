"""The reference: it materialises the scores, and says what every other backend must agree with."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ..terms import Terms, precise
from .base import Backend, register_backend, rotate


class PreparedScores(NamedTuple):
    bias: Tensor | None  # (1 or B, 1 or H, Q, K)
    gain: Tensor | None  # (1 or H, Q, K)
    blocked: Tensor | None  # (B or 1, 1, Q or 1, K)


@register_backend
class Eager(Backend):
    """Runs everything. Scores, their products and the softmax are computed in float32 or better."""

    name = "eager"

    def unsupported(self, terms: Terms) -> str | None:
        return None

    def prepare(self, terms: Terms, blocked: Tensor | None, like: Tensor) -> PreparedScores:
        gains = [gain.dense() for gain in terms.gains]
        return PreparedScores(terms.bias(), math.prod(gains[1:], start=gains[0]) if gains else None, blocked)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, terms: Terms, prepared: PreparedScores, dropout: float
    ) -> tuple[Tensor, Tensor | None]:
        with torch.autocast(q.device.type, enabled=False):
            p = F.dropout(_softmax(_scores(q, k, terms, prepared), prepared.blocked), dropout).to(v.dtype)
            z = p @ v
            for table in terms.value_tables:
                z = z + table.weighted_sum(p)
        return z, p


def _scores(q: Tensor, k: Tensor, terms: Terms, prepared: PreparedScores) -> Tensor:
    """(B, H, Q, K): ``e = s · C(q·k, q·A, k·B) · g + b``"""
    q, k = rotate(precise(q), precise(k), terms)
    scale = 1 / math.sqrt(terms.factor * q.shape[-1])
    products = [q @ k.transpose(-1, -2)] if terms.content else []
    query_side = [table.times_queries(q) for table in terms.query_tables]
    key_side = [table.times_keys(k) for table in terms.key_tables]
    if terms.multiply:
        # A tables add up among themselves before they enter the product, and so do B tables.
        products += [sum(side[1:], start=side[0]) for side in (query_side, key_side) if side]
        e = math.prod(products[1:], start=products[0])
    else:
        products += query_side + key_side
        e = sum(products[1:], start=products[0]) if products else q.new_zeros(*q.shape[:-1], k.shape[-2])
    e = e * scale
    if prepared.gain is not None:
        e = e * prepared.gain
    if prepared.bias is not None:
        e = e + prepared.bias
    return e


def _softmax(e: Tensor, blocked: Tensor | None) -> Tensor:
    """softmax over the keys that are not blocked; zeros where all are."""
    if blocked is None:
        return e.softmax(-1)
    return e.masked_fill(blocked, torch.finfo(e.dtype).min).softmax(-1).masked_fill(blocked, 0.0)
