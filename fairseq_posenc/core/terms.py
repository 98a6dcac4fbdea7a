"""The canonical form that every positional-encoding scheme is written in: its values, and the index of its tables.

With one head's query, key and value ``q_i``, ``k_j``, ``v_j`` of dimension ``d`` and the offset ``r = j - i``
(key minus query, everywhere)::

    e_ij = s · C(q_i·k_j, q_i·A_r, k_j·B_r) · g_r + b_ij        s = 1/sqrt(f·d)
    p    = softmax_j(e)
    z_i  = Σ_j p_ij (v_j + V_r)

A scheme turns its parameters into :class:`Terms`; attention turns terms into ``z``. Neither depends on the other.

Sizes in shape comments: ``B`` batch, ``H`` heads, ``Q`` queries, ``K`` keys, ``d`` head dimension, ``D`` model
dimension, ``R = Q + K - 1`` offsets, ``T`` table rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F


def is_captured() -> bool:
    """Whether torch.export, torch.compile or torch.jit.trace runs this: lengths are symbols, and no data can be read."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def cached(compute: Callable[[Any], Tensor]) -> Any:
    """A property that is computed once. ``functools.cached_property`` has a lock in Python 3.11, which torch.compile refuses."""
    name = f"_{compute.__name__}"

    def read(self: Any) -> Tensor:
        if getattr(self, name, None) is None:
            setattr(self, name, compute(self))
        return getattr(self, name)

    return property(read, doc=compute.__doc__)


class Window:
    """The positions of the queries and keys of one forward pass.

    Queries are the last ``queries`` of the keys: an encoder has ``queries == keys``, and a decoder with a cache has fewer. By
    default the keys have the positions ``0 … keys-1`` (``contiguous``), for which all backends are fast. Tables that schemes
    compute rather than learn have the type ``dtype``, or float32 if that is more precise.

    Args:
        keys: K.
        queries: Q; by default K.
        positions: (B or 1, K) the position of each key, if others than those.
        span: the positions are whole numbers below it. Without it they are real numbers, which learned tables have no rows for.
        first: (B or 1, K) bool, whether a key is the first token of its document ([CLS]); by default, only key 0 is.
        padding: (B, K) bool, True at padding, which is no token's neighbour.
        documents: (B or 1, K) the place where each key's document starts; by default, all keys are of one.
        causal: whether queries attend only to keys that are not after them.
        device: of tables.
        dtype: of tables.
    """

    def __init__(
        self,
        keys: int,
        queries: int | None = None,
        *,
        positions: Tensor | None = None,
        span: int | None = None,
        first: Tensor | None = None,
        padding: Tensor | None = None,
        documents: Tensor | None = None,
        causal: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self.keys = keys
        self.queries = keys if queries is None else queries
        if not 1 <= self.queries <= keys:
            raise ValueError(f"a window needs 1 <= queries <= keys, got {self.queries} queries and {keys} keys")
        self.causal = causal
        self.device = torch.get_default_device() if device is None else torch.device(device)
        self.dtype = torch.promote_types(dtype, torch.float32)
        self.contiguous = positions is None
        self.span = keys if positions is None else span
        self.first = first
        self.padding = padding
        self.documents = documents
        self._positions = positions if positions is None or span is not None else positions.to(self.dtype)

    @property
    def start(self) -> int:
        """Number of the first query among the keys."""
        return self.keys - self.queries

    @cached
    def positions(self) -> Tensor:
        """(B or 1, K) the positions of the keys; from ``start`` on, those of the queries."""
        return torch.arange(self.keys, device=self.device)[None]

    @property
    def query_positions(self) -> Tensor:
        """(B or 1, Q)."""
        return self.positions[:, self.start :]

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The least and the largest of :attr:`offsets`, if they are all whole numbers between the two."""
        return None if self.span is None else (1 - self.span, self.queries - 1 if self.contiguous else self.span - 1)

    @cached
    def offsets(self) -> Tensor:
        """(R,) every offset ``r = j - i`` that occurs: whole numbers, ascending, or the real number of each pair."""
        if self.bounds is None:
            return self._differences.flatten()
        return torch.arange(self.bounds[0], self.bounds[1] + 1, device=self.device)

    @cached
    def pairs(self) -> Tensor:
        """(B or 1, Q, K) the place in :attr:`offsets` of each pair's offset."""
        if self.bounds is None:
            return torch.arange(self.offsets.numel(), device=self.device).view_as(self._differences)
        return self._differences - self.bounds[0]

    def neighbours(self, steps: Tensor) -> Tensor:
        """(H, T) steps along the row -> (B or 1, H, T, K) the key so far from each key, -1 where its document has none there."""
        keys = torch.arange(self.keys, device=self.device)
        places = keys + steps[..., None]
        there = places.clamp(0, self.keys - 1)
        valid = (places == there)[None]
        if self.documents is not None:
            valid = valid & (self.documents[:, there] == self.documents[:, None, None])
        if self.padding is not None:
            valid = valid & ~self.padding[:, there]
        return there.where(valid, -1)

    def seen(self, width: int | None) -> Tensor:
        """(B or 1, Q) the number of keys that each query sees, at most ``width`` places away; 1 where it sees none."""
        keys = torch.arange(self.keys, device=self.device)[None]
        present = torch.ones_like(keys) if self.padding is None else (~self.padding).long()
        first = torch.zeros_like(present) if self.documents is None else self.documents + torch.zeros_like(present)
        sizes = torch.zeros_like(first).scatter_add(1, first, torch.ones_like(first))
        last = torch.zeros_like(first) + keys if self.causal else first + sizes.gather(1, first) - 1
        if width is not None:
            first, last = first.maximum(keys - width), last.minimum(keys + width)
        before = F.pad((present + torch.zeros_like(first)).cumsum(1), (1, 0))  # (B or 1, K + 1) tokens before each place
        return (before.gather(1, last + 1) - before.gather(1, first)).clamp(min=1)[:, self.start :]

    @property
    def _differences(self) -> Tensor:
        return self.positions[:, None, :] - self.query_positions[:, :, None]


def precise(tensor: Tensor) -> Tensor:
    """Return the tensor in float32 or better: offsets, exponents and scores do not fit into half precision."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def exact(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context without autocast, which would round what is computed in float32 for that reason."""
    return torch.autocast(device.type, enabled=False) if autocasts(device) else nullcontext()


def autocasts(device: torch.device) -> bool:
    """Whether autocast is on for the tensors of a device."""
    return device.type != "meta" and torch.is_autocast_enabled(device.type)


def computed_in(x: Tensor) -> torch.dtype:
    """Return the type in which linear maps and attention compute ``x``: that of autocast where it is on."""
    return torch.get_autocast_dtype(x.device.type) if autocasts(x.device) else x.dtype


@dataclass(frozen=True, eq=False)
class RelativeIndex:
    """The function ``(i, j) -> row`` by which every relative table is read.

    ``rows[t]`` is the row of the offset ``window.offsets[t]``; ``None`` means that the table has exactly one row per offset.
    ``cls_rows = (from_cls, to_cls)``, if given, overrides it where the first token of a document ([CLS]) is the query, and where
    it is the key of another query (Ke et al. 2021, section 3.2).
    """

    window: Window
    rows: Tensor | None = None  # (R,)
    cls_rows: tuple[int, int] | None = None

    @property
    def by_diagonal(self) -> bool:
        """Whether each diagonal has one row, that of its offset."""
        return self.window.contiguous and self.cls_rows is None

    def matrix(self) -> Tensor:
        """(B or 1, Q, K) the row of every pair: the definition that every product with a table agrees with."""
        rows = self.window.pairs if self.rows is None else self.rows[self.window.pairs]
        if self.cls_rows is None:
            return rows
        from_cls, to_cls = self.cls_rows
        first = first_tokens(self.window.first, self.window.keys, rows.device)
        rows = rows.masked_fill(first[:, None, :], to_cls)
        return rows.masked_fill(first[:, self.window.start :, None], from_cls)


def first_tokens(first: Tensor | None, keys: int, device: torch.device) -> Tensor:
    """(B or 1, K) bool: what :attr:`Window.first` means."""
    return torch.arange(keys, device=device)[None] == 0 if first is None else first


def starts_of(begins: Tensor) -> Tensor:
    """(B, n) whether a part of the row begins at each place -> (B, n) the place where the part of each begins.

    This is ``cummax`` of these places, which ONNX does not have.
    """
    part = begins.long().cumsum(1)
    places = torch.arange(begins.shape[1], device=begins.device) * begins
    return places.new_zeros(begins.shape[0], begins.shape[1] + 1).scatter_add(1, part, places).gather(1, part)


@dataclass(frozen=True, eq=False)
class Relative:
    """A table with one row per class of offsets, and the index that reads it.

    ``table`` is ``(1 or H, T)`` for a scalar per offset or ``(1 or H, T, d)`` for a vector per offset.
    """

    table: Tensor
    index: RelativeIndex

    def cut(self, window: Window) -> Relative:
        """As :meth:`Terms.cut`."""
        first = self.index.window.keys - window.keys
        offsets = slice(first, first + window.keys + window.queries - 1)
        if self.index.rows is None:
            return Relative(self.table[:, offsets], RelativeIndex(window))
        return Relative(self.table, replace(self.index, window=window, rows=self.index.rows[offsets]))


@dataclass(frozen=True, eq=False)
class LowRank:
    """A bias that is a product of few numbers per position: ``b_ij = left_i · right_j``, scaled already.

    It never needs to be a (Q, K) matrix: ``q·k + b`` is the product of ``[q | left]`` and ``[k | right]``.
    """

    left: Tensor  # (1 or B, 1 or H, Q, rank)
    right: Tensor  # (1 or B, 1 or H, K, rank)

    def cut(self, window: Window) -> LowRank:
        """As :meth:`Terms.cut`."""
        return LowRank(self.left[..., window.start : window.keys, :], self.right[..., : window.keys, :])


@dataclass(frozen=True, eq=False)
class Rotation:
    """``x_t cos_t + x̃_t sin_t``, where x̃ is x after a quarter turn of every pair of features.

    Pairs are adjacent features (``interleaved``), or t and t + d/2.
    """

    cos: Tensor  # (K, d) or (1 or B, 1 or H, K, d), of the keys; queries take the last Q rows
    sin: Tensor  # of the same shape
    interleaved: bool = True
    turning: int | None = None  # how many pairs turn, the first ones; None: all may

    def cut(self, window: Window) -> Rotation:
        """As :meth:`Terms.cut`."""
        return replace(self, cos=self.cos[..., : window.keys, :], sin=self.sin[..., : window.keys, :])


@dataclass(frozen=True, eq=False)
class Polar:
    """Features become magnitudes ``softplus(x)``, and twice as many features: ``[μ cos φ, μ sin φ]``."""

    queries: Tensor  # (K, d), (B, 1, K, d) or (H, K, d), the angles φ of queries, which take the last Q rows, in radians
    keys: Tensor  # likewise

    def cut(self, window: Window) -> Polar:
        """As :meth:`Terms.cut`."""
        return Polar(*(angles[..., : window.keys, :] for angles in (self.queries, self.keys)))


@dataclass(frozen=True, eq=False)
class Expansion:
    """Further features of queries and keys: ``[q | R_i W (q + v)]`` and ``[k | r_j]``, with a rotation R of W's E features."""

    weight: Tensor  # (H, d, E)
    shift: Tensor  # (H, 1, d), v
    rotation: Rotation  # of the queries, by their positions, E features
    keys: Tensor  # (1 or B, 1, K, E), r

    def cut(self, window: Window) -> Expansion:
        """As :meth:`Terms.cut`."""
        return replace(self, rotation=self.rotation.cut(window), keys=self.keys[..., : window.keys, :])


@dataclass(frozen=True, eq=False)
class Shift:
    """Vectors that are added to queries and keys; None adds nothing."""

    queries: Tensor | None = None  # (1 or B, H, Q or 1, d), or without the first dimension
    keys: Tensor | None = None  # (1 or B, H, K or 1, d), or without the first dimension

    def cut(self, window: Window) -> Shift:
        """As :meth:`Terms.cut`."""

        def rows(x: Tensor | None, first: int) -> Tensor | None:
            return x if x is None or x.shape[-2] == 1 else x[..., first : window.keys, :]

        return Shift(rows(self.queries, window.start), rows(self.keys, 0))


@dataclass(frozen=True, eq=False)
class Convolution:
    """Keys that are mixed along the sequence, ``k'_j = Σ_t w_t k_{p_t(j)}``, before anything else happens to them."""

    weights: Tensor  # (1 or H, T, d), w
    places: Tensor  # (1 or B, 1 or H, T, K), p; -1: no key

    def cut(self, window: Window) -> Convolution:
        """As :meth:`Terms.cut`."""
        return replace(self, places=self.places[..., : window.keys])


@dataclass(frozen=True, eq=False)
class Scale:
    """What queries are multiplied by, after all other transforms."""

    queries: Tensor  # (1 or B, 1 or H, Q, 1)

    def cut(self, window: Window) -> Scale:
        """As :meth:`Terms.cut`."""
        return Scale(self.queries[..., window.start : window.keys, :])


Transform = Rotation | Polar | Expansion | Shift | Convolution | Scale


@dataclass(frozen=True, eq=False)
class Terms:
    """One layer's terms of the canonical form. An empty field is absent; terms of one kind are added, gains multiplied.

    Everything that is not a plain additive bias is either applied to the inputs of attention (``inputs``, ``transforms``), or
    needs a backend that implements it.
    """

    factor: float = 1.0  # f of the scale s = 1/sqrt(f·d)
    combine: Literal["add", "multiply"] = "add"  # C: the sum of q·k, ΣA and ΣB, or their product
    content: bool = True  # whether q·k is there at all (the Synthesizer has none)
    inputs: tuple[Tensor, ...] = ()  # (B or 1, Q, D), added to the layer's attention input
    transforms: tuple[Transform, ...] = ()  # of queries and keys, in this order, before every product
    query_tables: tuple[Relative, ...] = ()  # A_r, vectors
    key_tables: tuple[Relative, ...] = ()  # B_r, vectors
    hidden_query_tables: tuple[Relative, ...] = ()  # (1, T, D): A once the layer's own key projection is applied
    hidden_key_tables: tuple[Relative, ...] = ()  # (1, T, D): B once the layer's own query projection is applied
    value_tables: tuple[Relative, ...] = ()  # V_r, vectors
    gains: tuple[Relative, ...] = ()  # g_r, scalars
    biases: tuple[Relative | LowRank | Tensor, ...] = ()  # b: scalars per offset, low rank, or dense (1 or B, 1 or H, Q, K)
    cls_bias: Tensor | None = None  # (1 or H, 2): b_0j and, for i > 0, b_i0, each instead of the sum of the biases
    window: int | None = None  # keys of more than so many places to the left or right of the query are masked
    cls_first: Tensor | None = None  # (B or 1, K) bool, which keys these are the 0 of, as Window.first

    @property
    def vectors(self) -> tuple[Relative, ...]:
        """The tables in ``C``, apart from q·k."""
        return self.query_tables + self.key_tables + self.hidden_query_tables + self.hidden_key_tables

    @property
    def contiguous(self) -> bool:
        """Whether the index of every table is that of a contiguous window, whose diagonals are its offsets."""
        tables = self.vectors + self.value_tables + self.gains + tuple(b for b in self.biases if isinstance(b, Relative))
        return self.cls_first is None and all(table.index.window.contiguous for table in tables)

    @property
    def widens(self) -> bool:
        """Whether queries and keys have more features after the transforms."""
        return any(isinstance(change, (Polar, Expansion)) for change in self.transforms)

    @property
    def mixes_keys(self) -> bool:
        """Whether a key depends on its neighbours, so that all keys of a row are needed."""
        return any(isinstance(change, Convolution) for change in self.transforms)

    @property
    def projected(self) -> bool:
        """Whether all tables are projected."""
        return not self.hidden_query_tables + self.hidden_key_tables

    def project(self, keys: Callable[[Tensor], Tensor], queries: Callable[[Tensor], Tensor]) -> Terms:
        """These terms with the hidden tables put through the layer's own projections, (1, T, D) -> (H, T, d) each."""
        if self.projected:
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

    def cut(self, window: Window) -> Terms:
        """These terms, of a window with as many queries as keys, for a smaller window: its pairs (i, j) keep their terms.

        A decoder computes terms for many positions at once, and cuts out of them what each step needs.
        """
        queries, keys = slice(window.start, window.keys), slice(window.keys)
        others = [name for name in TUPLES if name not in ("inputs", "biases")]
        cut: dict[str, Any] = {name: tuple(part.cut(window) for part in getattr(self, name)) for name in others}
        return replace(
            self,
            **cut,
            inputs=tuple(addition[:, queries] for addition in self.inputs),
            biases=tuple(b[..., queries, keys] if isinstance(b, Tensor) else b.cut(window) for b in self.biases),
        )

    @classmethod
    def sum(cls, parts: Sequence[Terms], factor: float) -> Terms:
        """Combine the terms of several schemes under the scale factor ``factor``.

        Raises:
            ValueError: the parts have no meaning together.
        """
        multiplies = any(part.combine == "multiply" for part in parts)
        if multiplies and sum(bool(part.vectors) for part in parts) > 1:
            raise ValueError("a product of q·k, q·A and k·B cannot include the vector terms of another scheme")
        if multiplies and not all(part.content for part in parts):
            raise ValueError("a product with q·k has no meaning together with a scheme that removes q·k")
        scaled = [part for part in parts if any(isinstance(change, Scale) for change in part.transforms)]
        if scaled and (multiplies or not all(part.content for part in parts)):
            raise ValueError("a factor of queries needs scores with q·k in which each query is once: leave out log-n")
        changes = any(part.transforms or part.gains for part in parts)
        if changes and not all(part.content for part in parts) and not any(part.vectors for part in parts):
            raise ValueError("a scheme changes products of queries and keys, and another removes them: leave one of them out")
        changed = [part for part in parts if part not in scaled and (part.transforms or part.vectors)]
        if len(changed) > 1 and any(part.widens for part in changed):
            raise ValueError(
                "more features of queries and keys, which some schemes have between whole positions only, leave no meaning to "
                "rotations, shifts and vectors of another scheme"
            )
        if sum(part.cls_bias is not None for part in parts) > 1:
            raise ValueError("[CLS] can be reset only once")
        of_cls = next((part for part in parts if part.cls_bias is not None), cls())
        tuples = {name: tuple(item for part in parts for item in getattr(part, name)) for name in TUPLES}
        tuples["transforms"] = tuple(sorted(tuples["transforms"], key=_rank))
        return cls(
            factor=factor,
            combine="multiply" if multiplies else "add",
            content=all(part.content for part in parts),
            cls_bias=of_cls.cls_bias,
            cls_first=of_cls.cls_first,
            window=next((part.window for part in parts if part.window is not None), None),
            **tuples,
        )


def _rank(change: Transform) -> int:
    """Rotations come before what does not commute with them, so that the order of the schemes changes nothing."""
    if isinstance(change, Rotation):
        return 2 - change.interleaved
    return {Convolution: 0, Scale: 4}.get(type(change), 3)


TUPLES = tuple(field.name for field in fields(Terms) if field.default == ())
"""The fields of :class:`Terms` that are added up by being put one after the other."""
