"""What a reference is given, what it returns, and attention itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Parameters = Mapping[str, Tensor]  # by their names in Positions, such as "tisa.amplitude"


@dataclass(frozen=True)
class Layer:
    """The inputs of one self-attention layer."""

    q: Tensor  # (B, H, n, d)
    k: Tensor  # (B, H, n, d)
    v: Tensor  # (B, H, n, d)
    x: Tensor  # (B, n, D), the layer's input
    tokens: Tensor  # (B, n)
    padding: Tensor  # (B, n) bool, True at padding
    projections: Mapping[str, Tensor]  # the layer's own, q_weight (out, in), q_bias, k_weight, k_bias
    number: int  # of this layer
    max_positions: int
    separator: int
    options: Mapping[str, Any] = field(default_factory=dict)
    causal: bool = False

    @property
    def n(self) -> int:
        return self.q.shape[2]

    @property
    def heads(self) -> int:
        return self.q.shape[1]

    @property
    def head_dim(self) -> int:
        return self.q.shape[3]

    @property
    def dim(self) -> int:
        return self.x.shape[2]

    def scale(self, factor: float = 1.0) -> float:
        """1/sqrt(f·d), f being the paper's unless an option gives another."""
        return 1 / math.sqrt(self.options.get("position_scale_factor", factor) * self.head_dim)

    def of(self, parameter: Tensor) -> Tensor:
        """(layers or 1, heads or 1, …) -> this layer's, (H, …)."""
        mine = parameter[self.number if len(parameter) > 1 else 0]
        return mine.expand(self.heads, *mine.shape[1:])

    def table(self, entry: Callable[[int, int], float]) -> Tensor:
        """(n, n) of ``entry(i, j)``, in the layer's dtype."""
        return torch.tensor([[entry(i, j) for j in range(self.n)] for i in range(self.n)], dtype=self.q.dtype)

    def rows(self, row: Callable[[int, int], int]) -> Tensor:
        """(n, n) of the row numbers ``row(i, j)``."""
        return torch.tensor([[row(i, j) for j in range(self.n)] for i in range(self.n)])

    def split(self, x: Tensor) -> Tensor:
        """(…, n, D) -> (…, H, n, d)"""
        return x.unflatten(-1, (self.heads, self.head_dim)).transpose(-3, -2)

    def clip(self, offset: int) -> int:
        """The offset within ±k, k being the option or else the largest offset of the tables."""
        max_offset = self.options.get("max_relative_position", self.max_positions - 1)
        return max(-max_offset, min(max_offset, offset))

    @property
    def max_offset(self) -> int:
        """Row of offset 0."""
        return self.options.get("max_relative_position", self.max_positions - 1)


@dataclass(frozen=True)
class Reading:
    """What an equation gives: the scores, and what it adds elsewhere."""

    scores: Tensor  # (B, H, n, n): e
    values: Tensor | None = None  # (H, n, n, d), added to v_j for the query i
    embedding: Tensor | None = None  # (B or 1, n, D), added to the word embeddings
    layer_input: Tensor | None = None  # (B or 1, n, D), added to the input of every layer


def content(layer: Layer) -> Tensor:
    """(B, H, n, n): ``q_i·k_j``"""
    return torch.einsum("bhid,bhjd->bhij", layer.q, layer.k)


def attend(reading: Reading, layer: Layer) -> tuple[Tensor, Tensor]:
    """z and p: softmax over the keys that are not padding (nor to come, if causal); zeros where there are none."""
    allowed = ~layer.padding[:, None, None, :].expand_as(reading.scores)
    if layer.causal:
        allowed = allowed & torch.ones(layer.n, layer.n, dtype=torch.bool).tril()
    highest = reading.scores.detach().masked_fill(~allowed, torch.finfo(reading.scores.dtype).min).amax(-1, keepdim=True)
    weights = torch.where(allowed, reading.scores - highest, -torch.inf).exp()
    total = weights.sum(-1, keepdim=True)
    p = weights / torch.where(total > 0, total, 1.0)
    z = torch.einsum("bhij,bhjd->bhid", p, layer.v)
    if reading.values is not None:
        z = z + torch.einsum("bhij,hijd->bhid", p, reading.values)
    return z, p


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """Ba et al. 2016, eq. 3, over the last dimension."""
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt() * weight + bias
