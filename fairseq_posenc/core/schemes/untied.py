"""Untied positional correlations of TUPE (Ke et al. 2021)."""

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ..terms import LowRank, Terms, Window
from .base import Settings, option, register
from .projections import ProjectedPositions


@register
class Untied(ProjectedPositions):
    """``e_ij = (q_i·k_j + (p_i U^Q)·(p_j U^K)) / sqrt(2d)`` (section 3.1): words and positions are not multiplied.

    Forms of U^Q and U^K (``--untied-form``) are those of :class:`.projections.ProjectedPositions`; ``equation`` has n·D + 2·D²
    parameters, ``head`` is eq. 14 of Huang et al. 2021.

    Together with ``reset``, θ_1 and θ_2 (``--untied-theta``) are ``vectors`` c_1, c_2 of size D that are projected like p,
    ``θ = (c U^Q)·(c U^K) / sqrt(2d)`` per head, so that all correlations start at one scale, and decay as p does; or plain
    ``scalars``.
    """

    name = "untied"
    equation = "e = (q·k + (p_i U^Q)·(p_j U^K)) / √(2d)"
    source = "Ke et al. 2021, §3.1; Huang et al. 2021, eq. 14"
    family, advice = "untied positions (TUPE)", "positions that never mix with words; [CLS] as the other tokens (TUPE-A, tied)"
    decays = (*ProjectedPositions.decays, "cls")
    scale_factor = 2.0
    honours = (*ProjectedPositions.honours, "position_scale_factor")

    class Options:
        form: str = option("of the projections of positions", "code", choices=("code", "equation", "head"))
        theta: str | None = option("of [CLS], with reset: vectors in the form of the code", None, choices=("vectors", "scalars"))

    def __init__(self, settings: Settings, options: Any) -> None:
        theta = options.theta or ("vectors" if options.form == "code" else "scalars")
        super().__init__(settings, replace(options, theta=theta))
        self.cls = None
        if settings.reset and theta == "vectors":
            self.cls = nn.Parameter(torch.empty(2, self.width))
            nn.init.normal_(self.cls, std=0.02)

    def layer_terms(self, window: Window) -> list[Terms]:
        scale, theta = self.settings.scale, None
        if self.cls is not None:
            theta = torch.linalg.vecdot(*self.project(self.cls))[0] * scale  # (1 or H, 2)
        return [
            Terms(biases=(LowRank(q * scale, k),), cls_bias=theta, cls_first=None if theta is None else window.first)
            for q, k in self.positions(window)
        ]

    @property
    def own_options(self) -> dict[str, Any]:
        options = super().own_options
        return options if self.settings.reset else {"untied_form": options["untied_form"]}
