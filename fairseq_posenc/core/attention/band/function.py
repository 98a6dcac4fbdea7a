"""The kernels as an autograd function: shapes, buffers, and the sums of what the programs write."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from .backward import backward_kernel
from .forward import forward_kernel

SHARES = 4  # parts of the batch that the gradients of tables are summed in, one after the other at last


@dataclass(frozen=True, eq=False)
class Setup:
    """The arguments of the kernels other than tensors that have gradients."""

    scale: float
    content: bool
    combine: Literal["add", "multiply"]
    causal: bool
    window: int | None
    dropout: float
    block: int  # queries and keys of a tile
    interpreted: bool  # by Triton, on a CPU
    cls: bool  # whether the bias has rows for [CLS]
    padding: Tensor | None  # (B, K) uint8
    documents: Tensor | None  # (B or 1, K) int32


class BandAttention(torch.autograd.Function):
    """q (B, Q, H, d), k and v (B, K, H, d), contiguous, A, B, V, the gain, the bias and the dense bias -> z (B, Q, H, d)."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, setup: Setup, *tables: Tensor | None) -> Tensor:
        batches, queries, heads, _ = q.shape
        # Drawn on the device, so that the host does not wait, and in the forward pass, so that a recomputation draws it again.
        seed = torch.randint(2**62, (1,), device=q.device) if setup.dropout else None
        # A product multiplies the differences that δ is taken in, which z has to be more precise for than q is.
        sum_type = torch.promote_types(q.dtype, torch.float32)
        z = torch.empty_like(q, dtype=sum_type if setup.combine == "multiply" else q.dtype)
        lse = q.new_empty(batches, heads, queries, dtype=sum_type)
        inputs, sizes, options = _arguments(q, k, v, setup, seed, tables)
        with torch.cuda.device_of(q):  # Triton starts kernels on the current device; autograd sets it for the backward pass
            forward_kernel[triton.cdiv(queries, setup.block), heads, batches](*inputs, z, lse, *sizes, **options)
        ctx.setup = setup
        ctx.save_for_backward(q, k, v, z, lse, seed, *tables)
        return z.to(q.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dz: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, z, lse, seed, *tables = ctx.saved_tensors
        setup, dz = ctx.setup, dz.contiguous()
        (batches, queries, heads, _), keys = q.shape, k.shape[1]
        delta = (dz.to(lse.dtype) * z).sum(-1).transpose(1, 2).contiguous()
        inputs, sizes, options = _arguments(q, k, v, setup, seed, tables)
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        lines = {"queries": triton.cdiv(queries, setup.block), "keys": triton.cdiv(keys, setup.block)}
        lines["offsets"] = sum(lines.values()) - 1
        dense = tables[-1]
        shares = min(batches, SHARES) if dense is None or len(dense) == 1 else batches
        by_diagonal = (shares, heads, lines["offsets"], 2 * setup.block + 2)
        buffers: list[Tensor | None] = [None] * len(tables)
        for t, table in enumerate(tables):
            if ctx.needs_input_grad[4 + t]:
                shape = (shares, heads, queries, keys) if table is dense else (*by_diagonal, *table.shape[2:])
                buffers[t] = lse.new_zeros(shape)
        for walk, count in lines.items():
            if walk != "offsets" or any(buffer is not None for buffer in buffers):
                grid = (count, heads, shares if walk == "offsets" else batches)
                outputs = (dz, lse, delta, dq, dk, dv, *buffers)
                backward_kernel[grid](*inputs, *outputs, *sizes[:-4], batches, *sizes[-4:], walk, **options)
        gradients: list[Tensor | None] = []
        for table, buffer in zip(tables, buffers, strict=True):
            if buffer is None:
                gradients.append(None)
            else:
                whole = buffer if table is dense else _by_offset(buffer, queries, keys, table.shape[1], setup.block)
                gradients.append(whole.sum_to_size(table.shape).to(table.dtype))
        return dq, dk, dv, None, *gradients


def _by_offset(sums: Tensor, queries: int, keys: int, rows: int, block: int) -> Tensor:
    """(shares, H, diagonals, 2 block + 2, …) -> (H, rows, …): each chunk of a table gets the sums of two diagonals."""
    sums = sums.sum(0)
    low, high, for_cls = sums.split((block, block, 2), dim=2)
    chunks = sums.new_zeros(len(sums), sums.shape[1] + 1, *low.shape[2:])
    chunks[:, :-1] += low
    chunks[:, 1:] += high
    first = triton.cdiv(queries, block) * block - queries + 1  # the row of the table's first offset
    offsets = queries + keys - 1
    table = chunks.flatten(1, 2)[:, first : first + offsets]
    return table if rows == offsets else torch.cat([table, for_cls.sum(1)], dim=1)


def _arguments(
    q: Tensor, k: Tensor, v: Tensor, setup: Setup, seed: Tensor | None, tables: Any
) -> tuple[tuple[Any, ...], tuple[int, ...], dict[str, Any]]:
    """What both kernels take: tensors, numbers and constants."""
    *by_offset, dense = tables
    (_, queries, heads, head), keys = q.shape, k.shape[1]
    strides = [_stride(table, 0) for table in by_offset] + [_stride(dense, 0), _stride(dense, 1), _stride(setup.documents, 0)]
    names = ("A_KIND", "B_KIND", "V_KIND", "G_KIND", "BIAS_KIND")
    kinds = {name: int(table is not None) for name, table in zip(names, by_offset, strict=True)}
    options: dict[str, Any] = kinds | {
        "BIAS_KIND": kinds["BIAS_KIND"] + setup.cls,
        "SCALE": setup.scale,
        "DROPOUT": setup.dropout,
        "CONTENT": setup.content,
        "MULTIPLY": setup.combine == "multiply",
        "DENSE": dense is not None,
        "CAUSAL": setup.causal,
        "WINDOW": -1 if setup.window is None else setup.window,
        "PADDING": setup.padding is not None,
        "DOCUMENTS": setup.documents is not None,
        "PRECISION": _precision(q, setup),
        "SUM": tl.float64 if q.dtype == torch.float64 else tl.float32,
        "HEAD": head,
        "WIDTH": max(16, triton.next_power_of_2(head)),
        "BLOCK": setup.block,
        "num_warps": 8 if setup.block == 64 or any(table is not None for table in tables[:3]) else 4,  # with 4, registers spill
        "num_stages": 1 if q.dtype == torch.float32 else 2,
    }
    tensors = (q, k, v, *tables, setup.padding, setup.documents, seed)
    return tensors, (*strides, heads, queries, keys, queries + keys - 1), options


def _precision(q: Tensor, setup: Setup) -> str:
    """How products are taken."""
    if q.dtype == torch.bfloat16 and setup.interpreted:
        return "unpacked"
    return "tf32" if q.dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32 else "ieee"


def _stride(tensor: Tensor | None, dim: int) -> int:
    """0 where the tensor is shared along the dimension."""
    return 0 if tensor is None or tensor.shape[dim] == 1 else tensor.stride(dim)
