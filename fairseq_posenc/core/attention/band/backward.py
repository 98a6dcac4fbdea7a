"""The backward pass, by one kernel that walks over tiles in three ways and recomputes each tile's scores.

From ``p_ij = exp(e_ij - lse_i)``, dropout's D and the gradient ``dz``, with ``δ_i = dz_i · z_i``::

    dp = D (dz_i · (v_j + V_r))       de = p (dp - δ_i)       db_r = Σ de       dg_r = Σ de · s C       dC = de · s g_r

    C = X + Y + Z:  dX = dY = dZ = dC            C = X Y Z:  dX = dC Y Z,  dY = dC X Z,  dZ = dC X Y

    dq_i = Σ_j dX k_j + dY A_r        dk_j = Σ_i dX q_i + dZ B_r        dv_j = Σ_i D p dz_i
    dA_r = Σ dY q_i                   dB_r = Σ dZ k_j                   dV_r = Σ D p dz_i      over the pairs with r = j - i

Sums over keys, over queries and over the pairs of an offset: a program goes along a row of tiles (dq), along a column (dk, dv) or
along a diagonal (the tables), and keeps its sums. None writes where another does, so every run gives the same bits.
"""

import triton
import triton.language as tl

from .forward import VARYING, key_range
from .scores import factors, score
from .tiles import (
    dot,
    kept,
    load_rows,
    over_keys,
    over_queries,
    part_cls,
    store_rows,
    times_queries,
    unskew_columns,
    unskew_rows,
    visible,
    weigh,
)


@triton.jit
def query_range(
    n, b, queries, keys, documents, documents_stride,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, DOCUMENTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Where the queries begin and end that may see a block of keys."""
    start, first, last = keys - queries, 0, queries
    if CAUSAL:
        first = tl.maximum(0, n - start)
    if DOCUMENTS:
        j = n + tl.arange(0, BLOCK)
        earliest = tl.min(tl.load(documents + b * documents_stride + j, j < keys, keys))
        first = tl.maximum(first, earliest - start)
    if WINDOW >= 0:
        first = tl.maximum(first, n - WINDOW - start)
        last = tl.minimum(queries, n + BLOCK + WINDOW - start)
    return first // BLOCK * BLOCK, last


@triton.jit
def add_query_table(low, high, w, x, WIDE: tl.constexpr, PRECISION: tl.constexpr, BLOCK: tl.constexpr):
    """Gradients of a table in times_queries and over_keys: ``Σ w_ij x_i`` added to the rows of both chunks."""
    w_low, w_high = unskew_rows(w, BLOCK)
    return low + weigh(tl.trans(w_low), x, WIDE, PRECISION), high + weigh(tl.trans(w_high), x, WIDE, PRECISION)


@triton.jit
def add_key_table(low, high, w, x, WIDE: tl.constexpr, PRECISION: tl.constexpr, BLOCK: tl.constexpr):
    """The same for times_keys: ``Σ w_ij x_j``."""
    w_low, w_high = unskew_columns(w, BLOCK)
    return low + weigh(w_low, x, WIDE, PRECISION), high + weigh(w_high, x, WIDE, PRECISION)


@triton.jit
def add_scalars(low, high, from_cls, to_cls, w, i, j, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """The same for a table of scalars, ``Σ w_ij``, and for its rows of query 0 and of key 0."""
    if KIND == 2:
        w, first, rest = part_cls(w, i, j)
        from_cls += tl.sum(first)
        to_cls += tl.sum(rest)
    w_low, w_high = unskew_rows(w, BLOCK)
    return low + tl.sum(w_low, 0), high + tl.sum(w_high, 0), from_cls, to_cls


@triton.jit
def store_table(pointer, place, low, high, HEAD: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """(low, high): the first 2 BLOCK of 2 BLOCK + 2 rows at ``place`` in a buffer of such sums."""
    pointer += place * (2 * BLOCK + 2) * HEAD
    store_rows(pointer, low, 0, BLOCK, HEAD, HEAD, WIDTH, BLOCK)
    store_rows(pointer + BLOCK * HEAD, high, 0, BLOCK, HEAD, HEAD, WIDTH, BLOCK)


@triton.jit
def store_scalars(pointer, place, low, high, from_cls, to_cls, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """The same for scalars, and in the last two rows those of query 0 and of key 0."""
    pointer += place * (2 * BLOCK + 2)
    column = tl.arange(0, BLOCK)
    tl.store(pointer + column, low)
    tl.store(pointer + BLOCK + column, high)
    if KIND == 2:
        tl.store(pointer + 2 * BLOCK, from_cls)
        tl.store(pointer + 2 * BLOCK + 1, to_cls)


@triton.jit(do_not_specialize=[*VARYING, "batches"])
def backward_kernel(  # noqa: C901 - one pass over the tiles; Triton inlines functions anyway
    q, k, v, A, B, V, g, bias, dense, padding, documents, seed, dz, lse, delta, dq, dk, dv, dA, dB, dV, dg, dbias, ddense,
    a_head, b_head, v_head, g_head, bias_head, dense_batch, dense_head, documents_stride,
    batches, heads, queries, keys, offsets,
    WALK: tl.constexpr,  # along "queries", "keys" or "offsets"
    SCALE: tl.constexpr, DROPOUT: tl.constexpr, CONTENT: tl.constexpr, MULTIPLY: tl.constexpr,
    A_KIND: tl.constexpr, B_KIND: tl.constexpr, V_KIND: tl.constexpr, G_KIND: tl.constexpr, BIAS_KIND: tl.constexpr,
    DENSE: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, PADDING: tl.constexpr, DOCUMENTS: tl.constexpr,
    PRECISION: tl.constexpr, SUM: tl.constexpr, HEAD: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A program has a block of queries (dq), one of keys (dk, dv), or a diagonal of tiles (tables) in a share of the batch."""
    line, h, share, shares = tl.program_id(0), tl.program_id(1), tl.program_id(2), tl.num_programs(2)
    stride = heads * HEAD
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
    sums, v_sums = tl.zeros((BLOCK, WIDTH), SUM), tl.zeros((BLOCK, WIDTH), SUM)
    if WALK == "offsets":
        rows, scalar = tl.zeros((BLOCK, WIDTH), SUM), tl.zeros((BLOCK,), SUM)
        a_low, a_high, b_low, b_high, v_low, v_high = rows, rows, rows, rows, rows, rows
        g_low, g_high, g_from, g_to = scalar, scalar, tl.zeros((), SUM), tl.zeros((), SUM)
        bias_low, bias_high, bias_from, bias_to = scalar, scalar, tl.zeros((), SUM), tl.zeros((), SUM)
    for b in range(share, batches, shares):  # one turn, but for the tables
        batch = tl.cast(b, tl.int64)
        of_queries, of_keys = (batch * queries * heads + h) * HEAD, (batch * keys * heads + h) * HEAD
        of_rows = (batch * heads + h) * queries
        dense_row = batch * dense_batch + tl.cast(h, tl.int64) * dense_head
        if WALK == "queries":
            m = line * BLOCK
            first, last = key_range(m, b, queries, keys, documents, documents_stride, CAUSAL, WINDOW, DOCUMENTS, BLOCK)
        elif WALK == "keys":
            n = line * BLOCK
            first, last = query_range(n, b, queries, keys, documents, documents_stride, CAUSAL, WINDOW, DOCUMENTS, BLOCK)
        else:
            apart = (line - (queries - 1) // BLOCK) * BLOCK  # n - m
            first, last = tl.maximum(0, -apart), tl.minimum(queries, keys - apart)
            if CAUSAL:
                last = tl.where(apart < keys - queries + BLOCK, last, first)
            if WINDOW >= 0:
                last = tl.where(tl.abs(apart - (keys - queries)) < BLOCK + WINDOW, last, first)
        for step in range(first, last, BLOCK):
            if WALK == "queries":
                n = step
            elif WALK == "keys":
                m = step
            else:
                m, n = step, step + apart
            q_tile = load_rows(q + of_queries, m, queries, stride, HEAD, WIDTH, BLOCK)
            k_tile = load_rows(k + of_keys, n, keys, stride, HEAD, WIDTH, BLOCK)
            v_tile = load_rows(v + of_keys, n, keys, stride, HEAD, WIDTH, BLOCK)
            dz_tile = load_rows(dz + of_queries, m, queries, stride, HEAD, WIDTH, BLOCK)
            at = m + tl.arange(0, BLOCK)
            level = tl.load(lse + of_rows + at, at < queries, 0.0)[:, None]
            mean = tl.load(delta + of_rows + at, at < queries, 0.0)[:, None]
            i, j = (keys - queries + at)[:, None], (n + tl.arange(0, BLOCK))[None, :]
            base = n - m + queries - 1
            x, y, w = factors(
                q_tile, k_tile, A, B, base, offsets, CONTENT, MULTIPLY, A_KIND, B_KIND, PRECISION, HEAD, WIDTH, BLOCK, SUM
            )
            e, content, gain = score(
                x, y, w, SCALE, g, bias, dense, dense_row, base, offsets, i, j, queries, keys,
                MULTIPLY, G_KIND, BIAS_KIND, DENSE, BLOCK,
            )  # fmt: skip
            seen = visible(i, j, b, keys, padding, documents, documents_stride, CAUSAL, WINDOW, PADDING, DOCUMENTS)
            p = tl.exp(tl.where(seen, e - level, float("-inf")))
            dp = dot(dz_tile, tl.trans(v_tile), PRECISION)
            if V_KIND:
                dp += times_queries(dz_tile, V, base, offsets, PRECISION, HEAD, WIDTH, BLOCK)
            dropped = p
            if DROPOUT > 0:
                keep = kept(seed, b, h, m, n, DROPOUT, BLOCK)
                dropped, dp = tl.where(keep, p / (1 - DROPOUT), 0.0), tl.where(keep, dp / (1 - DROPOUT), 0.0)
            de = p * (dp - mean)
            dx = de * gain * SCALE
            dy, dw = dx, dx
            if MULTIPLY:
                dx, dy, dw = dx * y * w, dx * x * w, dx * x * y
            if WALK == "queries":
                if CONTENT:
                    sums += weigh(dx, k_tile, MULTIPLY, PRECISION)
                if A_KIND:
                    sums += over_keys(dy, A, base, offsets, MULTIPLY, PRECISION, HEAD, WIDTH, BLOCK)
            elif WALK == "keys":
                if CONTENT:
                    sums += weigh(tl.trans(dx), q_tile, MULTIPLY, PRECISION)
                if B_KIND:
                    sums += over_queries(dw, B, base, offsets, MULTIPLY, PRECISION, HEAD, WIDTH, BLOCK)
                v_sums += weigh(tl.trans(dropped), dz_tile, False, PRECISION)
            else:
                if dA is not None:
                    a_low, a_high = add_query_table(a_low, a_high, dy, q_tile, MULTIPLY, PRECISION, BLOCK)
                if dB is not None:
                    b_low, b_high = add_key_table(b_low, b_high, dw, k_tile, MULTIPLY, PRECISION, BLOCK)
                if dV is not None:
                    v_low, v_high = add_query_table(v_low, v_high, dropped, dz_tile, False, PRECISION, BLOCK)
                if dg is not None:
                    g_low, g_high, g_from, g_to = add_scalars(g_low, g_high, g_from, g_to, de * content, i, j, G_KIND, BLOCK)
                if dbias is not None:
                    bias_low, bias_high, bias_from, bias_to = add_scalars(
                        bias_low, bias_high, bias_from, bias_to, de, i, j, BIAS_KIND, BLOCK
                    )
                if ddense is not None:
                    pair = ((tl.cast(share, tl.int64) * heads + h) * queries + at[:, None]) * keys + j
                    inside = (at[:, None] < queries) & (j < keys)
                    tl.store(ddense + pair, tl.load(ddense + pair, inside, 0.0) + de, inside)
    place = (tl.cast(share, tl.int64) * heads + h) * tl.num_programs(0) + line
    if WALK == "queries":
        of_queries = (tl.cast(share, tl.int64) * queries * heads + h) * HEAD
        store_rows(dq + of_queries, sums, line * BLOCK, queries, stride, HEAD, WIDTH, BLOCK)
    elif WALK == "keys":
        of_keys = (tl.cast(share, tl.int64) * keys * heads + h) * HEAD
        store_rows(dk + of_keys, sums, line * BLOCK, keys, stride, HEAD, WIDTH, BLOCK)
        store_rows(dv + of_keys, v_sums, line * BLOCK, keys, stride, HEAD, WIDTH, BLOCK)
    else:
        if dA is not None:
            store_table(dA, place, a_low, a_high, HEAD, WIDTH, BLOCK)
        if dB is not None:
            store_table(dB, place, b_low, b_high, HEAD, WIDTH, BLOCK)
        if dV is not None:
            store_table(dV, place, v_low, v_high, HEAD, WIDTH, BLOCK)
        if dg is not None:
            store_scalars(dg, place, g_low, g_high, g_from, g_to, G_KIND, BLOCK)
        if dbias is not None:
            store_scalars(dbias, place, bias_low, bias_high, bias_from, bias_to, BIAS_KIND, BLOCK)
