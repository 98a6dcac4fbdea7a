"""TUPE: correlations of positions apart from those of words."""

from __future__ import annotations

import torch
from torch import Tensor

from .absolute import shared
from .reading import Layer, Parameters, Reading, content, layer_norm
from .scalar import reset, t5_bias

FACTOR = 2.0  # of 1/sqrt(2d), Ke et al. 2021, section 3.1


def correlations(p: Parameters, layer: Layer) -> Tensor:
    """(H, n, n): (p_i U^Q)·(p_j U^K) / sqrt(2d), one head after the other."""
    positions = p["untied.weight"][: layer.n]
    u_q, u_k = shared(p["untied.query_projection"], layer), shared(p["untied.key_projection"], layer)
    form = layer.options.get("untied_form", "equation")
    if form == "code":
        positions = layer_norm(positions, p["untied.layer_norm.weight"], p["untied.layer_norm.bias"])
        queries, keys = positions @ u_q + p["untied.query_bias"], positions @ u_k + p["untied.key_bias"]
    elif form == "equation":
        queries, keys = positions @ u_q, positions @ u_k
    heads = []
    for h in range(layer.heads):
        columns = slice(h * layer.head_dim, (h + 1) * layer.head_dim)
        if form == "head":  # Huang et al. 2021, eq. 14: each head projects its part of the position embedding
            heads.append(positions[:, columns] @ u_q @ (positions[:, columns] @ u_k).T)
        else:
            heads.append(queries[:, columns] @ keys[:, columns].T)
    return torch.stack(heads) * layer.scale(FACTOR)


def untied(p: Parameters, layer: Layer) -> Reading:
    """Ke et al. 2021, section 3.1: q_i·k_j / sqrt(2d) + (p_i U^Q)·(p_j U^K) / sqrt(2d)."""
    return Reading(content(layer) * layer.scale(FACTOR) + correlations(p, layer))


def untied_t5(p: Parameters, layer: Layer) -> Reading:
    """Ke et al. 2021, section 3.1: the same and a relative bias, which is not scaled."""
    return Reading(content(layer) * layer.scale(FACTOR) + correlations(p, layer) + t5_bias(p, layer))


def tupe_a(p: Parameters, layer: Layer) -> Reading:
    """Ke et al. 2021, section 3.2: reset_θ of the correlations."""
    return Reading(content(layer) * layer.scale(FACTOR) + reset(correlations(p, layer), p, layer))


def tupe_r(p: Parameters, layer: Layer) -> Reading:
    """Ke et al. 2021, section 3.2: reset_θ of the correlations and the relative bias together."""
    return Reading(content(layer) * layer.scale(FACTOR) + reset(correlations(p, layer) + t5_bias(p, layer), p, layer))
