"""Matrix products whose result is float32 or better, as scores are."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def multiplies_half(x: Tensor) -> bool:
    """Whether :func:`product` takes x in half precision: the device then sums in float32, and gives that."""
    return x.dtype.itemsize == 2 and x.device.type == "cuda" and "dtype" in torch.ops.aten.bmm.overloads()


def product(x: Tensor, y: Tensor) -> Tensor:
    """(…, N, d), (…, d, M) -> (…, N, M) in float32 or better. Half precision only if :func:`multiplies_half`."""
    return _HalfProduct.apply(x, y) if x.dtype.itemsize == 2 else x @ y


class _HalfProduct(torch.autograd.Function):
    """In the inputs' type with the result in float32; gradients are rounded to that type before they are multiplied."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        if y.dim() == 2:
            return torch.mm(x.flatten(0, -2), y, out_dtype=torch.float32).unflatten(0, x.shape[:-1])
        batch = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        x, y = (tensor.expand(*batch, -1, -1).flatten(0, -3) for tensor in (x, y))
        return torch.bmm(x, y, out_dtype=torch.float32).unflatten(0, batch)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        gradient = gradient.to(x.dtype)
        dx = gradient @ y.transpose(-1, -2)
        if y.dim() == 2:
            return dx, x.flatten(0, -2).T @ gradient.flatten(0, -2)
        return dx.sum_to_size(x.shape), (x.transpose(-1, -2) @ gradient).sum_to_size(y.shape)
