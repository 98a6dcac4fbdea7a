"""FLOATER (Liu et al. 2020): positions as the solution of a neural ordinary differential equation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor, nn

from ..terms import Terms, Window, is_captured, precise
from .base import Scheme, Settings, option, register

TOKEN = 0.1  # time from one token to the next


@register
class Floater(Scheme):
    """``p(t) = p(0) + ∫_0^t h(τ, p(τ)) dτ``, added to every layer's attention input: ``x_i + p(0.1·i)`` (eq. 4, 10).

    ``h(τ, p) = W_2 tanh(W_1 p + w_τ τ + b_1) + b_2`` is one network for all layers; ``initial`` p(0), (layers, D), is each
    layer's own. Solved by a Runge-Kutta method of order 4, ``--floater-stride`` tokens per step, with Hermite's cubic
    interpolation between; a fixed grid, so that a longer sequence has the same positions where a shorter one has any.

    h starts near 0, and so all tokens at nearly the same p, which makes it slow in the order task of FIDELITY.md.
    """

    name = "floater"
    equation = "x_i^(l) + p^(l)(iΔ), p' = h(τ, p)"
    source = "Liu et al. 2020, eq. 4, 10"
    translation_invariant = False
    interpretable = False
    parallelisable = False
    honours = ("position_share_layers",)

    @dataclass(frozen=True)
    class Options:
        hidden: int | None = option("hidden width of the dynamics (D/4 by default)", None, minimum=1, maximum=1 << 17)
        stride: int = option("tokens per step of the solver", 8, minimum=1, maximum=1024)

    def __init__(self, settings: Settings, options: Options) -> None:
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

    def layer_terms(self, window: Window) -> Sequence[Terms]:
        span = self.require_whole(window)
        if is_captured() and span <= self.settings.max_positions:  # the number of steps cannot be a symbol
            span = self.settings.max_positions
        p = self._solve(span).transpose(0, 1)  # (layers, span, D)
        rows = self.rows_of(p, window)[..., window.start :, :]  # (layers, Q, D), or (layers, B, Q, D)
        return [Terms(inputs=((layer[None] if window.contiguous else layer).to(self.initial.dtype),)) for layer in rows]

    def _solve(self, n: int) -> Tensor:
        """(n, layers, D)."""
        stride, initial = self.options.stride, precise(self.initial)
        if initial.is_meta:  # there are no values yet while a model is built to be loaded
            return initial.new_empty(n, *initial.shape)
        step = stride * TOKEN
        grid = [i * step for i in range(-(-max(n - 1, 1) // stride) + 1)]  # whole strides, so that it does not depend on n
        p, slope = _integrate(self.dynamics, initial, grid)  # (grid, layers, D)
        p0, p1, slope0, slope1 = (x[:, None] for x in (p[:-1], p[1:], step * slope[:-1], step * slope[1:]))
        u = torch.arange(1, stride + 1, device=p.device, dtype=p.dtype)[:, None, None] / stride
        weights = (1 + 2 * u) * (1 - u) ** 2, u**2 * (3 - 2 * u), u * (1 - u) ** 2, u**2 * (u - 1)  # Hermite's cubic
        between = weights[0] * p0 + weights[1] * p1 + weights[2] * slope0 + weights[3] * slope1  # (grid - 1, stride, layers, D)
        return torch.cat([initial[None], between.flatten(0, 1)])[:n]


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
