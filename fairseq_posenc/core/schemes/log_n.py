"""Queries that grow with the logarithm of the number of keys (Nakanishi 2025; Llama 4)."""

import math
from dataclasses import replace
from typing import Any

from torch import nn

from ...base.errors import MAX_POSITIONS
from ..terms import Scale, Terms, Window, precise
from .base import Scheme, Settings, option, register


@register
class LogN(Scheme):
    """``q'_i = s_h ln(n_i) q_i``, n_i the number of keys that the query sees; ``--position-log-n`` adds it to others.

    n_i counts the tokens of the query's document that are no padding, within the layer's window and, in a decoder, up to i: a
    softmax over more keys is flatter, and larger scores make up for it. The products with queries grow, and biases do not. Alone,
    it does not tell equal words apart, which the order task of FIDELITY.md needs.

    - ``ssmax``: ``scale`` s is (layers, heads), learned. It starts at 1 / ln(max_positions), where a row of the greatest length
      has the scores of plain attention; 1 / (ln N - 1) in the paper, which is causal, at N = 1,024.
    - ``floor``: ``1 + β ln(1 + ⌊n_i / n_0⌋)`` in place of ``s_h ln(n_i)``, with β of ``--log-n-beta`` and n_0 of
      ``--log-n-length``, by default ``max_positions``. It has no parameters (Llama 4, where n_0 is 8,192).
    """

    name = "log_n"
    equation = "e = s_h ln(n) q·k / √d"
    source = "Nakanishi 2025, eq. 2"
    family = "scales of scores"
    advice = "beside another scheme: scores grow with the number of keys, for sequences of other lengths"
    interpretable = False
    honours = ("position_log_n", *Scheme.honours)

    class Options:
        beta: float = option("beta of position_log_n=floor", 0.1, minimum=0.0, maximum=1e3)
        length: int | None = option("n0 of position_log_n=floor", None, minimum=1, maximum=MAX_POSITIONS)

    scale: nn.Parameter | None

    def __init__(self, settings: Settings, options: Any) -> None:
        super().__init__(settings, replace(options, length=options.length or settings.max_positions))
        self.learned = self.general("position_log_n") == "ssmax"
        self.scale = self.parameter() if self.learned else None
        if self.scale is not None:
            nn.init.constant_(self.scale, 1 / math.log(max(2, settings.max_positions)))

    @property
    def own_options(self) -> dict[str, Any]:
        return {} if self.learned else super().own_options

    @property
    def general_options(self) -> dict[str, Any]:
        return {name: value for name, value in super().general_options.items() if self.learned or name == "position_log_n"}

    def layer_terms(self, window: Window) -> list[Terms]:
        n = window.seen(self.settings.window)[:, None, :, None].to(window.dtype)  # (B or 1, 1, Q, 1)
        if self.scale is None:
            steps = (n / self.options.length).floor()
            return [Terms(transforms=(Scale(1 + self.options.beta * steps.log1p()),))]
        return [Terms(transforms=(Scale(s[:, None, None] * n.log()),)) for s in precise(self.scale).unbind()]
