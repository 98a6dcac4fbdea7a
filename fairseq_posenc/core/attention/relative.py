"""Products with relative tables. Nothing here is (Q, K, d).

In a contiguous window they are taken once per offset, (Q, R), and shifted into place; in any other, once per row of the table,
(Q, T), and gathered.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..terms import Relative, RelativeIndex, first_tokens
from .products import product


def by_offset(relative: Relative) -> Tensor:
    """(1 or H, R) or (1 or H, R, d): the row of every offset, ascending."""
    table, rows = relative.table, relative.index.rows
    return table if rows is None else table.index_select(1, rows)


def of_cls(relative: Relative, rows: tuple[int, int]) -> Tensor:
    """(1 or H, 2) or (1 or H, 2, d): these rows, those of [CLS]. An index of two numbers would wait for the device."""
    return torch.stack([relative.table[:, row] for row in rows], dim=1)


def dense(scalars: Relative) -> Tensor:
    """A table of scalars (1 or H, T) -> (1 or B, 1 or H, Q, K): ``table[row(i, j)]``."""
    index = scalars.index
    if not index.window.contiguous:
        return scalars.table[:, index.matrix()].transpose(0, 1)
    scores = toeplitz(by_offset(scalars), index.window.keys)[None]
    if index.cls_rows is None:
        return scores
    return replace_cls(scores, None, index.window.start, *(scalars.table[:, row, None, None] for row in index.cls_rows))


def times_queries(q: Tensor, vectors: Relative) -> Tensor:
    """(B, H, Q, d) -> (B, H, Q, K): ``q_i · table[row(i, j)]``."""
    index = vectors.index
    if not index.window.contiguous:
        return _product(q, vectors.table).gather(-1, _of_heads(index.matrix(), q))
    products, *for_cls = _products(q, vectors)
    return _with_cls(skew(products, index.window.keys), index, for_cls)


def times_keys(k: Tensor, vectors: Relative) -> Tensor:
    """(B, H, K, d) -> (B, H, Q, K): ``k_j · table[row(i, j)]``."""
    index = vectors.index
    if not index.window.contiguous:
        return _product(k, vectors.table).gather(-1, _of_heads(index.matrix().transpose(1, 2), k)).transpose(-1, -2)
    products, *for_cls = _products(k, vectors, descending=True)
    scores = skew(products, index.window.queries).transpose(-1, -2)
    return _with_cls(scores, index, [product.transpose(-1, -2) for product in for_cls])


def weighted_sum(p: Tensor, vectors: Relative) -> Tensor:
    """(B, H, Q, K) -> (B, H, Q, d): ``Σ_j p_ij · table[row(i, j)]``."""
    vectors = replace(vectors, table=vectors.table.to(p.dtype))
    index = vectors.index
    if not index.window.contiguous:
        sums = p.new_zeros(*p.shape[:-1], vectors.table.shape[1])  # of the weights, by row
        return sums.scatter_add(-1, _of_heads(index.matrix(), p), p) @ vectors.table
    if index.cls_rows is None:
        return unskew(p) @ by_offset(vectors)
    zero, one, start = p.new_zeros(()), p.new_ones(()), index.window.start
    ordinary = replace_cls(p, None, start, zero, zero)
    from_cls = replace_cls(torch.zeros_like(p), None, start, one, zero) * p
    to_cls = p - ordinary - from_cls
    for_cls = torch.stack([from_cls.sum(-1), to_cls.sum(-1)], dim=-1)  # (B, H, Q, 2)
    return unskew(ordinary) @ by_offset(vectors) + for_cls @ of_cls(vectors, index.cls_rows)


def replace_cls(scores: Tensor, first: Tensor | None, start: int, from_cls: Tensor, to_cls: Tensor) -> Tensor:
    """(B, H, Q, K) with the row of query 0 replaced by ``from_cls`` and the rest of the column of key 0 by ``to_cls``.

    Both replacements broadcast against ``(B, H, Q, K)``. ``first`` tells which queries and keys are meant, as
    :attr:`.terms.Window.first`, and ``start`` is the number of the first query among the keys.
    """
    is_first = first_tokens(first, scores.shape[-1], scores.device)[:, None, :]  # (B or 1, 1, K)
    scores = torch.where(is_first[:, :, None], to_cls.to(scores), scores)
    if first is None and start > 0:
        return scores
    return torch.where(is_first[..., start:, None], from_cls.to(scores), scores)


def toeplitz(vector: Tensor, keys: int) -> Tensor:
    """(…, R) -> (…, Q, K): ``out[i, j] = vector[j - i + Q - 1]``."""
    return vector.unfold(-1, keys, 1).flip(-2)


def skew(scores: Tensor, keys: int) -> Tensor:
    """(…, Q, R) -> (…, Q, K): ``out[i, j] = scores[i, j - i + Q - 1]``, as a view of contiguous scores."""
    return scores if scores.shape[-2] == 1 else _Skew.apply(scores, keys)


def unskew(weights: Tensor) -> Tensor:
    """(…, Q, K) -> (…, Q, R), the adjoint of :func:`skew`: ``out[i, r] = weights[i, r + i - Q + 1]``, else 0."""
    return weights if weights.shape[-2] == 1 else _Unskew.apply(weights)


def skewed_view(rows: Tensor, keys: int) -> Tensor:
    """:func:`skew` of contiguous rows, without autograd."""
    queries, offsets = rows.shape[-2:]
    if queries == 1:
        return rows.view_as(rows)
    flat = rows.flatten(-2)[..., queries - 1 : queries * offsets - 1]
    return flat.unflatten(-1, (queries, offsets - 1))[..., :keys]


class _Skew(torch.autograd.Function):
    """Each of the two is the other's gradient, which spares the buffers that differentiating their slices would fill."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, keys: int) -> Tensor:
        return skewed_view(scores.contiguous(), keys)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return unskew(gradient), None


class _Unskew(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor) -> Tensor:
        queries, keys = weights.shape[-2:]
        ctx.keys = keys
        rows = weights.new_zeros(*weights.shape[:-1], queries + keys - 1)
        skewed_view(rows, keys).copy_(weights)
        return rows

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return skew(gradient, ctx.keys)


def _products(x: Tensor, vectors: Relative, descending: bool = False) -> tuple[Tensor, ...]:
    """(B, H, N, d) -> (B, H, N, R) with the vector of every offset; two (B, H, N, 1) with those of [CLS] where it has any."""
    rows = by_offset(vectors)  # few: cheaper before a product than after
    products = _product(x, rows.flip(-2) if descending else rows)
    cls_rows = vectors.index.cls_rows
    if cls_rows is None:
        return (products,)
    return products, *_product(x, of_cls(vectors, cls_rows)).split(1, dim=-1)


def _product(x: Tensor, vectors: Tensor) -> Tensor:
    """(B, H, N, d), (1 or H, M, d) -> (B, H, N, M). Vectors shared by the heads make one plain matrix product."""
    vectors = vectors.to(x.dtype)
    return product(x, (vectors[0] if len(vectors) == 1 else vectors).transpose(-1, -2))


def _with_cls(scores: Tensor, index: RelativeIndex, for_cls: list[Tensor]) -> Tensor:
    return replace_cls(scores, None, index.window.start, *for_cls) if for_cls else scores


def _of_heads(rows: Tensor, like: Tensor) -> Tensor:
    """(B or 1, N, M) -> (B, H, N, M), for queries, keys or weights (B, H, N, …)."""
    return rows[:, None].expand(*like.shape[:2], -1, -1)
