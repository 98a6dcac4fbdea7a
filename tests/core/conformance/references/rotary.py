"""Rotations of queries and keys."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .reading import Layer, Parameters, Reading, content
from .relative import relative_logits_bias


def rope(p: Parameters, layer: Layer) -> Reading:
    """Su et al. 2021, eq. 14-16: (R_i q_i)·(R_j k_j) / √d, with the block-diagonal R_p written out as a matrix."""
    d = layer.head_dim
    if layer.options.get("rope_layout") == "half":
        pairs = [(t, t + d // 2) for t in range(d // 2)]
    else:
        pairs = [(2 * t, 2 * t + 1) for t in range(d // 2)]
    theta, length = angles(d, layer.options)
    theta = [angle if t < layer.options.get("rope_fraction", 1.0) * d // 2 else 0.0 for t, angle in enumerate(theta)]

    def rotation(position: int) -> Tensor:
        matrix = torch.zeros(d, d, dtype=torch.float64)
        for (first, second), angle in zip(pairs, theta, strict=True):
            matrix[first, first] = matrix[second, second] = length * math.cos(position * angle)
            matrix[second, first] = length * math.sin(position * angle)
            matrix[first, second] = -matrix[second, first]
        return matrix

    rotations = torch.stack([rotation(position) for position in range(layer.n)]).to(layer.q.dtype)  # (n, d, d)
    q = torch.einsum("pde,bhpe->bhpd", rotations, layer.q)
    k = torch.einsum("pde,bhpe->bhpd", rotations, layer.k)
    return Reading(torch.einsum("bhid,bhjd->bhij", q, k) * layer.scale())


def rope_relative_logits(p: Parameters, layer: Layer) -> Reading:
    """Both, as curves that are mixed by the layer's input do not see the rotations."""
    return Reading(rope(p, layer).scores + relative_logits_bias(p, layer))


def liere(p: Parameters, layer: Layer) -> Reading:
    """Ostmeier et al. 2024, section 3: rotations exp(p A), with A of blocks of 2×2, by the matrix exponential."""
    theta = layer.of(p["liere.theta"])  # (H, d/2)
    generators = torch.stack([torch.block_diag(*(t * torch.tensor([[0, -1], [1, 0]]).to(t) for t in head)) for head in theta])
    rotations = torch.stack([torch.linalg.matrix_exp(position * generators) for position in range(layer.n)])
    rotations = rotations.to(layer.q)  # (n, H, d, d)
    q = torch.einsum("phde,bhpe->bhpd", rotations, layer.q)
    k = torch.einsum("phde,bhpe->bhpd", rotations, layer.k)
    return Reading(torch.einsum("bhid,bhjd->bhij", q, k) * layer.scale())


def pope(p: Parameters, layer: Layer) -> Reading:
    """Gopalakrishnan et al. 2025, section 3: Σ_c μ(q_c) μ(k_c) cos((j - i) θ_c + δ_c), μ softplus."""
    d = layer.head_dim
    delta = layer.of(p["pope.bias"])  # (H, d)
    offsets = layer.table(lambda i, j: j - i)
    scores = 0
    for c in range(d):
        theta = layer.options.get("pope_base", 1e4) ** (-c / d)
        magnitudes = layer.q[..., c].exp().log1p()[..., :, None] * layer.k[..., c].exp().log1p()[..., None, :]
        scores = scores + magnitudes * torch.cos(offsets * theta + delta[:, c, None, None])
    return Reading(scores * layer.scale())


def selective_rope(p: Parameters, layer: Layer) -> Reading:
    """Movahedi et al. 2025: the angle between i and j is the sum of those of the words between, here θ_c (1 + (U V x_t)_c).

    Padding has no angle.
    """
    row = layer.number if len(p["selective_rope.up"]) > 1 else 0
    down, up = (p[f"selective_rope.{name}"][row] for name in ("down", "up"))
    pairs, base = layer.head_dim // 2, layer.options.get("selective_rope_base", 1e4)
    theta = torch.tensor([base ** (-c / pairs) for c in range(pairs)], dtype=torch.float64)
    words = layer.x @ down.transpose(1, 2)[:, None] @ up.transpose(1, 2)[:, None]  # (H, B, n, d/2)
    steps = (theta * (1 + words.transpose(0, 1))).expand(-1, layer.heads, -1, -1)  # (B, H, n, d/2)
    steps = steps * ~layer.padding[:, None, :, None]
    q, k = (torch.complex(x[..., ::2].double(), x[..., 1::2].double()) for x in (layer.q, layer.k))
    columns = []
    for j in range(layer.n):
        angles = []
        for i in range(layer.n):
            between = steps[:, :, min(i, j) + 1 : max(i, j) + 1].sum(2)
            angles.append(between if j > i else -between)
        turned = torch.polar(torch.ones_like(steps), torch.stack(angles, dim=2)) * k[:, :, j, None]
        columns.append((q.conj() * turned).real.sum(-1))
    return Reading((torch.stack(columns, dim=-1) * layer.scale()).to(layer.q.dtype))


def log_n(p: Parameters, layer: Layer) -> Tensor:
    """(B, H, n, 1) what scores grow by: s ln n (Nakanishi 2025, eq. 2), or 1 + β ln(1 + ⌊n / n_0⌋) (Llama 4), n keys seen."""
    before = torch.ones(layer.n, layer.n).tril() if layer.causal else torch.ones(layer.n, layer.n)
    n = (before * ~layer.padding[:, None]).sum(-1).clamp(min=1).to(layer.q.dtype)[:, None, :, None]
    if layer.options.get("position_log_n") == "floor":
        return 1 + layer.options["log_n_beta"] * (1 + n // layer.options["log_n_length"]).log()
    return layer.of(p["log_n.scale"])[:, None, None] * n.log()


def plain_log_n(p: Parameters, layer: Layer) -> Reading:
    return Reading(content(layer) * layer.scale() * log_n(p, layer))


def rope_log_n(p: Parameters, layer: Layer) -> Reading:
    return Reading(rope(p, layer).scores * log_n(p, layer))


def pope_log_n(p: Parameters, layer: Layer) -> Reading:
    return Reading(pope(p, layer).scores * log_n(p, layer))


def angles(d: int, options: Mapping[str, Any]) -> tuple[list[float], float]:
    """The angle per token of each of d / 2 pairs, and by what a rotated vector grows."""
    base, kind, s = (options.get(f"rope_{name}", default) for name, default in (("base", 1e4), ("type", ""), ("factor", 1)))
    theta = [base ** (-2 * t / d) for t in range(d // 2)]
    if kind == "linear":  # Chen et al. 2023: f(x, m / s)
        return [angle / s for angle in theta], 1.0
    if kind == "ntk_bidirectional":  # He et al. 2025: λ' = b⁻¹ (2 s L / 2π)^(d/c), by which the base is multiplied
        length = options["rope_original_positions"]
        critical = 2 * math.ceil(d / 2 * math.log(2 * length / (2 * math.pi), base))
        times = (2 * s * length / (2 * math.pi)) ** (d / critical) / base
        return [(base * times) ** (-2 * t / d) for t in range(d // 2)], 1.0
    if kind == "llama3":  # transformers: by wavelengths
        length, low, high = options["rope_original_positions"], options.get("rope_beta_slow", 1), options.get("rope_beta_fast", 4)
        found = []
        for angle in theta:
            wavelength = 2 * math.pi / angle
            smooth = (length / wavelength - low) / (high - low)
            between = (1 - smooth) * angle / s + smooth * angle
            found.append(angle / s if wavelength > length / low else angle if wavelength < length / high else between)
        return found, 1.0
    if kind == "longrope":
        length = options["rope_original_positions"]
        factors = options["rope_factors"].split(",")
        magnified = math.sqrt(1 + math.log(s) / math.log(length))
        return [angle / float(factor) for angle, factor in zip(theta, factors, strict=True)], magnified
    if kind == "ntk":  # the slowest pair as position interpolation has it, the fastest unchanged
        return [angle * s ** (-2 * t / (d - 2)) for t, angle in enumerate(theta)], 1.0
    if kind == "yarn":

        def pair(turns: float) -> float:
            """Of the wavelength L / turns; λ_t = 2π b^(2t/d)."""
            return d / 2 * math.log(options["rope_original_positions"] / turns / (2 * math.pi), base)

        low = max(0, math.floor(pair(options.get("rope_beta_fast", 32))))
        high = min(d - 1, math.ceil(pair(options.get("rope_beta_slow", 1))))
        interpolated = [min(1.0, max(0.0, (t - low) / (high - low))) for t in range(d // 2)]
        return [x * angle / s + (1 - x) * angle for x, angle in zip(interpolated, theta, strict=True)], 0.1 * math.log(s) + 1
    return theta, 1.0
