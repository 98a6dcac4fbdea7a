"""Schemes whose positions are a learned function of the index: a small network, or the solution of an equation."""

from __future__ import annotations

import torch
from torch import Tensor

from .reading import Layer, Parameters, Reading, content


def fire(p: Parameters, layer: Layer) -> Reading:
    """Li et al. 2024, eq. 2, with |i-j| for i-j and max(i, j) for i: f_θ(ψ(i-j) / ψ(max(L, i))), ψ(x) = log(cx + 1)."""
    own = {name: p[f"fire.{name}"] for name in ("c", "threshold", "weight1", "bias1", "weight2", "bias2")}
    own = {name: value[layer.number if len(value) > 1 else 0] for name, value in own.items()}
    c, limit = own["c"].abs(), own["threshold"].abs() * layer.options.get("fire_threshold", 512.0)
    distance, furthest = layer.table(lambda i, j: abs(i - j)), layer.table(lambda i, j: max(i, j))
    ratio = torch.log(c * distance + 1) / torch.log(c * torch.where(furthest > limit, furthest, limit) + 1)
    if layer.options.get("fire_sided"):
        ratio = torch.where(layer.table(lambda i, j: j > i).bool(), ratio, -ratio)
    hidden = torch.einsum("ij,k->ijk", ratio, own["weight1"][:, 0]).add(own["bias1"]).clamp(min=0)
    bias = torch.einsum("ijk,hk->hij", hidden, own["weight2"]) + own["bias2"][:, None, None]
    return Reading(content(layer) * layer.scale() + bias)


STEPS = 4  # of the solver per token


def floater(p: Parameters, layer: Layer) -> Reading:
    """Liu et al. 2020, eq. 4 and 10: p(t) = p(0) + ∫ h(τ, p(τ)) dτ at t = 0.1·i, added to each layer's input.

    Solved by the classical method of order 4 in steps so small that the result is the solution.
    """
    own = {name: p[f"floater.{name}"] for name in ("initial", "weight1", "time_weight", "bias1", "weight2", "bias2")}

    def h(time: float, state: Tensor) -> Tensor:
        return torch.tanh(state @ own["weight1"] + own["time_weight"] * time + own["bias1"]) @ own["weight2"] + own["bias2"]

    step = 0.1 / STEPS
    state = own["initial"][layer.number if len(own["initial"]) > 1 else 0]
    states = [state]
    for number in range(STEPS * (layer.n - 1)):
        t = number * step
        k1 = h(t, state)
        k2 = h(t + step / 2, state + step / 2 * k1)
        k3 = h(t + step / 2, state + step / 2 * k2)
        k4 = h(t + step, state + step * k3)
        state = state + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        states.append(state)
    return Reading(content(layer) * layer.scale(), layer_input=torch.stack(states[::STEPS])[None])
