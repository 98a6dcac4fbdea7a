"""The transforms of queries and keys before any product."""

import torch
from torch import Tensor
from torch.nn import functional as F

from ..terms import Convolution, Expansion, LowRank, Polar, Rotation, Scale, Terms, precise


def transform(q: Tensor, k: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    """Queries and keys after the terms' rotations and shifts, in their order.

    Both have the last positions of the terms' window: queries (B, H, Q, d), and keys (B, H, K, d), or only the new ones where
    the terms do not mix keys.
    """
    for change in terms.transforms:
        if isinstance(change, Rotation):
            q, k = _rotate(q, change), _rotate(k, change)
        elif isinstance(change, Polar):
            q, k = _polar(q, change.queries), _polar(k, change.keys)
        elif isinstance(change, Scale):
            q = (precise(q) * change.queries).to(q.dtype)
        elif isinstance(change, Convolution):
            k = _convolve(k, change)
        elif isinstance(change, Expansion):
            features = (precise(q) + change.shift) @ precise(change.weight)
            q = torch.cat([q, _rotate(features, change.rotation).to(q.dtype)], dim=-1)
            keys = change.keys[..., -k.shape[-2] :, :].to(k.dtype).expand(*k.shape[:-1], -1)
            k = torch.cat([k, keys], dim=-1)
        else:
            q, k = _shift(q, change.queries), _shift(k, change.keys)
    return q, k


def fold(q: Tensor, k: Tensor, bias: LowRank | None, scale: float, content: bool) -> tuple[Tensor, Tensor]:
    """``q·k + b/s`` as one product, of ``[q | left/s]`` and ``[k | right]``; of the bias alone without ``content``."""
    if bias is None:
        return q, k
    return _extended(q, bias.left / scale, content), _extended(k, bias.right, content)


def of_one_width(*tensors: Tensor, least: int = 0) -> tuple[Tensor, ...]:
    """(…, d) each, filled up with zeros to the widest and to ``least`` features, as kernels take only one width."""
    width = max(least, *(x.shape[-1] for x in tensors))
    return tuple(x if x.shape[-1] == width else F.pad(x, (0, width - x.shape[-1])) for x in tensors)


def _extended(x: Tensor, by: Tensor, content: bool) -> Tensor:
    """(B, H, N, d) -> (B, H, N, d + rank), or (B, H, N, rank)."""
    by = by.to(x.dtype).expand(*x.shape[:-1], -1)
    return torch.cat([x, by], dim=-1) if content else by


def _shift(x: Tensor, by: Tensor | None) -> Tensor:
    return x if by is None else x + by[..., -x.shape[-2] :, :].to(x.dtype)


def _convolve(k: Tensor, convolution: Convolution) -> Tensor:
    """(B, H, K, d) -> (B, H, K, d). In float32 or better, since it is a sum."""
    keys = F.pad(precise(k), (0, 0, 1, 0))  # a zero at place -1
    places = (convolution.places + 1)[..., None].expand(*k.shape[:2], -1, -1, k.shape[-1])
    taps = zip(convolution.weights.unbind(1), places.unbind(2), strict=True)
    parts = [keys.gather(2, at) * weight[:, None].to(keys.dtype) for weight, at in taps]
    return sum(parts[1:], start=parts[0]).to(k.dtype)


def _polar(x: Tensor, angles: Tensor) -> Tensor:
    """(B, H, N, d) -> (B, H, N, 2d). In float32 or better, as :func:`_rotate`."""
    magnitudes = F.softplus(precise(x))
    angles = angles[..., -x.shape[-2] :, :].to(magnitudes.dtype)
    return torch.cat([magnitudes * angles.cos(), magnitudes * angles.sin()], dim=-1).to(x.dtype)


def _rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """In float32 or better, since rounded sines would turn a query and a key by different angles."""
    exact = precise(x)
    cos, sin = (table[..., -x.shape[-2] :, :].to(exact.dtype) for table in (rotation.cos, rotation.sin))
    quarter_turn = _turn_adjacent if rotation.interleaved else _turn_halves
    return (exact * cos + quarter_turn(exact) * sin).to(x.dtype)


def _turn_adjacent(x: Tensor) -> Tensor:
    """(x_0, x_1, x_2, x_3, …) -> (-x_1, x_0, -x_3, x_2, …): a quarter turn of every pair of adjacent features."""
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([-odd, even], dim=-1).flatten(-2)


def _turn_halves(x: Tensor) -> Tensor:
    """The same where feature t is paired with t + d/2."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)
