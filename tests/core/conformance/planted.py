"""A scheme, and others that lack a property each."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fairseq_posenc import Relative, RelativeIndex, Scheme, Terms, Window, precise


class Right(Scheme):
    """``b_ij = λ_h (j - i)``."""

    name = "planted"
    equation = "e = q·k / √d + λ_h (j-i)"
    source = "this test"

    def __init__(self, settings, options) -> None:
        super().__init__(settings, options)
        self.slope = self.parameter(1)
        nn.init.ones_(self.slope)

    def bias(self, slope: Tensor, window: Window) -> Tensor:
        return slope * window.offsets

    def layer_terms(self, window: Window) -> list[Terms]:
        return [Terms(biases=(Relative(self.bias(s, window), RelativeIndex(window)),)) for s in precise(self.slope)]

    def reading(self, layer: int, i: int, j: int) -> Tensor:
        return self.slope[layer, :, 0] * (j - i)


class Mirrored(Right):
    def bias(self, slope: Tensor, window: Window) -> Tensor:
        return slope * -window.offsets


class SeesPadding(Right):
    def bias(self, slope: Tensor, window: Window) -> Tensor:
        return slope * window.offsets / window.keys


class Idle(Right):
    def __init__(self, settings, options) -> None:
        super().__init__(settings, options)
        self.idle = nn.Parameter(torch.ones(3))


class HalfIdle(Right):
    def layer_terms(self, window: Window) -> list[Terms]:
        first, _ = super().layer_terms(window)
        return [first, first]


class OneHead(Right):
    def layer_terms(self, window: Window) -> list[Terms]:
        first = [slope[:1].expand(slope.shape) for slope in precise(self.slope)]
        return [Terms(biases=(Relative(self.bias(s, window), RelativeIndex(window)),)) for s in first]

    def reading(self, layer: int, i: int, j: int) -> Tensor:
        return self.slope[layer, :1, 0].expand(self.slope.shape[1]) * (j - i)


class WrongInHalf(Right):
    def bias(self, slope: Tensor, window: Window) -> Tensor:
        return slope * window.offsets * (-10 if self.slope.dtype == torch.bfloat16 else 1)


class OneLength(Right):
    def __init__(self, settings, options) -> None:
        super().__init__(settings, options)
        self.table = self.parameter(2 * settings.max_positions)
        nn.init.ones_(self.table)

    def layer_terms(self, window: Window) -> list[Terms]:
        rows = window.offsets.long() + self.table.shape[-1] // 2
        return [Terms(biases=(Relative(table[:, rows], RelativeIndex(window)),)) for table in precise(self.table)]

    def reading(self, layer: int, i: int, j: int) -> Tensor:
        return self.table[layer, :, j - i + self.table.shape[-1] // 2]
