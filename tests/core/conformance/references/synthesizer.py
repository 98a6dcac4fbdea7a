"""Scores that are synthesized rather than compared (Tay et al. 2021, section 3)."""

from __future__ import annotations

import torch
from torch import Tensor

from .reading import Layer, Parameters, Reading


def synthesizer_random(p: Parameters, layer: Layer) -> Reading:
    """Section 3.1.2: softmax(R) V."""
    return of_all(layer.of(p["synthesizer_random.weight"])[:, : layer.n, : layer.n], layer)


def synthesizer_factorized_random(p: Parameters, layer: Layer) -> Reading:
    """Section 3.1.4: softmax(R_1 R_2^T) V."""
    left, right = (layer.of(p[f"synthesizer_factorized_random.{side}"])[:, : layer.n] for side in ("left", "right"))
    return of_all(torch.einsum("hik,hjk->hij", left, right), layer)


def synthesizer_dense(p: Parameters, layer: Layer) -> Reading:
    """Section 3.1.1: B_i = W_2 relu(W_1 X_i + b_1) + b_2, and softmax(B) V; X_i is the head's part of the input."""
    name = "synthesizer_dense."
    hidden = first_layer(p, name, layer)
    return Reading(second_layer(hidden, p[name + "weight2"], p[name + "bias2"], layer)[..., : layer.n])


def synthesizer_factorized_dense(p: Parameters, layer: Layer) -> Reading:
    """Section 3.1.3: A, B = F_A(X_i), F_B(X_i); C = H_A(A) * H_B(B), where H_A tiles a values and H_B stretches b."""
    name = "synthesizer_factorized_dense."
    hidden = first_layer(p, name, layer)
    a = second_layer(hidden, p[name + "tiled_weight"], p[name + "tiled_bias"], layer)
    b = second_layer(hidden, p[name + "stretched_weight"], p[name + "stretched_bias"], layer)
    tiled = torch.cat([a] * b.shape[-1], dim=-1)
    stretched = torch.cat([column[..., None].expand_as(a) for column in b.unbind(-1)], dim=-1)
    return Reading((tiled * stretched)[..., : layer.n])


def first_layer(p: Parameters, name: str, layer: Layer) -> Tensor:
    """(B, H, n, d)"""
    x = layer.split(layer.x)
    return torch.einsum("bhid,hde->bhie", x, layer.of(p[name + "weight1"])).add(layer.of(p[name + "bias1"])).clamp(min=0)


def second_layer(hidden: Tensor, weight: Tensor, bias: Tensor, layer: Layer) -> Tensor:
    """(B, H, n, width)"""
    return torch.einsum("bhid,hde->bhie", hidden, layer.of(weight)) + layer.of(bias)


def of_all(scores: Tensor, layer: Layer) -> Reading:
    """(H, n, n) for every sequence of the batch."""
    return Reading(scores.expand(len(layer.x), *scores.shape))
