"""The base of schemes whose absolute positions have projections of their own (Ke et al. 2021)."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..terms import Window
from .base import Scheme, Settings


class ProjectedPositions(Scheme):
    """A vector p per position and two projections of it, p U^Q and p U^K, by the scheme's option ``form``.

    - ``code``: p goes through a LayerNorm wherever it is used (section 3.3), and U^Q and U^K have biases, as in their code.
      ``weight`` is (n, D), ``query_projection`` and ``key_projection`` are (1, 1, D, D), for all layers.
    - ``equation``: the bare equation. Its scores are 2,000 times smaller at first, and it learns slowly.
    - ``head``: each layer has p, (layers, 1, n, d), and projections, (layers, 1, d, d), for all heads.

    p and the projections decay, as in their code, where everything does.
    """

    inductive = translation_invariant = False
    position_vectors = ("weight",)
    decays: ClassVar[tuple[str, ...]] = ("weight", "query_projection", "key_projection")
    honours: ClassVar[tuple[str, ...]] = ("position_share_layers",)

    def __init__(self, settings: Settings, options: Any) -> None:
        super().__init__(settings, options)
        by_head = options.form == "head"
        layers, self.width = (self.layer_sets, settings.head_dim) if by_head else (1, settings.dim)
        shape = (layers, 1, settings.max_positions, self.width) if by_head else (settings.max_positions, self.width)
        self.weight = nn.Parameter(torch.empty(shape))
        self.query_projection = nn.Parameter(torch.empty(layers, 1, self.width, self.width))
        self.key_projection = nn.Parameter(torch.empty(layers, 1, self.width, self.width))
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02)
        if options.form == "code":
            self.layer_norm = nn.LayerNorm(settings.dim)
            self.query_bias = nn.Parameter(torch.zeros(settings.dim))
            self.key_bias = nn.Parameter(torch.zeros(settings.dim))

    @property
    def general_options(self) -> dict[str, Any]:
        options = super().general_options
        if self.options.form != "head":
            del options["position_share_layers"]
        return options

    def positions(self, window: Window) -> list[tuple[Tensor, Tensor]]:
        """Both projections of the window's positions, by layer or once: (1 or B, 1 or H, Q, d) and (1 or B, 1 or H, K, d)."""
        n = self.require_rows(window)
        n = n if window.contiguous else self.settings.max_positions  # of an exported model's row, whose n is a symbol, all
        projected = self.project(self.weight[..., :n, :])
        queries, keys = (self.rows_of(x, window).transpose(1, 2) for x in projected)  # (1 or L, 1 or B, 1 or H, K, d)
        return list(zip(queries[..., window.start :, :].unbind(), keys.unbind(), strict=True))

    def project(self, p: Tensor) -> tuple[Tensor, Tensor]:
        """(…, N, D) or (…, N, d) -> p U^Q and p U^K, (1 or L, 1 or H, N, d)."""
        if self.options.form == "code":
            p = self.layer_norm(p)
        queries, keys = p @ self.query_projection, p @ self.key_projection  # (1 or L, 1, N, D or d)
        if self.options.form == "code":
            queries, keys = queries + self.query_bias, keys + self.key_bias
        if self.options.form == "head":
            return queries, keys
        return self.by_head(queries[:, 0]), self.by_head(keys[:, 0])
