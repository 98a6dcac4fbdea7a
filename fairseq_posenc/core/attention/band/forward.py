"""The forward pass: each program takes a block of queries and goes over its keys, correcting the softmax with each tile.

With ``M`` the greatest score so far and ``L = Σ_j exp(e_ij - M)``, a new tile multiplies both sums by ``exp(M_old - M)``::

    z_i = Σ_j D_ij exp(e_ij - M) (v_j + V_row(i, j)) / L           lse_i = M + log L

D is dropout: 0, or 1/(1 - rate). A fully masked query has z = 0 and lse = +inf, so that the backward pass computes p = 0.
"""

import triton
import triton.language as tl

from .scores import factors, score
from .tiles import kept, load_rows, over_keys, store_rows, visible, weigh

VARYING = ["g_head", "bias_head", "dense_batch", "dense_head", "documents_stride", "queries", "keys", "offsets"]
"""Numbers that differ from batch to batch: Triton would compile again for those that 16 divides, and for 1."""


@triton.jit
def key_range(
    m, b, queries, keys, documents, documents_stride,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, DOCUMENTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Where the keys begin and end that a block of queries may see."""
    i = keys - queries + m + tl.arange(0, BLOCK)
    first, last = 0, keys
    if DOCUMENTS:  # none begins before the first of its positions
        first = tl.min(tl.load(documents + b * documents_stride + i, i < keys, keys)) // BLOCK * BLOCK
    if CAUSAL:
        last = tl.minimum(keys, keys - queries + m + BLOCK)
    if WINDOW >= 0:
        first = tl.maximum(first, (keys - queries + m - WINDOW) // BLOCK * BLOCK)
        last = tl.minimum(last, keys - queries + m + BLOCK + WINDOW)
    return first, last


@triton.jit(do_not_specialize=VARYING)
def forward_kernel(
    q, k, v, A, B, V, g, bias, dense, padding, documents, seed, z, lse,
    a_head, b_head, v_head, g_head, bias_head, dense_batch, dense_head, documents_stride, heads, queries, keys, offsets,
    SCALE: tl.constexpr, DROPOUT: tl.constexpr, CONTENT: tl.constexpr, MULTIPLY: tl.constexpr,
    A_KIND: tl.constexpr, B_KIND: tl.constexpr, V_KIND: tl.constexpr, G_KIND: tl.constexpr, BIAS_KIND: tl.constexpr,
    DENSE: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, PADDING: tl.constexpr, DOCUMENTS: tl.constexpr,
    PRECISION: tl.constexpr, SUM: tl.constexpr, HEAD: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """q, k, v (B, N, H, HEAD) -> z the same, lse (B, H, Q). Tables are by offset, (1 or H, rows, HEAD) and (1 or H, rows)."""
    m, h, b = tl.program_id(0) * BLOCK, tl.program_id(1), tl.program_id(2)
    stride = heads * HEAD
    of_queries = (tl.cast(b, tl.int64) * queries * heads + h) * HEAD
    of_keys = (tl.cast(b, tl.int64) * keys * heads + h) * HEAD
    dense_row = tl.cast(b, tl.int64) * dense_batch + tl.cast(h, tl.int64) * dense_head
    if A_KIND:
        A += h * a_head
    if B_KIND:
        B += h * b_head
    if V_KIND:
        V += h * v_head
    if G_KIND:
        g += h * g_head
    if BIAS_KIND:
        bias += h * bias_head
    i = (keys - queries + m + tl.arange(0, BLOCK))[:, None]
    q_tile = load_rows(q + of_queries, m, queries, stride, HEAD, WIDTH, BLOCK)
    greatest = tl.full((BLOCK,), float("-inf"), SUM)
    total = tl.zeros((BLOCK,), SUM)
    sums = tl.zeros((BLOCK, WIDTH), SUM)
    first, last = key_range(m, b, queries, keys, documents, documents_stride, CAUSAL, WINDOW, DOCUMENTS, BLOCK)
    for n in range(first, last, BLOCK):
        j = (n + tl.arange(0, BLOCK))[None, :]
        base = n - m + queries - 1
        k_tile = load_rows(k + of_keys, n, keys, stride, HEAD, WIDTH, BLOCK)
        v_tile = load_rows(v + of_keys, n, keys, stride, HEAD, WIDTH, BLOCK)
        x, y, w = factors(
            q_tile, k_tile, A, B, base, offsets, CONTENT, MULTIPLY, A_KIND, B_KIND, PRECISION, HEAD, WIDTH, BLOCK, SUM
        )
        e, _, _ = score(
            x, y, w, SCALE, g, bias, dense, dense_row, base, offsets, i, j, queries, keys,
            MULTIPLY, G_KIND, BIAS_KIND, DENSE, BLOCK,
        )  # fmt: skip
        seen = visible(i, j, b, keys, padding, documents, documents_stride, CAUSAL, WINDOW, PADDING, DOCUMENTS)
        e = tl.where(seen, e, float("-inf"))
        now = tl.maximum(greatest, tl.max(e, 1))
        level = tl.where(now == float("-inf"), 0.0, now)
        p = tl.exp(e - level[:, None])
        correction = tl.exp(greatest - level)
        total = total * correction + tl.sum(p, 1)
        if DROPOUT > 0:
            p = tl.where(kept(seed, b, h, m, n, DROPOUT, BLOCK), p / (1 - DROPOUT), 0.0)
        sums = sums * correction[:, None] + weigh(p, v_tile, False, PRECISION)
        if V_KIND:
            sums += over_keys(p, V, base, offsets, False, PRECISION, HEAD, WIDTH, BLOCK)
        greatest = now
    dead = total == 0
    total = tl.where(dead, 1.0, total)
    store_rows(z + of_queries, sums / total[:, None], m, queries, stride, HEAD, WIDTH, BLOCK)
    row = m + tl.arange(0, BLOCK)
    level = tl.where(dead, float("inf"), greatest + tl.log(total))
    tl.store(lse + (tl.cast(b, tl.int64) * heads + h) * queries + row, level, row < queries)
