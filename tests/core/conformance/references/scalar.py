"""Schemes with one scalar per offset: additive or multiplicative, learned or given by a function of it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .reading import Layer, Parameters, Reading, content


def raffel(p: Parameters, layer: Layer) -> Reading:
    """Huang et al. 2021, eq. 10: (q_i·k_j + a_{j-i}) / √d; eq. 14 has a_{j-i} outside the root."""
    a = layer.of(p["raffel.weight"])[:, layer.rows(lambda i, j: layer.clip(j - i) + layer.max_offset)]
    if not layer.options.get("raffel_scaled", True):
        return Reading(content(layer) * layer.scale() + a)
    return Reading((content(layer) + a) * layer.scale())


def m1(p: Parameters, layer: Layer) -> Reading:
    """Huang et al. 2020, method 1: (q_i·k_j) a_{|j-i|} / √d."""
    return Reading(content(layer) * gain(p["m1.weight"], layer, lambda i, j: abs(layer.clip(j - i))) * layer.scale())


def m2(p: Parameters, layer: Layer) -> Reading:
    """Huang et al. 2021, eq. 11: (q_i·k_j) a_{j-i} / √d."""
    rows = lambda i, j: layer.clip(j - i) + layer.max_offset  # noqa: E731
    return Reading(content(layer) * gain(p["m2.weight"], layer, rows) * layer.scale())


def m2_reset(p: Parameters, layer: Layer) -> Reading:
    """m2 with [CLS] having a gain of its own in its row and in its column, the last two of the table."""
    last = 2 * layer.max_offset + 1
    rows = lambda i, j: last if i == 0 else last + 1 if j == 0 else layer.clip(j - i) + layer.max_offset  # noqa: E731
    return Reading(content(layer) * gain(p["m2.weight"], layer, rows) * layer.scale())


def gain(weight: Tensor, layer: Layer, row) -> Tensor:
    """(H, n, n)"""
    return layer.of(weight)[:, layer.rows(row)]


def t5_bucket(offset: int, buckets: int, max_distance: int, causal: bool) -> int:
    """Raffel et al. 2020, section 2.1 and the authors' code, in whole numbers, so that no logarithm is rounded.

    Beyond E = half of a direction's m buckets, the bucket E + t is the last with (M/E)^(t/(m-E)) <= r/E.
    """
    if causal:
        start, distance, m = 0, max(-offset, 0), buckets
    else:
        m = buckets // 2
        start, distance = (m if offset > 0 else 0), abs(offset)
    exact = m // 2
    if distance < exact:
        return start + distance
    steps = m - exact
    reached = sum(distance**steps >= max_distance**t * exact ** (steps - t) for t in range(1, steps))
    return start + exact + reached


def t5_bias(p: Parameters, layer: Layer) -> Tensor:
    """(H, n, n): w[h, bucket(j - i)]"""
    buckets, distance = layer.options.get("t5_buckets", 32), layer.options.get("t5_max_distance", 128)
    rows = {r: t5_bucket(r, buckets, distance, layer.causal) for r in range(1 - layer.n, layer.n)}
    return layer.of(p["t5.weight"])[:, layer.rows(lambda i, j: rows[j - i])]


def t5(p: Parameters, layer: Layer) -> Reading:
    """Raffel et al. 2020, section 2.1: a scalar per head and bucket, added to the scaled score, the same in all layers."""
    return Reading(content(layer) * layer.scale() + t5_bias(p, layer))


def tisa_bias(p: Parameters, layer: Layer) -> Tensor:
    """(H, n, n): Wennberg & Henter 2021, eq. 5, one kernel after the other."""
    a, b, c = (layer.of(p[f"tisa.{name}"]) for name in ("amplitude", "sharpness", "offset"))
    r = layer.table(lambda i, j: j - i)
    bias = torch.zeros(layer.heads, layer.n, layer.n, dtype=r.dtype)
    for s in range(a.shape[1]):
        bias = bias + a[:, s, None, None] * torch.exp(-b[:, s, None, None].abs() * (r - c[:, s, None, None]) ** 2)
    return bias


def tisa(p: Parameters, layer: Layer) -> Reading:
    """Wennberg & Henter 2021, eq. 4b: q_i·k_j / √d + f_θ(j - i)."""
    return Reading(content(layer) * layer.scale() + tisa_bias(p, layer))


def absolute_tisa(p: Parameters, layer: Layer) -> Reading:
    """Wennberg & Henter 2021, eq. 4a: the same with position embeddings in the input."""
    return Reading(tisa(p, layer).scores, embedding=p["absolute.weight"][: layer.n][None])


def absolute_t5(p: Parameters, layer: Layer) -> Reading:
    """Ke et al. 2021, section 4.1 (BERT-R): a relative bias over an input with position embeddings."""
    return Reading(t5(p, layer).scores, embedding=p["absolute.weight"][: layer.n][None])


def alibi_slopes(heads: int) -> list[float]:
    """Press et al. 2022, section 3: 2^(-8/H), 2^(-16/H), …; for other H, the authors' code goes on with the odd ones of 2H."""
    if math.log2(heads).is_integer():
        return [2 ** (-8 * (h + 1) / heads) for h in range(heads)]
    power = 2 ** int(math.log2(heads))
    return alibi_slopes(power) + [2 ** (-8 * (2 * h + 1) / (2 * power)) for h in range(heads - power)]


def alibi(p: Parameters, layer: Layer) -> Reading:
    """Press et al. 2022, section 3: q_i·k_j / √d - m_h |j - i|; sided: m_{H+1-h} where j > i."""
    left = alibi_slopes(layer.heads)
    right = left[::-1] if layer.options.get("alibi_sided") else left
    tables = [layer.table(lambda i, j, m=m, w=w: -(w if j > i else m) * abs(j - i)) for m, w in zip(left, right, strict=True)]
    bias = torch.stack(tables)
    return Reading(content(layer) * layer.scale() + bias)


def kerple(p: Parameters, layer: Layer) -> Reading:
    """Chi et al. 2022, section 4: -r_1 log(1 + r_2 |j-i|), or -r_1 |j-i|^r_2 with r_2 <= 2; at least 0.01 as in their code.

    A bound changes no gradient: their code moves the parameters to it.
    """
    power = layer.options.get("kerple_form") == "power"
    r1, r2 = (layer.of(p[f"kerple.{name}"]) for name in ("r1", "r2"))
    r1, r2 = (r + (r.clamp(0.01, top) - r).detach() for r, top in ((r1, None), (r2, 2.0 if power else None)))
    if layer.options.get("kerple_sided"):
        after = layer.table(lambda i, j: j > i).bool()
        r1, r2 = (torch.where(after, r[:, 1, None, None], r[:, 0, None, None]) for r in (r1, r2))
    else:
        r1, r2 = r1[:, None, None], r2[:, None, None]
    distance = layer.table(lambda i, j: abs(j - i))
    if power:
        bias = -r1 * distance**r2
    else:
        bias = -r1 * torch.log(1 + r2 * distance)
    return Reading(content(layer) * layer.scale() + bias)


def log_cpb(p: Parameters, layer: Layer) -> Reading:
    """Liu et al. 2022, eq. 3 and 4: g(sign(r) log(1 + |r|)) with a network g per layer, in the code 16 sigmoid(g)."""
    row = layer.number if len(p["log_cpb.weight1"]) > 1 else 0
    weight1, bias1, weight2 = p["log_cpb.weight1"][row], p["log_cpb.bias1"][row], layer.of(p["log_cpb.weight2"])
    r = layer.table(lambda i, j: math.copysign(math.log(1 + abs(j - i)), j - i))
    hidden = (r[..., None] * weight1 + bias1).clamp(min=0)  # (n, n, hidden)
    bias = torch.einsum("ijk,hk->hij", hidden, weight2)
    bound = layer.options.get("log_cpb_bound", 16.0)
    return Reading(content(layer) * layer.scale() + (bound / (1 + (-bias).exp()) if bound else bias))


def cable(p: Parameters, layer: Layer) -> Reading:
    """-|c_i - c_j| as a sum over the words between: Veisi et al. 2025; minus the logarithms of forget gates, Lin et al. 2025.

    b_ij = -Σ softplus(w·x_t + b) over t from min(i, j) + 1 to max(i, j), with other w and b for j > i if there are two gates.
    """
    row = layer.number if len(p["cable.weight"]) > 1 else 0
    weight, offset = (p[f"cable.{name}"][row] for name in ("weight", "bias"))
    steps = (torch.einsum("bnd,hgd->bhng", layer.x, weight) + offset[:, None]).exp().log1p()
    steps = steps.expand(-1, layer.heads, -1, -1)
    rows = []
    for i in range(layer.n):
        row_of_i = []
        for j in range(layer.n):
            between = steps[:, :, min(i, j) + 1 : max(i, j) + 1, -1 if j > i else 0]
            row_of_i.append(-between.sum(-1))
        rows.append(torch.stack(row_of_i, dim=-1))
    return Reading(content(layer) * layer.scale() + torch.stack(rows, dim=-2))


def reset(bias: Tensor, thetas: Tensor, layer: Layer) -> Tensor:
    """Ke et al. 2021, section 3.2: θ_1 for all pairs from [CLS], θ_2 for all others to it; both (H, 2)."""
    theta = thetas[..., None, None]  # (H, 2, 1, 1)
    from_cls = layer.table(lambda i, j: i == 0)
    to_cls = layer.table(lambda i, j: j == 0 and i > 0)
    return (1 - from_cls - to_cls) * bias + from_cls * theta[:, 0] + to_cls * theta[:, 1]
