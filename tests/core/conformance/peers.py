"""Running our self-attention with another implementation's weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from attending import matrix_call
from torch import Tensor, nn

from fairseq_posenc.core.attention import BACKENDS, Call, Mask
from fairseq_posenc.core.attention.bias import additive_bias
from fairseq_posenc.core.schemes import Positions, Settings
from fairseq_posenc.core.terms import Terms, Window
from fairseq_posenc.core.transformer import layers

GOLDEN = Path(__file__).parents[4] / "shared" / "golden"
HEADS, HEAD_DIM, MAX_POSITIONS = 4, 8, 48  # of the golden files, unless they say otherwise
LENGTHS = (13, 40)

Tensors = dict[str, Tensor]


def golden(name: str) -> Tensors:
    """The reference values of one peer, or a skipped test."""
    path = GOLDEN / f"{name}.safetensors"
    if not path.exists():
        pytest.skip(f"reference values of other implementations are not there: {path.name} is looked for in ../shared/golden")
    return pytest.importorskip("safetensors.torch").load_file(path)


def below(tensors: Tensors, prefix: str) -> Tensors:
    """Those whose names begin so, without that beginning."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def make(
    expression: str,
    values: Mapping[str, Tensor],
    *,
    heads: int = HEADS,
    layers: int = 1,
    max_positions: int = MAX_POSITIONS,
    **options: Any,
) -> Positions:
    """Positions whose parameters are exactly ``values``, in float64."""
    positions = Positions(expression, Settings(layers, heads, heads * HEAD_DIM, max_positions), options).double()
    positions.load_state_dict({name: value.double() for name, value in values.items()})
    return positions.requires_grad_(False)


def bias(positions: Positions, n: int, causal: bool = False) -> Tensor:
    """(H, n, n)"""
    dense = additive_bias(terms(positions, n, causal=causal), matrix_call(n, n, torch.zeros(1)))
    assert dense is not None
    return dense[0]


def terms(positions: Positions, n: int, layer: int = 0, causal: bool = False) -> Terms:
    return positions.terms(Window(n, causal=causal)).of(layer, torch.zeros(1, n, positions.settings.dim))


class Attention:
    """One layer of self-attention, with a peer's projections and without one of the output."""

    def __init__(self, dim: int = HEADS * HEAD_DIM, heads: int = HEADS) -> None:
        self.module = layers.Attention(dim, heads).double().requires_grad_(False)
        self.projections = (self.module.q_proj, self.module.k_proj, self.module.v_proj)
        self.module.out_proj.weight.copy_(torch.eye(dim))
        self.module.out_proj.bias.zero_()

    @classmethod
    def of(cls, weights: Tensors, q: str, k: str, v: str) -> Attention:
        """With ``weights[q + ".weight"]``, ``weights[q + ".bias"]`` where there is one, and so on."""
        attention = cls()
        for projection, name in zip(attention.projections, (q, k, v), strict=True):
            fill(projection, weights[f"{name}.weight"], weights.get(f"{name}.bias"))
        return attention

    @classmethod
    def packed(cls, weight: Tensor, bias: Tensor | None = None) -> Attention:
        """With the rows of q, k and v one after the other, (3D, D)."""
        attention = cls()
        biases = (None,) * 3 if bias is None else bias.chunk(3)
        for projection, rows, own_bias in zip(attention.projections, weight.chunk(3), biases, strict=True):
            fill(projection, rows, own_bias)
        return attention

    @classmethod
    def by_head(cls, weights: Tensors) -> Attention:
        """DeBERTa v1 packs q, k and v head by head, and has no bias of keys."""
        dim = HEADS * HEAD_DIM
        packed = weights["in_proj.weight"].view(HEADS, 3, HEAD_DIM, dim).transpose(0, 1).reshape(3 * dim, dim)
        return cls.packed(packed, torch.cat([weights["q_bias"], torch.zeros(dim), weights["v_bias"]]))

    def __call__(self, x: Tensor, terms: Terms, padding: Tensor | None = None, causal: bool = False) -> tuple[Tensor, Tensor]:
        """(B, n, D) -> what comes before the output projection (B, n, D), and p (B, H, n, n)."""
        n = x.shape[1]
        call = Call(x.device, torch.float64, HEAD_DIM, n, n, weights=True)
        attend = BACKENDS["eager"].bind(self.module.project(terms), Mask(padding, causal), call)
        z, p = self.module(x.double(), attend)
        assert p is not None
        return z, p


def fill(linear: nn.Linear, weight: Tensor, bias: Tensor | None) -> None:
    linear.weight.copy_(weight)
    linear.bias.copy_(torch.zeros_like(linear.bias) if bias is None else bias)


def assert_close(found: Tensor, expected: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(found, expected.to(found.dtype), rtol=tolerance, atol=tolerance)
