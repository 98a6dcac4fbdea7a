"""FLOATER (Liu et al. 2020): positions as the solution of a neural ordinary differential equation."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ..terms import Terms, Window, is_captured, precise
from .base import Scheme, Settings, option, register

TOKEN = 0.1  # time from one token to the next


@register
class Floater(Scheme):
    """``p(t) = p(0) + ∫_0^t h(τ, p(τ)) dτ``, added to every layer's attention input: ``x_i + p(0.1·i)`` (eq. 4, 10).

    ``h(τ, p) = W_2 tanh(W_1 p + w_τ τ + b_1) + b_2`` is one network for all layers; ``initial`` p(0), (layers, D), is each
    layer's own. Solved from 0 in both directions by a Runge-Kutta method of order 4, ``--floater-stride`` tokens per step, with
    Hermite's cubic interpolation between; a fixed grid, so that a longer sequence has the same positions where a shorter one has
    any.

    h starts near 0, and so all tokens at nearly the same p, which makes it slow in the order task of FIDELITY.md. W_1 and W_2
    decay, as everything does in their code.
    """

    name = "floater"
    equation = "x_i^(l) + p^(l)(iΔ), p' = h(τ, p)"
    source = "Liu et al. 2020, eq. 4, 10"
    family, advice = "dynamics", "positions that follow a learned differential equation; slow"
    translation_invariant = interpretable = parallelisable = False
    keeps_float32 = True
    decays = ("weight1", "weight2")
    honours = ("position_share_layers",)

    class Options:
        hidden: int | None = option("hidden width of the dynamics (D/4 by default)", None, minimum=1, maximum=1 << 17)
        stride: int = option("tokens per step of the solver", 8, minimum=1, maximum=1024)

    def __init__(self, settings: Settings, options: Any) -> None:
        super().__init__(settings, replace(options, hidden=options.hidden or max(1, settings.dim // 4)))
        dim, hidden = settings.dim, self.options.hidden
        self.initial = nn.Parameter(torch.empty(self.layer_sets, dim))
        self.weight1 = nn.Parameter(torch.empty(dim, hidden))
        self.time_weight = nn.Parameter(torch.empty(hidden))
        self.bias1 = nn.Parameter(torch.zeros(hidden))
        self.weight2 = nn.Parameter(torch.empty(hidden, dim))
        self.bias2 = nn.Parameter(torch.zeros(dim))
        nn.init.normal_(self.initial, std=0.02)
        nn.init.normal_(self.time_weight, std=0.02)
        nn.init.xavier_normal_(self.weight1)
        nn.init.xavier_normal_(self.weight2, gain=0.1)

    def dynamics(self, time: float, p: Tensor) -> Tensor:
        """h: a time, (layers, D) -> (layers, D)."""
        weight1, time_weight, bias1, weight2, bias2 = map(
            precise, (self.weight1, self.time_weight, self.bias1, self.weight2, self.bias2)
        )
        return torch.tanh(p @ weight1 + time_weight * time + bias1) @ weight2 + bias2

    def layer_terms(self, window: Window) -> list[Terms]:
        span = window.span
        if span is None:
            return [Terms(inputs=(layer,)) for layer in self._between(window.query_positions)]
        if is_captured() and span <= self.settings.max_positions:  # the number of steps cannot be a symbol
            span = self.settings.max_positions
        p = self._solve(span).transpose(0, 1)  # (layers, span, D)
        rows = self.rows_of(p, window)[..., window.start :, :]  # (layers, B or 1, Q, D)
        return [Terms(inputs=(layer,)) for layer in rows]

    def _solve(self, n: int) -> Tensor:
        """(n, layers, D)."""
        stride, initial = self.options.stride, precise(self.initial)
        if initial.is_meta:  # there are no values yet while a model is built to be loaded
            return initial.new_empty(n, *initial.shape)
        p, slope = self._solution(-(-max(n - 1, 1) // stride))
        u = torch.arange(1, stride + 1, device=p.device, dtype=p.dtype)[:, None, None] / stride
        p, slope = p[:, None], slope[:, None]
        between = _cubic(p[:-1], p[1:], slope[:-1], slope[1:], u)  # (grid - 1, stride, layers, D)
        return torch.cat([initial[None], between.flatten(0, 1)])[:n]

    def _between(self, positions: Tensor) -> Tensor:
        """At real positions (B or 1, n), of which the least and the largest are read: (layers, B or 1, n, D)."""
        initial = precise(self.initial)
        if initial.is_meta:
            return initial.new_empty(len(initial), *positions.shape, initial.shape[1])
        steps = positions.to(initial.dtype) / self.options.stride
        first, last = (math.floor(bound) for bound in steps.aminmax())
        p, slope = self._solution(max(last + 1, 0), min(first, 0))
        i, u = steps.floor().long() - min(first, 0), (steps - steps.floor())[..., None, None]
        return _cubic(p[i], p[i + 1], slope[i], slope[i + 1], u).permute(2, 0, 1, 3)

    def _solution(self, last: int, first: int = 0) -> tuple[Tensor, Tensor]:
        """p and its change per step at the whole strides from ``first`` <= 0 to ``last``, the same for any: (grid, layers, D)."""
        step = self.options.stride * TOKEN
        before, after = (
            _integrate(self.dynamics, precise(self.initial), [i * step for i in strides])
            for strides in (range(0, first - 1, -1), range(last + 1))
        )
        p, slope = (torch.cat([x.flip(0)[:-1], y]) for x, y in zip(before, after, strict=True))
        return p, step * slope


def _cubic(p0: Tensor, p1: Tensor, slope0: Tensor, slope1: Tensor, u: Tensor) -> Tensor:
    """Hermite's cubic between p0 at u = 0 and p1 at u = 1."""
    weights = (1 + 2 * u) * (1 - u) ** 2, u**2 * (3 - 2 * u), u * (1 - u) ** 2, u**2 * (u - 1)
    return weights[0] * p0 + weights[1] * p1 + weights[2] * slope0 + weights[3] * slope1


def _integrate(h: Callable[[float, Tensor], Tensor], p: Tensor, times: list[float]) -> tuple[Tensor, Tensor]:
    """p and its slope h at these times, each (times, …), by a step of Kutta's 3/8 rule between each two.

    The times are plain numbers: a solver that takes them as a tensor reads it at every step, and the host waits for the device.
    """
    values, slopes = [p], [h(times[0], p)]
    for start, end in pairwise(times):
        step, slope1 = end - start, slopes[-1]
        slope2 = h(start + step / 3, p + step / 3 * slope1)
        slope3 = h(start + step * 2 / 3, p + step * (slope2 - slope1 / 3))
        slope4 = h(end, p + step * (slope1 - slope2 + slope3))
        p = p + step / 8 * (slope1 + 3 * (slope2 + slope3) + slope4)
        values.append(p)
        slopes.append(h(end, p))
    return torch.stack(values), torch.stack(slopes)
