"""The canonical form that every positional-encoding scheme is written in, and the geometry it is indexed by.

With one head's query, key and value ``q_i``, ``k_j``, ``v_j`` of dimension ``d`` and the offset ``r = j - i``
(key minus query, everywhere)::

    e_ij = s · C(q_i·k_j, q_i·A_r, k_j·B_r) · g_r + b_ij        s = 1/sqrt(f·d)
    p    = softmax_j(e)
    z_i  = Σ_j p_ij (v_j + V_r)

A scheme turns its parameters into :class:`Terms`; attention turns terms into ``z``. Neither knows the other.

Sizes in shape comments: ``B`` batch, ``H`` heads, ``Q`` queries, ``K`` keys, ``d`` head dimension, ``D`` model
dimension, ``R = Q + K - 1`` offsets, ``T`` table rows.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

Value = TypeVar("Value")


class Window:
    """Which queries meet which keys in one forward pass.

    Keys stand at positions ``0 … keys-1`` and queries at the last ``queries`` of them, so that an encoder has
    ``queries == keys`` and a decoder with a cache of keys has fewer queries. The window also remembers what was computed
    for it (:meth:`once`): whatever does not depend on the layer or the input is computed once a forward pass.
    """

    def __init__(
        self, keys: int, queries: int | None = None, *, causal: bool = False, device: torch.device | str | None = None
    ) -> None:
        self.keys = keys
        self.queries = keys if queries is None else queries
        if not 1 <= self.queries <= keys:
            raise ValueError(f"a window needs 1 <= queries <= keys, got {self.queries} queries and {keys} keys")
        self.causal = causal
        self.device = device
        self._memo: dict[Hashable, Any] = {}

    @property
    def start(self) -> int:
        """Position of the first query."""
        return self.keys - self.queries

    @property
    def offsets(self) -> Tensor:
        """(R,) every offset ``r = j - i`` that occurs, ascending: ``-(K-1) … Q-1``."""
        return self.once("offsets", lambda: torch.arange(1 - self.keys, self.queries, device=self.device))

    def once(self, key: Hashable, compute: Callable[[], Value]) -> Value:
        """``compute()``, remembered under ``key`` for as long as this window lives."""
        if key not in self._memo:
            self._memo[key] = compute()
        return self._memo[key]

    def same(self, parts: tuple[object, ...], compute: Callable[[], Value]) -> Value:
        """``compute()``, or its last result where ``parts`` are the same objects as then. Only the last one is remembered."""
        last, value = self._memo.get("same", ((), None))
        if len(last) != len(parts) or any(a is not b for a, b in zip(last, parts, strict=True)):
            value = compute()
            self._memo["same"] = parts, value
        return value

    def forget(self) -> None:
        """Let go of what was remembered: it refers back to the window, and would stay until Python looks for cycles."""
        self._memo.clear()


@dataclass(frozen=True, eq=False)
class Sample:
    """What input embeddings may look at: the tokens, if there are any, and each token's position in its sequence."""

    tokens: Tensor | None  # (B, n)
    positions: Tensor  # (B or 1, n), counted from 0 over the tokens that are not padding


def precise(tensor: Tensor) -> Tensor:
    """In float32 or better: offsets, exponents and scores do not fit into half precision."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def toeplitz(vector: Tensor, keys: int) -> Tensor:
    """(…, R) -> (…, Q, K): ``out[i, j] = vector[j - i + Q - 1]``."""
    return vector.unfold(-1, keys, 1).flip(-2)


def skew(scores: Tensor, keys: int) -> Tensor:
    """(…, Q, R) -> (…, Q, K): ``out[i, j] = scores[i, j - i + Q - 1]``, as a view of contiguous scores."""
    return _Skew.apply(scores, keys)


def unskew(weights: Tensor) -> Tensor:
    """(…, Q, K) -> (…, Q, R), the adjoint of :func:`skew`: ``out[i, r] = weights[i, r + i - Q + 1]``, else 0."""
    return _Unskew.apply(weights)


class _Skew(torch.autograd.Function):
    """Each of the two is the other's gradient, which spares the buffers that differentiating their slices would fill."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, keys: int) -> Tensor:
        return _skewed_view(scores.contiguous(), keys)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return unskew(gradient), None


class _Unskew(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor) -> Tensor:
        queries, keys = weights.shape[-2:]
        ctx.keys = keys
        rows = weights.new_zeros(*weights.shape[:-1], queries + keys - 1)
        _skewed_view(rows, keys).copy_(weights)
        return rows

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return skew(gradient, ctx.keys)


def _skewed_view(rows: Tensor, keys: int) -> Tensor:
    queries, offsets = rows.shape[-2:]
    if queries == 1:
        return rows.view_as(rows)
    flat = rows.flatten(-2)[..., queries - 1 : queries * offsets - 1]
    return flat.unflatten(-1, (queries, offsets - 1))[..., :keys]


@dataclass(frozen=True, eq=False)
class RelativeIndex:
    """The function ``(i, j) -> row`` by which every relative table is read, and nothing else reads one.

    ``rows[t]`` is the row of the offset ``window.offsets[t]``; ``None`` says that the table has exactly one row an offset.
    ``cls_rows = (from_cls, to_cls)``, if given, overrides it where position 0 ([CLS]) is the query, and where it is the
    key of another query (Ke et al. 2021, section 3.2).
    """

    window: Window
    rows: Tensor | None = None  # (R,)
    cls_rows: tuple[int, int] | None = None

    def matrix(self) -> Tensor:
        """(Q, K) the row of every pair: the definition that the methods of :class:`Relative` agree with."""
        rows = torch.arange(len(self.window.offsets), device=self.window.device) if self.rows is None else self.rows
        matrix = toeplitz(rows, self.window.keys)
        if self.cls_rows is None:
            return matrix
        return self.replace_cls(matrix, *torch.tensor(self.cls_rows))

    def replace_cls(self, scores: Tensor, from_cls: Tensor, to_cls: Tensor) -> Tensor:
        """(…, Q, K) with the row of query 0 replaced by ``from_cls`` and the rest of the column of key 0 by ``to_cls``.

        Both replacements broadcast against ``(…, Q, K)``.
        """
        to_key_0 = torch.zeros(self.window.keys, dtype=torch.bool, device=scores.device)
        to_key_0[0] = True
        scores = torch.where(to_key_0, to_cls.to(scores), scores)
        if self.window.start == 0:
            from_query_0 = torch.zeros(self.window.queries, 1, dtype=torch.bool, device=scores.device)
            from_query_0[0] = True
            scores = torch.where(from_query_0, from_cls.to(scores), scores)
        return scores


@dataclass(frozen=True, eq=False)
class Relative:
    """A table with one row a class of offsets, and the index that reads it.

    ``table`` is ``(1 or H, T)`` for a scalar an offset or ``(1 or H, T, d)`` for a vector an offset. No method builds a
    ``(Q, K, d)`` tensor: products are taken once an offset, ``(Q, R)``, and shifted into place.
    """

    table: Tensor
    index: RelativeIndex

    def dense(self) -> Tensor:
        """Scalars (1 or H, T) -> (1 or H, Q, K): ``table[row(i, j)]``."""
        scores = toeplitz(self._by_offset(), self.index.window.keys)
        if self.index.cls_rows is None:
            return scores
        return self.index.replace_cls(scores, *(self.table[:, row, None, None] for row in self.index.cls_rows))

    def times_queries(self, q: Tensor) -> Tensor:
        """(B, H, Q, d) -> (B, H, Q, K): ``q_i · table[row(i, j)]``."""
        scores = skew(_product(q, self._by_offset()), self.index.window.keys)
        if self.index.cls_rows is None:
            return scores
        return self.index.replace_cls(scores, *_product(q, self._cls_rows()).split(1, dim=-1))

    def times_keys(self, k: Tensor) -> Tensor:
        """(B, H, K, d) -> (B, H, Q, K): ``k_j · table[row(i, j)]``."""
        descending = self._by_offset().flip(-2)
        scores = skew(_product(k, descending), self.index.window.queries).transpose(-1, -2)
        if self.index.cls_rows is None:
            return scores
        return self.index.replace_cls(scores, *_product(k, self._cls_rows()).transpose(-1, -2).split(1, dim=-2))

    def weighted_sum(self, p: Tensor) -> Tensor:
        """(B, H, Q, K) -> (B, H, Q, d): ``Σ_j p_ij · table[row(i, j)]``."""
        if self.index.cls_rows is None:
            return unskew(p) @ self._by_offset()
        zero, one = p.new_zeros(()), p.new_ones(())
        ordinary = self.index.replace_cls(p, zero, zero)
        from_cls = self.index.replace_cls(torch.zeros_like(p), one, zero) * p
        to_cls = p - ordinary - from_cls
        reset = torch.stack([from_cls.sum(-1), to_cls.sum(-1)], dim=-1)  # (B, H, Q, 2)
        return unskew(ordinary) @ self._by_offset() + reset @ self._cls_rows()

    def _by_offset(self) -> Tensor:
        """(1 or H, R) or (1 or H, R, d): the row of every offset. Few rows: cheaper before a product than after."""
        return self.table if self.index.rows is None else self.table.index_select(1, self.index.rows)

    def _cls_rows(self) -> Tensor:
        """(1 or H, 2, d)"""
        assert self.index.cls_rows is not None
        return torch.stack([self.table[:, row] for row in self.index.cls_rows], dim=1)


def _product(x: Tensor, vectors: Tensor) -> Tensor:
    """(B, H, N, d), (1 or H, M, d) -> (B, H, N, M). Vectors shared by the heads make one plain matrix product."""
    vectors = vectors.to(x.dtype)
    return x @ (vectors[0] if len(vectors) == 1 else vectors).transpose(-1, -2)


Rotation = Callable[[Tensor, Tensor], "tuple[Tensor, Tensor]"]


@dataclass(frozen=True, eq=False)
class Terms:
    """One layer's terms of the canonical form. What is empty is absent; terms of one kind add up, gains multiply.

    Everything that is not a plain additive bias is either applied to the inputs (``inputs``, ``rotations``) before attention
    sees them, or needs a backend that knows it.
    """

    factor: float = 1.0  # f of the scale s = 1/sqrt(f·d)
    multiply: bool = False  # C: the product of q·k, ΣA and ΣB rather than their sum
    content: bool = True  # whether q·k is there at all (the Synthesizer has none)
    inputs: tuple[Tensor, ...] = ()  # (B or 1, Q, D), added to the layer's attention input
    rotations: tuple[Rotation, ...] = ()  # (q, k) -> (q, k), both (B, H, ·, d), before every product
    query_tables: tuple[Relative, ...] = ()  # A_r, vectors
    key_tables: tuple[Relative, ...] = ()  # B_r, vectors
    hidden_query_tables: tuple[Relative, ...] = ()  # (1, T, D): A once the layer's own key projection is applied
    hidden_key_tables: tuple[Relative, ...] = ()  # (1, T, D): B once the layer's own query projection is applied
    value_tables: tuple[Relative, ...] = ()  # V_r, vectors
    gains: tuple[Relative, ...] = ()  # g_r, scalars
    biases: tuple[Relative | Tensor, ...] = ()  # b: scalars an offset, or dense (1 or B, 1 or H, Q, K)
    cls_bias: Relative | None = None  # in the rows that [CLS] has in this table, b is its scalar instead of the sum

    @property
    def vectors(self) -> tuple[Relative, ...]:
        """Everything that takes part in ``C`` beside q·k."""
        return self.query_tables + self.key_tables + self.hidden_query_tables + self.hidden_key_tables

    def project(self, keys: Callable[[Tensor], Tensor], queries: Callable[[Tensor], Tensor]) -> Terms:
        """These terms with the hidden tables put through the layer's own projections, (1, T, D) -> (H, T, d) each."""
        if not self.hidden_query_tables + self.hidden_key_tables:
            return self
        a = tuple(replace(hidden, table=keys(hidden.table)) for hidden in self.hidden_query_tables)
        b = tuple(replace(hidden, table=queries(hidden.table)) for hidden in self.hidden_key_tables)
        return replace(
            self,
            query_tables=self.query_tables + a,
            key_tables=self.key_tables + b,
            hidden_query_tables=(),
            hidden_key_tables=(),
        )

    def bias(self) -> Tensor | None:
        """(1 or B, 1 or H, Q, K): the whole additive bias, or None where there is none."""
        dense = [b.dense()[None] if isinstance(b, Relative) else b for b in self.biases]
        total = sum(dense[1:], start=dense[0]) if dense else None
        if self.cls_bias is None:
            return total
        index = self.cls_bias.index
        if total is None:
            total = self.cls_bias.table.new_zeros(1, 1, index.window.queries, index.window.keys)
        assert index.cls_rows is not None
        return index.replace_cls(total, *(self.cls_bias.table[:, row, None, None] for row in index.cls_rows))

    @classmethod
    def sum(cls, parts: Sequence[Terms], factor: float) -> Terms:
        """All parts in one, under the scale factor ``factor``.

        Raises:
            ValueError: the parts have no meaning together.
        """
        if any(part.multiply for part in parts) and sum(bool(part.vectors) for part in parts) > 1:
            raise ValueError("a product of q·k, q·A and k·B cannot take in the vector terms of another scheme")
        if any(part.multiply for part in parts) and not all(part.content for part in parts):
            raise ValueError("a product with q·k has no meaning beside a scheme that takes q·k away")
        if sum(part.cls_bias is not None for part in parts) > 1:
            raise ValueError("[CLS] can be reset only once")
        return cls(
            factor=factor,
            multiply=any(part.multiply for part in parts),
            content=all(part.content for part in parts),
            cls_bias=next((part.cls_bias for part in parts if part.cls_bias is not None), None),
            **{
                field.name: tuple(item for part in parts for item in getattr(part, field.name))
                for field in fields(cls)
                if field.name not in ("factor", "multiply", "content", "cls_bias")
            },
        )
