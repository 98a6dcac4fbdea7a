"""Schemes that add positions to the words rather than to attention."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .reading import Layer, Parameters, Reading, content, layer_norm


def none(p: Parameters, layer: Layer) -> Reading:
    """Vaswani et al. 2017, eq. 1, on its own."""
    return Reading(content(layer) * layer.scale())


def absolute(p: Parameters, layer: Layer) -> Reading:
    """Devlin et al. 2019, figure 2: input = token embedding + position embedding."""
    return Reading(content(layer) * layer.scale(), embedding=p["absolute.weight"][: layer.n][None])


def sentence_absolute(p: Parameters, layer: Layer) -> Reading:
    """Huang et al. 2021, section 5.2: positions restart in every sentence, at 1, since <s> is at 0; a separator is the last
    of its sentence."""
    rows = []
    for sentence in layer.tokens.tolist():
        position = 0
        for token in sentence:
            rows.append(p["sentence_absolute.weight"][position])
            position = layer.options.get("sentence_absolute_first", 1) if token == layer.separator else position + 1
    return Reading(content(layer) * layer.scale(), embedding=torch.stack(rows).view_as(layer.x))


def sinusoidal(p: Parameters, layer: Layer) -> Reading:
    """Vaswani et al. 2017, section 3.5; the sum √D·w + PE divided by √D (section 3.4 multiplies the words by √D)."""
    dim = layer.dim
    if layer.options.get("sinusoidal_layout") == "fairseq":
        half = dim // 2

        def entry(position: int, column: int) -> float:
            angle = (position + 2) / 10000 ** (column % half / (half - 1))
            return math.sin(angle) if column < half else math.cos(angle)
    else:

        def entry(position: int, column: int) -> float:
            angle = position / 10000 ** (2 * (column // 2) / dim)
            return math.cos(angle) if column % 2 else math.sin(angle)

    table = [[entry(position, column) / math.sqrt(dim) for column in range(dim)] for position in range(layer.n)]
    return Reading(content(layer) * layer.scale(), embedding=torch.tensor([table], dtype=layer.q.dtype))


def absolute_untied_projection(p: Parameters, layer: Layer) -> Reading:
    """Ke et al. 2021, section 4.1 (BERT-A^d): (x_i W^Q + p_i U^Q)(x_j W^K + p_j U^K) / √(4d), p normalised (section 3.3)."""
    name = "absolute_untied_projection."
    positions = p[name + "weight"][: layer.n]
    u_q, u_k = p[name + "query_projection"], p[name + "key_projection"]
    b_q = b_k = torch.zeros_like(positions[0])
    if layer.options.get("absolute_untied_projection_form", "code") == "code":
        positions = layer_norm(positions, p[name + "layer_norm.weight"], p[name + "layer_norm.bias"])
        b_q, b_k = p[name + "query_bias"], p[name + "key_bias"]
    q = layer.q + layer.split(positions @ shared(u_q, layer) + b_q)
    k = layer.k + layer.split(positions @ shared(u_k, layer) + b_k)
    return Reading(torch.einsum("bhid,bhjd->bhij", q, k) * layer.scale(4.0))


def shared(projection: Tensor, layer: Layer) -> Tensor:
    """(1 or layers, 1, D, D) -> (D, D)"""
    return projection[layer.number if len(projection) > 1 else 0, 0]
