"""The readable reference: it materialises the scores, and every other backend must agree with it."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from ..terms import Terms, exact, precise
from .base import Attend, Backend, register_backend
from .bias import additive_bias
from .call import Call, Mask
from .products import multiplies_half, product
from .relative import gain_of, times_keys, times_queries, weighted_sum
from .transform import transform


@register_backend
class Eager(Backend):
    """Runs everything. Scores, their products and the softmax are computed in float32 or better."""

    name = "eager"

    def objection(self, terms: Terms, call: Call | None = None) -> str | None:
        return None

    def bind(self, terms: Terms, mask: Mask, call: Call) -> Attend:
        gain, bias, blocked = gain_of(terms), additive_bias(terms, call), mask.blocked(call, terms.window)
        scale = 1 / math.sqrt(terms.factor * call.head_dim)

        def attend(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor | None]:
            with exact(q.device):
                e = scores(q, k, terms, scale)
                if gain is not None:
                    e = e * gain
                if bias is not None:
                    e = e + bias
                p = F.dropout(_softmax(e, blocked), call.dropout).to(v.dtype)
                z = p @ v
                for table in terms.value_tables:
                    z = z + weighted_sum(p, table)
            return z, p if call.weights else None

        return attend


def scores(q: Tensor, k: Tensor, terms: Terms, scale: float) -> Tensor:
    """(B, H, Q, K): ``s · C(q·k, q·A, k·B)``, without gains and biases; ``scale`` is s."""
    if terms.combine == "multiply" or not multiplies_half(q):  # a product's gradients have more than half precision can hold
        q, k = precise(q), precise(k)
    q, k = transform(q, k, terms)
    products = [product(q, k.transpose(-1, -2))] if terms.content else []
    query_side = [times_queries(q, table) for table in terms.query_tables]
    key_side = [times_keys(k, table) for table in terms.key_tables]
    if terms.combine == "multiply":
        # A tables add up among themselves before they enter the product, and so do B tables.
        products += [sum(side[1:], start=side[0]) for side in (query_side, key_side) if side]
        e = math.prod(products[1:], start=products[0])
    else:
        products += query_side + key_side
        e = sum(products[1:], start=products[0]) if products else precise(q).new_zeros(*q.shape[:-1], k.shape[-2])
    return e * scale


def _softmax(e: Tensor, blocked: Tensor | None) -> Tensor:
    """softmax over the keys that are not blocked; zeros where all are."""
    if blocked is None:
        return e.softmax(-1)
    return e.masked_fill(blocked, torch.finfo(e.dtype).min).softmax(-1).masked_fill(blocked, 0.0)
