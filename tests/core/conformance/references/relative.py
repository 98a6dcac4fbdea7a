"""Schemes with a vector per offset."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .reading import Layer, Parameters, Reading, content, layer_norm


def vectors(table: Tensor, layer: Layer) -> Tensor:
    """(H, n, n, d): a_{ij} = table[clip(j - i, k) + k] of this layer."""
    return layer.of(table)[:, layer.rows(lambda i, j: layer.clip(j - i) + layer.max_offset)]


def vectors_with_cls(table: Tensor, layer: Layer) -> Tensor:
    """The same, the last two rows being for pairs from [CLS] and for other pairs to it."""
    last = 2 * layer.max_offset + 1
    rows = layer.rows(lambda i, j: last if i == 0 else last + 1 if j == 0 else layer.clip(j - i) + layer.max_offset)
    return layer.of(table)[:, rows]


def with_queries(layer: Layer, a: Tensor) -> Tensor:
    """(B, H, n, n): q_i · a_ij"""
    return torch.einsum("bhid,hijd->bhij", layer.q, a)


def with_keys(layer: Layer, a: Tensor) -> Tensor:
    """(B, H, n, n): k_j · a_ij"""
    return torch.einsum("bhjd,hijd->bhij", layer.k, a)


def shaw(p: Parameters, layer: Layer) -> Reading:
    """Shaw et al. 2018, eq. 3, 4: q_i·(k_j + a^K_ij) / √d, and Σ p_ij (v_j + a^V_ij)."""
    e, values = content(layer), None
    if "shaw.keys" in p:
        e = torch.einsum("bhid,bhijd->bhij", layer.q, layer.k[:, :, None] + vectors(p["shaw.keys"], layer))
    if "shaw.values" in p:
        values = vectors(p["shaw.values"], layer)
    return Reading(e * layer.scale(), values)


def shaw_reset(p: Parameters, layer: Layer) -> Reading:
    """shaw with rows of their own for [CLS] in both tables."""
    a = with_queries(layer, vectors_with_cls(p["shaw.keys"], layer))
    return Reading((content(layer) + a) * layer.scale(), vectors_with_cls(p["shaw.values"], layer))


def relative_logits(p: Parameters, layer: Layer) -> Reading:
    """Inkling (2026): q_i·k_j / √d + r_i·D_{j-i}, r_i = W x_i per head, or made of the query; D is 0 from max_distance on."""
    return Reading(content(layer) * layer.scale() + relative_logits_bias(p, layer))


def relative_logits_bias(p: Parameters, layer: Layer) -> Tensor:
    """(B, H, n, n)"""
    of_head, curves = (p[f"relative_logits.{name}"] for name in ("projection", "weight"))
    of_head, curves = layer.of(of_head), curves[layer.number if len(curves) > 1 else 0]
    hidden = layer.options.get("relative_logits_input") == "hidden"
    r = torch.einsum("bnc,hcs->bhns", layer.x, of_head) if hidden else torch.einsum("bhnc,hcs->bhns", layer.q, of_head)
    furthest = layer.options.get("relative_logits_max_distance", 1024)
    rows = []
    for i in range(layer.n):
        known = [curves[j - i + furthest - 1] if abs(j - i) < furthest else torch.zeros_like(curves[0]) for j in range(layer.n)]
        rows.append(torch.einsum("bhs,js->bhj", r[:, :, i], torch.stack(known)))
    return torch.stack(rows, dim=2)


def m4(p: Parameters, layer: Layer) -> Reading:
    """Huang et al. 2021, eq. 12: (q_i·k_j + q_i·a_ij + k_j·a_ij) / √d."""
    a = vectors(p["m4.weight"], layer)
    return Reading((content(layer) + with_queries(layer, a) + with_keys(layer, a)) * layer.scale())


def m4_reset(p: Parameters, layer: Layer) -> Reading:
    """Huang et al. 2021, section 5.3: M4 in which [CLS] has rows of its own, after Ke et al. 2021, section 3.2."""
    a = vectors_with_cls(p["m4.weight"], layer)
    return Reading((content(layer) + with_queries(layer, a) + with_keys(layer, a)) * layer.scale())


def m4m(p: Parameters, layer: Layer) -> Reading:
    """Huang et al. 2021, eq. 20: (q_i·k_j)(q_i·a_ij)(k_j·a_ij) / √d."""
    a = vectors(p["m4m.weight"], layer)
    return Reading(content(layer) * with_queries(layer, a) * with_keys(layer, a) * layer.scale())


def absolute_m4m(p: Parameters, layer: Layer) -> Reading:
    """Huang et al. 2021, section 5.3: M4M over an input with position embeddings."""
    return Reading(m4m(p, layer).scores, embedding=p["absolute.weight"][: layer.n][None])


def deberta(p: Parameters, layer: Layer) -> Reading:
    """(q_i·k_j + q_i·A_ij + k_j·B_ij) / sqrt(3d), A and B being projections of one table of relative positions.

    With buckets, as v2 and v3 have, the bucket of i - j takes its place.

    Huang et al. 2021, eq. 13, or He et al. 2021, eq. 4 with δ of eq. 3 (``paper``: B is read at δ(j, i)), or as the authors'
    code reads it (``original``: B is read at δ(i, j) too).
    """
    (a, b), buckets = deberta_tables(p, layer), layer.options.get("deberta_buckets")  # (H, rows, d)
    k = buckets or layer.max_offset

    def distance(i: int, j: int) -> int:
        return i - j if buckets is None else deberta_bucket(i - j, buckets, layer.max_offset)

    def delta(i: int, j: int) -> int:
        return 0 if distance(i, j) <= -k else 2 * k - 1 if distance(i, j) >= k else distance(i, j) + k

    def offset(i: int, j: int) -> int:
        return max(-k, min(k, distance(j, i))) + k

    readings = {
        "relative": (offset, offset),
        "paper": (delta, lambda i, j: delta(j, i)),
        "original": (delta, delta),
    }
    row_a, row_b = readings[layer.options.get("deberta_indexing", "relative")]
    e = content(layer) + with_queries(layer, a[:, layer.rows(row_a)]) + with_keys(layer, b[:, layer.rows(row_b)])
    return Reading(e * layer.scale(3.0))


def deberta_bucket(x: int, buckets: int, furthest: int) -> int:
    """The authors' v2: x up to m = buckets / 2; beyond, of its sign, m + ⌈(m - 1) log(|x|/m) / log((furthest - 1)/m)⌉."""
    m, distance = buckets // 2, abs(x)
    if distance <= m:
        return x
    steps = (m - 1) * math.log(distance / m) / math.log((furthest - 1) / m)
    return int(math.copysign(m + math.ceil(round(steps, 9)), x))


def deberta_tables(p: Parameters, layer: Layer) -> tuple[Tensor, Tensor]:
    """A and B, each (H, rows, d)."""
    weight, form = p["deberta.weight"], layer.options.get("deberta_projections", "head")
    if form == "head":
        table, key, query = (layer.of(p[f"deberta.{name}"]) for name in ("weight", "key_projection", "query_projection"))
        return table @ key, table @ query
    if form == "model":
        key, query, bias = (p[f"deberta.{name}"] for name in ("key_projection", "query_projection", "query_bias"))
        number = layer.number if len(key) > 1 else 0
        return layer.split(weight[0, 0] @ key[number, 0]), layer.split(weight[0, 0] @ query[number, 0] + bias[number, 0])
    table = layer_norm(
        weight[0, 0], p["deberta.layer_norm.weight"], p["deberta.layer_norm.bias"], layer.options.get("deberta_norm_eps", 1e-7)
    )
    own = layer.projections
    return layer.split(table @ own["k_weight"].T + own["k_bias"]), layer.split(table @ own["q_weight"].T + own["q_bias"])


def transformer_xl(p: Parameters, layer: Layer) -> Reading:
    """Dai et al. 2019, section 3.3: ((q_i + u)·k_j + (q_i + v)·W_R R_{i-j}) / √d, R_{i-j} as in Vaswani et al. 2017."""
    dim = layer.dim

    def sinusoids(distance: int) -> list[float]:
        angles = [distance / 10000 ** (2 * (t // 2) / dim) for t in range(dim)]
        return [math.cos(angle) if t % 2 else math.sin(angle) for t, angle in enumerate(angles)]

    distances = torch.tensor([sinusoids(distance) for distance in range(1 - layer.n, layer.n)], dtype=layer.q.dtype)
    projection = p["transformer_xl.projection"]
    rows = distances @ projection[layer.number if len(projection) > 1 else 0, 0]  # (2n-1, D)
    a = layer.split(rows)[:, layer.rows(lambda i, j: i - j + layer.n - 1)]  # (H, n, n, d)
    u, v = (p[f"transformer_xl.{name}"][0][:, None] for name in ("content_bias", "position_bias"))
    with_content = torch.einsum("bhid,bhjd->bhij", layer.q + u, layer.k)
    with_position = torch.einsum("bhid,hijd->bhij", layer.q + v, a)
    return Reading((with_content + with_position) * layer.scale())
