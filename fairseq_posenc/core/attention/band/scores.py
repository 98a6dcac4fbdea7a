"""The scores of one tile from its queries and keys, as the forward and the backward pass both compute them."""

import triton
import triton.language as tl

from .tiles import dot, scalars, times_keys, times_queries


@triton.jit
def factors(
    q, k, A, B, base, offsets,
    CONTENT: tl.constexpr, MULTIPLY: tl.constexpr, A_KIND: tl.constexpr, B_KIND: tl.constexpr,
    PRECISION: tl.constexpr, HEAD: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, SUM: tl.constexpr,
):  # fmt: skip
    """X = q·k, Y = q·A and Z = k·B, (query, key) each; what is absent is the neutral element of how they combine."""
    x = tl.full((BLOCK, BLOCK), 1.0 if MULTIPLY else 0.0, SUM)
    y, z = x, x
    if CONTENT:
        x = dot(q, tl.trans(k), PRECISION)
    if A_KIND:
        y = times_queries(q, A, base, offsets, PRECISION, HEAD, WIDTH, BLOCK)
    if B_KIND:
        z = times_keys(k, B, base, offsets, PRECISION, HEAD, WIDTH, BLOCK)
    return x, y, z


@triton.jit
def score(
    x, y, z, scale, g, b, dense, dense_row, base, offsets, i, j, queries, keys,
    MULTIPLY: tl.constexpr, G_KIND: tl.constexpr, BIAS_KIND: tl.constexpr, DENSE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """e = s C(X, Y, Z) g + b, and without g and b, and g; (query, key) each."""
    if MULTIPLY:
        content = x * y * z * scale
    else:
        content = (x + y + z) * scale
    gain = tl.full((BLOCK, BLOCK), 1.0, content.dtype)
    if G_KIND:
        gain = scalars(g, base, offsets, i, j, G_KIND, BLOCK).to(content.dtype)
    e = content * gain
    if BIAS_KIND:
        e += scalars(b, base, offsets, i, j, BIAS_KIND, BLOCK).to(e.dtype)
    if DENSE:
        a = i - (keys - queries)
        e += tl.load(dense + dense_row + a.to(tl.int64) * keys + j, (a < queries) & (j < keys), 0.0).to(e.dtype)
    return e, content, gain
