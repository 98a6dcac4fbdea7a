"""Products with relative tables. Nothing here is (Q, K, d).

In a contiguous window they are taken once per offset, (Q, R), and shifted into place; in any other, and where [CLS] has rows of
its own, once per row of the table, (Q, T), and gathered.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..terms import Relative, Terms, precise
from .call import Tile
from .products import product


def by_offset(relative: Relative) -> Tensor:
    """(1 or H, R or R + 2, …): the row of every offset, ascending, and those of [CLS] where it has any.

    In float32 or better, as the gradient of a row is a sum over its offsets, and in :func:`dense` over its pairs.
    """
    table, rows, cls_rows = precise(relative.table), relative.index.rows, relative.index.cls_rows
    offsets = table if rows is None else table.index_select(1, rows)
    if cls_rows is None:
        return offsets
    return torch.cat([offsets, *(table[:, row, None] for row in cls_rows)], dim=1)  # an index of two would wait for the device


def sum_by_offset(tables: Sequence[Relative]) -> Tensor | None:
    """The sum of tables of one kind as :func:`by_offset`; None if there are none."""
    rows = [by_offset(table) for table in tables]
    return sum(rows[1:], start=rows[0]) if rows else None


def offsets_of(queries: int, tile: Tile) -> slice:
    """The rows by offset that a tile has pairs of, in a contiguous window of so many queries."""
    i, j = tile
    first = queries + j.start - i.stop
    return slice(first, first + i.stop - i.start + j.stop - j.start - 1)


def dense(scalars: Relative, tile: Tile | None = None) -> Tensor:
    """A table of scalars (1 or H, T) -> (1 or B, 1 or H, Q, K): ``table[row(i, j)]``, of all pairs or of a tile."""
    index, window = scalars.index, scalars.index.window
    i, j = tile or (slice(0, window.queries), slice(0, window.keys))
    if not index.by_diagonal:
        return precise(scalars.table)[:, index.matrix()[:, i, j]].transpose(0, 1)
    return toeplitz(by_offset(scalars)[:, offsets_of(window.queries, (i, j))], j.stop - j.start)[None]


def gain_of(terms: Terms, tile: Tile | None = None) -> Tensor | None:
    """(1 or B, 1 or H, Q, K): the product of all gains, or None where there are none."""
    gains = [dense(gain, tile) for gain in terms.gains]
    return math.prod(gains[1:], start=gains[0]) if gains else None


def times_queries(q: Tensor, vectors: Relative) -> Tensor:
    """(B, H, Q, d) -> (B, H, Q, K): ``q_i · table[row(i, j)]``."""
    index = vectors.index
    if not index.by_diagonal:
        return _product(q, vectors.table).gather(-1, _of_heads(index.matrix(), q))
    return skew(_product(q, by_offset(vectors)), index.window.keys)  # rows are few: cheaper before a product than after


def times_keys(k: Tensor, vectors: Relative) -> Tensor:
    """(B, H, K, d) -> (B, H, Q, K): ``k_j · table[row(i, j)]``."""
    index = vectors.index
    if not index.by_diagonal:
        return _product(k, vectors.table).gather(-1, _of_heads(index.matrix().transpose(1, 2), k)).transpose(-1, -2)
    return skew(_product(k, by_offset(vectors).flip(-2)), index.window.queries).transpose(-1, -2)


def weighted_sum(p: Tensor, vectors: Relative) -> Tensor:
    """(B, H, Q, K) -> (B, H, Q, d): ``Σ_j p_ij · table[row(i, j)]``."""
    index = vectors.index
    if not index.by_diagonal:
        sums = precise(p).new_zeros(*p.shape[:-1], vectors.table.shape[1])  # of the weights, by row
        sums = sums.scatter_add(-1, _of_heads(index.matrix(), p), precise(p))  # a GPU rounds after each of them
        return sums.to(p.dtype) @ vectors.table.to(p.dtype)
    return unskew(p) @ by_offset(vectors).to(p.dtype)


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


def _product(x: Tensor, vectors: Tensor) -> Tensor:
    """(B, H, N, d), (1 or H, M, d) -> (B, H, N, M). Vectors shared by the heads make one plain matrix product."""
    vectors = vectors.to(x.dtype)
    return product(x, (vectors[0] if len(vectors) == 1 else vectors).transpose(-1, -2))


def _of_heads(rows: Tensor, like: Tensor) -> Tensor:
    """(B or 1, N, M) -> (B, H, N, M), for queries, keys or weights (B, H, N, …)."""
    return rows[:, None].expand(*like.shape[:2], -1, -1)
