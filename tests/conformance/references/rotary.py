"""Rotations of queries and keys."""

from __future__ import annotations

import torch
from torch import Tensor

from .reading import Layer, Parameters, Reading


def rope(p: Parameters, layer: Layer) -> Reading:
    """Su et al. 2021, eq. 14-16: (R_i q_i)·(R_j k_j) / √d, with the block-diagonal R_p written out as a matrix."""
    d, base = layer.head_dim, layer.options.get("rope_base", 10000.0)
    if layer.options.get("rope_layout") == "half":
        pairs = [(t, t + d // 2) for t in range(d // 2)]
    else:
        pairs = [(2 * t, 2 * t + 1) for t in range(d // 2)]

    def rotation(position: int) -> Tensor:
        angles = torch.tensor([position * base ** (-2 * t / d) for t in range(d // 2)], dtype=torch.float64)
        matrix = torch.zeros(d, d, dtype=torch.float64)
        for (first, second), angle in zip(pairs, angles, strict=True):
            matrix[first, first] = matrix[second, second] = angle.cos()
            matrix[second, first], matrix[first, second] = angle.sin(), -angle.sin()
        return matrix

    rotations = torch.stack([rotation(position) for position in range(layer.n)]).to(layer.q.dtype)  # (n, d, d)
    q = torch.einsum("pde,bhpe->bhpd", rotations, layer.q)
    k = torch.einsum("pde,bhpe->bhpd", rotations, layer.k)
    return Reading(torch.einsum("bhid,bhjd->bhij", q, k) * layer.scale())
