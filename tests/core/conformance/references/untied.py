"""TUPE: correlations of positions apart from those of words."""

from __future__ import annotations

import torch
from torch import Tensor

from .absolute import shared
from .reading import Layer, Parameters, Reading, content, layer_norm
from .scalar import reset, t5_bias

FACTOR = 2.0  # of 1/sqrt(2d), Ke et al. 2021, section 3.1


def projected(p: Parameters, layer: Layer, positions: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """(N, D) or (N, d) -> p U^Q and p U^K of every head, (N, d) each."""
    form = layer.options.get("untied_form", "code")
    u_q, u_k = shared(p["untied.query_projection"], layer), shared(p["untied.key_projection"], layer)
    if form == "head":  # Huang et al. 2021, eq. 14: p_i is of the size of a head, and all heads have it in common
        return [positions @ u_q] * layer.heads, [positions @ u_k] * layer.heads
    if form == "code":  # Ke et al. 2021, section 3.3: p is normalised wherever it is used
        positions = layer_norm(positions, p["untied.layer_norm.weight"], p["untied.layer_norm.bias"])
    queries, keys = positions @ u_q, positions @ u_k
    if form == "code":
        queries, keys = queries + p["untied.query_bias"], keys + p["untied.key_bias"]
    columns = [slice(h * layer.head_dim, (h + 1) * layer.head_dim) for h in range(layer.heads)]
    return [queries[:, own] for own in columns], [keys[:, own] for own in columns]


def correlations(p: Parameters, layer: Layer) -> Tensor:
    """(H, n, n): (p_i U^Q)·(p_j U^K) / sqrt(2d), one head after the other."""
    weight = p["untied.weight"]
    if layer.options.get("untied_form") == "head":
        weight = weight[layer.number if len(weight) > 1 else 0, 0]
    queries, keys = projected(p, layer, weight[: layer.n])
    return torch.stack([q @ k.T for q, k in zip(queries, keys, strict=True)]) * layer.scale(FACTOR)


def thetas(p: Parameters, layer: Layer) -> Tensor:
    """(H, 2): θ_1 and θ_2, scalars, or correlations of vectors of their own, each with itself."""
    if "reset.cls" in p:
        return layer.of(p["reset.cls"])
    queries, keys = projected(p, layer, p["untied.cls"])
    found = [[q[i] @ k[i] for i in range(2)] for q, k in zip(queries, keys, strict=True)]
    return torch.stack([torch.stack(pair) for pair in found]) * layer.scale(FACTOR)


def untied(p: Parameters, layer: Layer) -> Reading:
    """Ke et al. 2021, section 3.1: q_i·k_j / sqrt(2d) + (p_i U^Q)·(p_j U^K) / sqrt(2d)."""
    return Reading(content(layer) * layer.scale(FACTOR) + correlations(p, layer))


def untied_t5(p: Parameters, layer: Layer) -> Reading:
    """Ke et al. 2021, section 3.1: the same and a relative bias, which is not scaled."""
    return Reading(content(layer) * layer.scale(FACTOR) + correlations(p, layer) + t5_bias(p, layer))


def tupe_a(p: Parameters, layer: Layer) -> Reading:
    """Ke et al. 2021, section 3.2: reset_θ of the correlations."""
    return Reading(content(layer) * layer.scale(FACTOR) + reset(correlations(p, layer), thetas(p, layer), layer))


def tupe_r(p: Parameters, layer: Layer) -> Reading:
    """Ke et al. 2021, section 3.2: reset_θ of the correlations and the relative bias together."""
    bias = correlations(p, layer) + t5_bias(p, layer)
    return Reading(content(layer) * layer.scale(FACTOR) + reset(bias, thetas(p, layer), layer))
