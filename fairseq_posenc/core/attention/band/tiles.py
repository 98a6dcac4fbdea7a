"""What the kernels do with one square tile of scores: products with the rows of a table, turned into place, and back.

A tile has ``BLOCK`` queries from ``m`` on and ``BLOCK`` keys from ``n`` on. With ``a`` and ``c`` counted within it, the pair
(a, c) has the offset of the row ``base + c - a`` of a table by offset, ``base = n - m + Q - 1``. So a tile needs
two chunks of ``BLOCK`` rows: ``high`` from ``base`` on, for c >= a, and ``low`` before it. A product of the queries with both is
two (BLOCK, BLOCK) matrices, of which row ``a`` needs the first ``BLOCK - a`` columns of one and the last ``a`` of the other: they
fit into one matrix, whose row ``a`` is then turned by ``a`` places (:func:`skew_rows`). Keys do the same with columns.

Tables are (rows, HEAD); a kind of table is 0 where there is none, 1 for one row per offset, and 2 where two more rows follow: the
query 0's ([CLS]), and that of the key 0 for the other queries. Positions in a tile: ``i`` (BLOCK, 1) of the queries, ``j``
(1, BLOCK) of the keys.
"""

import triton
import triton.language as tl


@triton.jit
def dot(x, y, PRECISION: tl.constexpr):
    """x y, accumulated in float32 or better. "unpacked" is for the interpreter, which would multiply the bits of bfloat16."""
    if PRECISION == "unpacked":
        z = tl.dot(x.to(tl.float32), y.to(tl.float32), input_precision="ieee", out_dtype=tl.float32)
    elif x.dtype == tl.float64:
        z = tl.dot(x, y, input_precision="ieee", out_dtype=tl.float64)
    else:
        z = tl.dot(x, y, input_precision=PRECISION, out_dtype=tl.float32)
    return z


@triton.jit
def weigh(w, x, WIDE: tl.constexpr, PRECISION: tl.constexpr):
    """w x for weights or gradients ``w``, which are as precise as sums are: rounded to x's type, or not where ``WIDE``.

    A half x fits into TensorFloat-32, and two of these hold w, so that three products on tensor cores are exact enough.
    """
    if WIDE:
        z = dot(w, x.to(w.dtype), "tf32x3" if PRECISION == "ieee" and x.dtype != w.dtype else PRECISION)
    else:
        z = dot(w.to(x.dtype), x, PRECISION)
    return z


@triton.jit
def load_rows(pointer, first, count, stride, HEAD: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """(BLOCK, WIDTH): rows from ``first`` on, zeros beyond 0 … count - 1 and from column HEAD on."""
    row = first + tl.arange(0, BLOCK)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    return tl.load(pointer + row * stride + column, (row >= 0) & (row < count) & (column < HEAD), 0.0)


@triton.jit
def store_rows(pointer, x, first, count, stride, HEAD: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """The reverse of :func:`load_rows`, in the pointer's type."""
    row = first + tl.arange(0, BLOCK)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    tl.store(pointer + row * stride + column, x.to(pointer.dtype.element_ty), (row < count) & (column < HEAD))


@triton.jit
def load_chunks(table, base, offsets, HEAD: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """The two chunks of a table that a tile needs, (BLOCK, WIDTH) each: low, high."""
    low = load_rows(table, base - BLOCK, offsets, HEAD, HEAD, WIDTH, BLOCK)
    return low, load_rows(table, base, offsets, HEAD, HEAD, WIDTH, BLOCK)


@triton.jit
def skew_rows(low, high, BLOCK: tl.constexpr):
    """(query, row in chunk) of both chunks -> (query, key): out[a, c] = high[a, c - a], or low[a, BLOCK + c - a] for c < a."""
    a, c = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    return tl.gather(tl.where(c < BLOCK - a, high, low), (c - a) & (BLOCK - 1), 1)


@triton.jit
def unskew_rows(w, BLOCK: tl.constexpr):
    """The adjoint of :func:`skew_rows`: (query, key) -> (query, row in chunk), low and high."""
    a, c = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    turned = tl.gather(w, (c + a) & (BLOCK - 1), 1)
    return tl.where(c < BLOCK - a, 0.0, turned), tl.where(c < BLOCK - a, turned, 0.0)


@triton.jit
def skew_columns(low, high, BLOCK: tl.constexpr):
    """(row in chunk, key) of both chunks -> (query, key): out[a, c] = high[c - a, c], or low[BLOCK + c - a, c] for c < a."""
    a, c = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    return tl.gather(tl.where(a <= c, high, low), (c - a) & (BLOCK - 1), 0)


@triton.jit
def unskew_columns(w, BLOCK: tl.constexpr):
    """The adjoint of :func:`skew_columns`: (query, key) -> (row in chunk, key), low and high."""
    a, c = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    turned = tl.gather(w, (c - a) & (BLOCK - 1), 0)
    return tl.where(a <= c, 0.0, turned), tl.where(a <= c, turned, 0.0)


@triton.jit
def part_cls(w, i, j):
    """w without the row of query 0 and the column of key 0, that row alone, and the rest of that column alone."""
    return tl.where((i == 0) | (j == 0), 0.0, w), tl.where(i == 0, w, 0.0), tl.where((j == 0) & (i > 0), w, 0.0)


@triton.jit
def times_queries(x, table, base, offsets, PRECISION: tl.constexpr, HEAD: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """(BLOCK, WIDTH) -> (query, key): ``x_i · T_row(i, j)``."""
    low, high = load_chunks(table, base, offsets, HEAD, WIDTH, BLOCK)
    return skew_rows(dot(x, tl.trans(low), PRECISION), dot(x, tl.trans(high), PRECISION), BLOCK)


@triton.jit
def times_keys(x, table, base, offsets, PRECISION: tl.constexpr, HEAD: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """(BLOCK, WIDTH) -> (query, key): ``x_j · T_row(i, j)``."""
    low, high = load_chunks(table, base, offsets, HEAD, WIDTH, BLOCK)
    return skew_columns(dot(low, tl.trans(x), PRECISION), dot(high, tl.trans(x), PRECISION), BLOCK)


@triton.jit
def over_keys(
    w, table, base, offsets,
    WIDE: tl.constexpr, PRECISION: tl.constexpr, HEAD: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """(query, key) -> (query, WIDTH): ``Σ_j w_ij T_row(i, j)``."""
    rows_low, rows_high = load_chunks(table, base, offsets, HEAD, WIDTH, BLOCK)
    low, high = unskew_rows(w, BLOCK)
    return weigh(low, rows_low, WIDE, PRECISION) + weigh(high, rows_high, WIDE, PRECISION)


@triton.jit
def over_queries(
    w, table, base, offsets,
    WIDE: tl.constexpr, PRECISION: tl.constexpr, HEAD: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """(query, key) -> (key, WIDTH): ``Σ_i w_ij T_row(i, j)``."""
    rows_low, rows_high = load_chunks(table, base, offsets, HEAD, WIDTH, BLOCK)
    low, high = unskew_columns(w, BLOCK)
    return weigh(tl.trans(low), rows_low, WIDE, PRECISION) + weigh(tl.trans(high), rows_high, WIDE, PRECISION)


@triton.jit
def scalars(table, base, offsets, i, j, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """(query, key): the scalar of every pair, zero beyond the table."""
    row = base + tl.arange(0, BLOCK)[None, :] - tl.arange(0, BLOCK)[:, None]
    inside = (row >= 0) & (row < offsets)
    if KIND == 2:
        row = tl.where(i == 0, offsets, tl.where(j == 0, offsets + 1, row))
        inside |= (i == 0) | (j == 0)
    return tl.load(table + row, inside, 0.0)


@triton.jit
def visible(
    i, j, b, keys, padding, documents, documents_stride,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, PADDING: tl.constexpr, DOCUMENTS: tl.constexpr,
):  # fmt: skip
    """(query, key): whether both are there and the query may see the key."""
    seen = (i < keys) & (j < keys)
    if CAUSAL:
        seen &= j <= i
    if WINDOW >= 0:
        seen &= (i - j <= WINDOW) & (j - i <= WINDOW)
    if PADDING:
        seen &= tl.load(padding + b * keys + j, j < keys, 1) == 0
    if DOCUMENTS:
        of_queries = tl.load(documents + b * documents_stride + i, i < keys, -1)
        seen &= of_queries == tl.load(documents + b * documents_stride + j, j < keys, -1)
    return seen


@triton.jit
def kept(seed, b, h, m, n, DROPOUT: tl.constexpr, BLOCK: tl.constexpr):
    """(query, key): whether dropout keeps the pair, by Philox counters, so that the backward pass draws the same.

    A counter gives four numbers, for four keys: one number each would take more instructions than all the rest of a tile.
    """
    query, four = (m + tl.arange(0, BLOCK))[:, None], (n // 4 + tl.arange(0, BLOCK // 4))[None, :]
    zero = query * 0 + four * 0
    first, second, third, fourth = tl.philox(tl.load(seed).to(tl.uint64), zero + four, zero + query, zero + h, zero + b)
    bits = tl.join(tl.join(first, third), tl.join(second, fourth)).reshape(BLOCK, BLOCK)
    return tl.uint_to_uniform_float(bits) >= DROPOUT
