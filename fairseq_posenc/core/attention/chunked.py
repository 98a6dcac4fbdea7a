"""Attention a few heads at a time and in place, so that their scores stay in a CPU's caches.

Operations on scores then take little time compared with the matrix products; on all heads at once they would wait for memory.
With dropout's D (0 or 1 / share), ``w = D p`` and ``δ_i = dz_i · z_i``, the backward pass is::

    dv_j = Σ_i w_ij dz_i       dV_r = Σ w_ij dz_i       dp_ij = dz_i · (v_j + V_r)       de = w dp - p δ       db = de

    dg = de s C        dC = de s g        and those of X = q·k, Y = q·A and Z = k·B for C = X + Y + Z or X Y Z

The forward pass keeps p, and a byte of D for each pair. If gradients need the products (with a gain, or if C is a product), the
backward pass recomputes them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..terms import RelativeIndex, Terms, exact, is_captured, precise
from . import shifted
from .base import Attend, Backend, opaque, register_backend
from .bias import additive_bias, beyond_bias, low_rank_bias
from .call import EVERY, Call, Mask, cut
from .dropout import draw, kept_scale
from .relative import gain_of, offsets_of, sum_by_offset
from .transform import fold, transform

SCORES = 2**20  # per thread and chunk: 4 MiB. At n = 512 a quarter of it took a tenth longer, and twice as much no less


@register_backend
class Chunked(Backend):
    """Runs what schemes usually have; :meth:`objection` names the rest."""

    name = "chunked"

    def objection(self, terms: Terms, call: Call | None = None) -> str | None:
        if len({table.index.cls_rows is None for table in terms.vectors + terms.value_tables}) > 1:
            return "it has no place for vectors of which only some have rows for [CLS]"
        if not terms.content and beyond_bias(terms):
            return "it has no place for scores without q·k, but for a bias of low rank alone"
        if terms.combine == "multiply" and not (terms.query_tables and terms.key_tables):
            return "it has no place for a product of two"
        if call is not None and call.weights:
            return "it does not give the attention weights"
        return None

    def suits(self, terms: Terms, call: Call | None = None) -> bool:
        """On a CPU: a GPU has more to do at once than a few heads. The scores of one query are in its caches anyway."""
        on_cpu = call is not None and call.queries > 1 and call.device.type == "cpu"
        return on_cpu and not is_captured() and super().suits(terms, call)

    def bind(self, terms: Terms, mask: Mask, call: Call) -> Attend:
        low_rank = None if terms.content else low_rank_bias(terms, call)
        scale = 1 / math.sqrt(terms.factor * call.head_dim)
        setup = Setup(scale, terms.combine, call.dropout, *_additive(mask.blocked(call, terms.window), call.dtype), _pairs(terms))
        vectors = [sum_by_offset(tables) for tables in (terms.query_tables, terms.key_tables, terms.value_tables)]
        parts = []
        for tile in call.tiles(terms.window):
            bias = additive_bias(terms, call, tile) if low_rank is None else None
            scalars = (None if x is None else precise(x) for x in (gain_of(terms, tile), bias))
            rows = EVERY if setup.pairs is not None else offsets_of(call.queries, tile)
            parts.append((tile, setup.part(*tile), (*(cut(x, EVERY, rows) for x in vectors), *scalars)))

        def attend(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, None]:
            with exact(q.device):
                q, k = fold(*transform(precise(q), precise(k), terms), low_rank, scale, terms.content)
                run, training, v32 = opaque(_Attention.apply), torch.is_grad_enabled(), precise(v)
                z = [run(own, training, q[:, :, i], k[:, :, j], v32[:, :, j], *rest) for (i, j), own, rest in parts]
                return (z[0] if len(z) == 1 else torch.cat(z, dim=2)).to(v.dtype), None

        return attend


def _pairs(terms: Terms) -> Tensor | None:
    """``pairs`` of :class:`Setup`."""
    index = next((table.index for table in terms.vectors + terms.value_tables), None)
    if index is None or index.by_diagonal:
        return None
    rows = len(index.window.offsets)
    return RelativeIndex(index.window, cls_rows=(rows, rows + 1) if index.cls_rows else None).matrix()


@dataclass(frozen=True, eq=False)
class Setup:
    """The arguments of attention other than tensors that have gradients."""

    scale: float
    combine: Literal["add", "multiply"]
    dropout: float
    mask: Tensor | None  # (B or 1, 1, Q or 1, K), added to e: so low at masked keys that p is 0
    any_visible: Tensor | None  # (B or 1, 1, Q or 1, 1), 0 for fully masked queries, else 1
    pairs: Tensor | None  # (B or 1, Q, K) the row of each pair in tables of vectors, where it is not that of its diagonal

    def part(self, queries: slice, keys: slice) -> Setup:
        """The same of a tile."""
        mask, any_visible = cut(self.mask, EVERY, EVERY, queries, keys), cut(self.any_visible, EVERY, EVERY, queries)
        return replace(self, mask=mask, any_visible=any_visible, pairs=cut(self.pairs, EVERY, queries, keys))


Part = tuple[slice, slice]  # of the batch and of the heads


class Inputs(NamedTuple):
    """What has gradients, or these gradients."""

    q: Tensor  # (B, H, Q, d)
    k: Tensor  # (B, H, K, d)
    v: Tensor  # (B, H, K, d)
    a: Tensor | None  # A, B and V: (1 or H, rows, d)
    b: Tensor | None
    values: Tensor | None
    gain: Tensor | None  # (1 or B, 1 or H, Q, K)
    bias: Tensor | None  # likewise

    def part(self, part: Part) -> Inputs:
        """The same of a part; what is shared is whole."""
        a, b, values = (cut(x, part[1]) for x in self[3:6])
        return Inputs(self.q[part], self.k[part], self.v[part], a, b, values, cut(self.gain, *part), cut(self.bias, *part))


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, setup: Setup, training: bool, *tensors: Tensor | None) -> Tensor:
        inputs = Inputs(*tensors)  # type: ignore[arg-type]  # the first three are there
        (batch, heads, queries, _), keys = inputs.q.shape, inputs.k.shape[2]
        shape = batch, heads, queries, keys
        keeps = training and any(ctx.needs_input_grad)  # which no_grad does not change
        weights = inputs.q.new_empty(shape if keeps else 0)
        kept = inputs.q.new_empty(shape if keeps and setup.dropout else 0, dtype=torch.bool)
        z = inputs.v.new_empty(batch, queries, heads, inputs.v.shape[-1]).transpose(1, 2)
        for part in _parts(*shape):
            chunk = _Chunk(setup, inputs.part(part), part)
            e = chunk.scores()
            p = torch.softmax(e, -1, out=weights[part].flatten(0, 1) if keeps else None)
            if chunk.any_visible is not None:
                p.unflatten(0, chunk.shape).mul_(chunk.any_visible)
            w = p
            if setup.dropout:
                keep = kept[part].flatten(0, 1) if keeps else torch.empty_like(e, dtype=torch.bool)
                draw(keep, setup.dropout)
                w = e.copy_(keep.view(torch.uint8)).mul_(p)  # much faster than a product with booleans
            sums = torch.bmm(w, chunk.v)
            if chunk.values is not None:
                chunk.by_query.add_sums(sums, w, chunk.values)
            z[part] = (sums * kept_scale(setup.dropout)).unflatten(0, chunk.shape)
        ctx.setup = setup
        ctx.save_for_backward(z, weights, kept, *inputs)
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dz: Tensor) -> tuple[Tensor | None, ...]:
        setup: Setup = ctx.setup
        z, weights, kept, *tensors = ctx.saved_tensors
        inputs, needed = Inputs(*tensors), ctx.needs_input_grad[2:]
        wanted = (x if t < 3 or needed[t] else None for t, x in enumerate(inputs))
        whole = Inputs(*(None if x is None else torch.zeros_like(x) for x in wanted))  # type: ignore[arg-type]
        for part in _parts(*weights.shape):
            chunk, gradients = _Chunk(setup, inputs.part(part), part), whole.part(part)
            p, dsums = weights[part].flatten(0, 1), (dz[part] * kept_scale(setup.dropout)).flatten(0, 1)
            w = p
            if setup.dropout:
                w = torch.empty_like(p).copy_(kept[part].flatten(0, 1).view(torch.uint8)).mul_(p)
            gradients.v.copy_(torch.bmm(w.transpose(1, 2), dsums).unflatten(0, chunk.shape))
            if chunk.values is not None and gradients.values is not None:
                chunk.add(gradients.values, chunk.by_query.sum_gradients(dsums, w, chunk.values))
            de = torch.bmm(dsums, chunk.v.transpose(1, 2))
            if chunk.values is not None:
                chunk.by_query.add_products(de, dsums, chunk.values)
            delta = (dz[part] * z[part]).sum(-1, keepdim=True).flatten(0, 1)
            chunk.add_gradients(gradients, de.mul_(w).addcmul_(p, delta, value=-1))
        return None, None, *(x if need else None for x, need in zip(whole, needed, strict=True))


class _Chunk:
    """Some heads of some sequences, (G, …), and what is done to their scores."""

    def __init__(self, setup: Setup, inputs: Inputs, part: Part) -> None:
        self.setup, self.inputs = setup, inputs
        self.shape = inputs.q.shape[:2]
        self.q, self.k, self.v = (x.flatten(0, 1) for x in inputs[:3])
        self.a, self.b, self.values = (x if x is None or len(x) == 1 else x.repeat(self.shape[0], 1, 1) for x in inputs[3:6])
        self.by_query: Any = shifted
        self.by_key: Any = shifted
        pairs, table = cut(setup.pairs, part[0]), next((x for x in inputs[3:6] if x is not None), None)
        if pairs is not None and table is not None:
            pairs = pairs[:, None].expand(*self.shape, -1, -1).flatten(0, 1)
            self.by_query = shifted.Gathered(pairs)
            self.by_key = shifted.Gathered(table.shape[1] - 1 - pairs.transpose(1, 2))  # of the tables in the opposite order
        self.mask, self.any_visible = cut(setup.mask, part[0]), cut(setup.any_visible, part[0])
        # Where X, Y and Z add up, each is scaled by itself, in its smaller factor; where they multiply, X is.
        self.scale = setup.scale
        self.multiplies = setup.combine == "multiply"
        self.table_scale = 1.0 if self.multiplies else setup.scale

    def scores(self) -> Tensor:
        """e (G, Q, K)."""
        x, y, z = self._products()
        e = x.mul_(y).mul_(z) if self.multiplies else x
        by_head = self._by_head(e)
        if self.inputs.gain is not None:
            by_head *= self.inputs.gain
        if self.inputs.bias is not None:
            by_head += self.inputs.bias
        if self.mask is not None:
            by_head += self.mask
        return e

    def add_gradients(self, gradients: Inputs, de: Tensor) -> None:
        """Add those of the scores to ``gradients``. ``de`` is lost."""
        by_head, scale = self._by_head(de), self.table_scale
        if gradients.bias is not None:
            gradients.bias.add_(by_head.sum_to_size(gradients.bias.shape))
        dx = dy = dz = de
        if self.multiplies or self.inputs.gain is not None:
            x, y, z = self._products()
            if gradients.gain is not None:
                of_gain = self._by_head(de * x * y * z if self.multiplies else de * x)
                gradients.gain.add_(of_gain.sum_to_size(gradients.gain.shape))
            if self.inputs.gain is not None:
                by_head *= self.inputs.gain
            if self.multiplies:
                dy = de * x
                dz, dy, dx = dy * y, dy.mul_(z), de.mul_(y).mul_(z)
        dq, dk = torch.bmm(dx, self.k).mul_(self.scale), torch.bmm(dx.transpose(1, 2), self.q).mul_(self.scale)
        if self.a is not None:
            self.add(gradients.a, self.by_query.add_product_gradients(dq, dy, self.q, self.a, scale))
        if self.b is not None:
            of_keys = self.by_key.add_product_gradients(dk, dz.transpose(1, 2), self.k, self.b.flip(1), scale)
            self.add(gradients.b, of_keys.flip(1))
        gradients.q.copy_(dq.unflatten(0, self.shape))
        gradients.k.copy_(dk.unflatten(0, self.shape))

    def add(self, gradient: Tensor | None, addition: Tensor) -> None:
        """Add (1 or G, …) to (1 or H, …), where that is needed."""
        if gradient is not None:
            gradient += addition if len(addition) == 1 else self._by_head(addition).sum_to_size(1, *gradient.shape)[0]

    def _products(self) -> tuple[Tensor, Tensor, Tensor]:
        """s q·k, q·A and k·B; where they are added, the same tensor three times: their scaled sum."""
        x = torch.bmm(self.q * self.scale, self.k.transpose(1, 2))
        y, z = (torch.zeros_like(x), torch.zeros_like(x)) if self.multiplies else (x, x)
        if self.a is not None:
            self.by_query.add_products(y, self.q * self.table_scale, self.a)
        if self.b is not None:
            self.by_key.add_products(z.transpose(1, 2), self.k * self.table_scale, self.b.flip(1))
        return x, y, z

    def _by_head(self, x: Tensor) -> Tensor:
        """(G, …) -> (b, h, …), a view."""
        return x.unflatten(0, self.shape)


def _parts(batch: int, heads: int, queries: int, keys: int) -> Iterator[Part]:
    """Whole sequences, or heads of one, with about :data:`SCORES` per thread."""
    matrices = max(1, SCORES * torch.get_num_threads() // (queries * keys))
    wide = min(heads, matrices)
    rows = max(1, matrices // heads)
    for b in range(0, batch, rows):
        for h in range(0, heads, wide):
            yield slice(b, min(b + rows, batch)), slice(h, min(h + wide, heads))


def _additive(blocked: Tensor | None, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
    """``mask`` and ``any_visible`` of :class:`Setup`: a sum and a product take less time than ``masked_fill``."""
    if blocked is None:
        return None, None
    like = precise(torch.empty(0, dtype=dtype, device=blocked.device))
    lowest = torch.finfo(like.dtype).min
    return like.new_zeros(blocked.shape).masked_fill_(blocked, lowest), (~blocked).any(-1, keepdim=True).to(like.dtype)
