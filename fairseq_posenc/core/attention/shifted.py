"""Products with tables by offset as :mod:`.relative` has them, without autograd, in place and in blocks of positions.

A pair (i, j) of N and M positions has the row ``j - i + N - 1`` of a table. A block of positions needs ``M + BLOCK - 1`` rows,
and all N positions ``N + M - 1``: products by block have fewer columns. G counts the heads of all sequences.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from .relative import skewed_view

BLOCK = 64


def add_products(e: Tensor, x: Tensor, rows: Tensor) -> None:
    """``e_ij += x_i · rows[j - i + N - 1]``: e (G, N, M), x (G, N, d), rows (1 or G, R, d)."""
    for at, met in _blocks(*e.shape[1:]):
        e[:, at] += skewed_view(_times(x[:, at], rows[:, met].transpose(1, 2)), e.shape[2])


def add_product_gradients(dx: Tensor, de: Tensor, x: Tensor, rows: Tensor, scale: float) -> Tensor:
    """The gradients of :func:`add_products` of ``scale · x``: x's is added to dx, and that of the rows returned, like rows."""
    out = torch.zeros_like(rows)
    for at, met, by_offset in _unskewed(de):
        dx[:, at].add_(_times(by_offset, rows[:, met]), alpha=scale)
        _add_transposed_times(out[:, met], by_offset, x[:, at], scale)
    return out


def add_sums(z: Tensor, w: Tensor, rows: Tensor) -> None:
    """``z_i += Σ_j w_ij rows[j - i + N - 1]``: z (G, N, d), w (G, N, M), rows (1 or G, R, d)."""
    for at, met, by_offset in _unskewed(w):
        z[:, at] += _times(by_offset, rows[:, met])


def sum_gradients(dz: Tensor, w: Tensor, rows: Tensor) -> Tensor:
    """Of the gradients of :func:`add_sums` that of the rows, like rows; that of w are products of dz."""
    out = torch.zeros_like(rows)
    for at, met, by_offset in _unskewed(w):
        _add_transposed_times(out[:, met], by_offset, dz[:, at])
    return out


class Gathered:
    """The four functions above for pairs that have any row of a table: ``index`` is (G, N, M)."""

    def __init__(self, index: Tensor) -> None:
        self._index = index

    def add_products(self, e: Tensor, x: Tensor, rows: Tensor) -> None:
        e += _times(x, rows.transpose(1, 2)).gather(-1, self._index)

    def add_product_gradients(self, dx: Tensor, de: Tensor, x: Tensor, rows: Tensor, scale: float) -> Tensor:
        out, by_row = torch.zeros_like(rows), self._by_row(de, rows)
        dx.add_(_times(by_row, rows), alpha=scale)
        _add_transposed_times(out, by_row, x, scale)
        return out

    def add_sums(self, z: Tensor, w: Tensor, rows: Tensor) -> None:
        z += _times(self._by_row(w, rows), rows)

    def sum_gradients(self, dz: Tensor, w: Tensor, rows: Tensor) -> Tensor:
        out = torch.zeros_like(rows)
        _add_transposed_times(out, self._by_row(w, rows), dz)
        return out

    def _by_row(self, w: Tensor, rows: Tensor) -> Tensor:
        """(G, N, M) -> (G, N, R): the sums of the pairs that have the same row."""
        return w.new_zeros(*w.shape[:2], rows.shape[1]).scatter_add_(-1, self._index, w)


def _blocks(positions: int, others: int) -> Iterator[tuple[slice, slice]]:
    """Each block of positions, and the rows that it needs."""
    for start in range(0, positions, BLOCK):
        end = min(start + BLOCK, positions)
        yield slice(start, end), slice(positions - end, positions - start + others - 1)


def _unskewed(w: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
    """The same, and w of the block by offset, (G, block, rows), which the next block's is written over."""
    buffer = w.new_empty(0)
    for at, met in _blocks(*w.shape[1:]):
        size = len(w), at.stop - at.start, met.stop - met.start
        if buffer.shape != size:
            buffer = w.new_zeros(size)
        skewed_view(buffer, w.shape[2]).copy_(w[:, at])  # around which it stays zero
        yield at, met, buffer


def _times(x: Tensor, y: Tensor) -> Tensor:
    """(G, N, M), (1 or G, M, L) -> (G, N, L). What all share makes one plain matrix product."""
    return x @ y[0] if len(y) == 1 else torch.bmm(x, y)


def _add_transposed_times(out: Tensor, x: Tensor, y: Tensor, scale: float = 1.0) -> None:
    """``out += scale · xᵀ y``: (G, N, M), (G, N, L) to (G, M, L), or to the (1, M, L) that all share."""
    if len(out) == 1:
        out[0].addmm_(x.flatten(0, 1).T, y.flatten(0, 1), alpha=scale)
    else:
        out.baddbmm_(x.transpose(1, 2), y, alpha=scale)
