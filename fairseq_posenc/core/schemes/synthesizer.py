"""Synthesizer (Tay et al. 2021): attention scores without queries and keys."""

import math
from dataclasses import replace
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from ...base.errors import MAX_POSITIONS, FieldError
from ..terms import LowRank, Terms, Window
from .base import Scheme, Settings, option, register


class Synthesizer(Scheme):
    """What the four forms have in common: ``e_ij = b_ij``, a learned bias in place of the content term.

    Pairs of positions share little or nothing, so that learning one does not help another, and the dense forms do not depend
    on the query's position. Hence they are slow in the order task of FIDELITY.md.
    """

    source = "Tay et al. 2021, §3"
    family = "no products of words"
    inductive = translation_invariant = False


@register
class SynthesizerRandom(Synthesizer):
    """``e_ij = R_ij``, learned and independent of the words. ``weight`` is (layers, heads, n, n)."""

    name = "synthesizer_random"
    equation = "e = R_ij"
    advice = "scores of positions without words: what word order alone can do"

    def __init__(self, settings: Settings, options: Scheme.Options) -> None:
        super().__init__(settings, options)
        self.weight = self.parameter(settings.max_positions, settings.max_positions, std=0.02)

    def layer_terms(self, window: Window) -> list[Terms]:
        self.require_rows(window)
        if window.contiguous:
            part = self.weight[:, None, :, window.start : window.keys, : window.keys]
        else:
            i, j = window.query_positions[:, :, None], window.positions[:, None]
            part = self.weight[..., i, j].transpose(1, 2)
        return [Terms(content=False, biases=(scores,)) for scores in part]


@register
class SynthesizerFactorizedRandom(Synthesizer):
    """``e_ij = (R_1 R_2^T)_ij`` of rank k. ``left`` and ``right`` are (layers, heads, n, k)."""

    name = "synthesizer_factorized_random"
    equation = "e = (R₁ R₂ᵀ)_ij"
    advice = "as synthesizer_random, of low rank"

    class Options:
        rank: int = option("rank k of the factorized scores", 8, minimum=1, maximum=1 << 12)

    def __init__(self, settings: Settings, options: Options) -> None:
        super().__init__(settings, options)
        self.left = self.parameter(settings.max_positions, options.rank, std=0.1)
        self.right = self.parameter(settings.max_positions, options.rank, std=0.1)

    def layer_terms(self, window: Window) -> list[Terms]:
        self.require_rows(window)
        left, right = (self.rows_of(factor, window).transpose(1, 2) for factor in (self.left, self.right))  # (L, B, H, K, k)
        return [Terms(content=False, biases=(LowRank(x[..., window.start :, :], y),)) for x, y in zip(left, right, strict=True)]


def of_keys(scores: Tensor, columns: Tensor, window: Window) -> Tensor:
    """(B, H, Q, N) with the column (B or 1, K) of each key: (B, H, Q, K)."""
    if window.contiguous:
        return scores[..., columns[0]]
    return scores.gather(-1, columns[:, None, None].expand(*scores.shape[:3], -1))


class InputSynthesizer(Synthesizer):
    """Forms whose scores are computed from each head's slice of the layer's input: ``hidden = relu(x_h W_1 + b_1)``."""

    reads_input = True
    interpretable = False
    decays: ClassVar[tuple[str, ...]] = ("weight1",)

    def __init__(self, settings: Settings, options: Any) -> None:
        super().__init__(settings, options)
        self.weight1 = self.parameter(settings.head_dim, settings.head_dim)
        self.bias1 = self.parameter(1, settings.head_dim)
        nn.init.xavier_normal_(self.weight1)
        nn.init.zeros_(self.bias1)

    def output(self, width: int) -> tuple[nn.Parameter, nn.Parameter]:
        """W_2 (layers, heads, d, width) and b_2 (layers, heads, 1, width)."""
        return self.parameter(self.settings.head_dim, width, std=0.02), self.parameter(1, width, std=0.02)

    def hidden(self, index: int, x: Tensor) -> Tensor:
        """(B, Q, D) -> (B, H, Q, d)."""
        x = self.by_head(x.to(self.weight1.dtype))
        return F.relu(x @ self.weight1[self.row_of(index)] + self.bias1[self.row_of(index)])


@register
class SynthesizerDense(InputSynthesizer):
    """``e_ij = (relu(x_i W_1 + b_1) W_2 + b_2)_j``: each word predicts its scores of all positions.

    ``weight2`` is (layers, heads, d, n).
    """

    name = "synthesizer_dense"
    equation = "e = (W₂ relu(W₁ x_i))_j"
    advice = "scores of the query's word for each position, without keys"
    decays = (*InputSynthesizer.decays, "weight2")

    def __init__(self, settings: Settings, options: Scheme.Options) -> None:
        super().__init__(settings, options)
        self.weight2, self.bias2 = self.output(settings.max_positions)

    def input_terms(self, layer: int, window: Window, x: Tensor) -> Terms:
        n, row = self.require_rows(window), self.row_of(layer)
        n = n if window.contiguous else self.settings.max_positions  # of an exported model's row, whose n is a symbol, all
        scores = self.hidden(layer, x) @ self.weight2[row][..., :n] + self.bias2[row][..., :n]  # (B, H, Q, n)
        return Terms(content=False, biases=(of_keys(scores, window.positions, window),))


@register
class SynthesizerFactorizedDense(InputSynthesizer):
    """``e_ij = A(x_i)_{j mod a} · B(x_i)_{⌊j / a⌋}`` with a·b ≥ n: two short predictions, one tiled and one stretched.

    A and B are the dense form's second layers of width a and b. Without ``--synthesizer-factorized-dense-a``, a is about √n.
    """

    name = "synthesizer_factorized_dense"
    equation = "e = A(x_i)_{j mod a} B(x_i)_{⌊j/a⌋}"
    advice = "as synthesizer_dense, from two factors"
    decays = (*InputSynthesizer.decays, "tiled_weight", "stretched_weight")

    class Options:
        a: int | None = option("width a of the tiled factor", None, minimum=1, maximum=MAX_POSITIONS)

    def __init__(self, settings: Settings, options: Any) -> None:
        super().__init__(settings, replace(options, a=options.a or math.isqrt(settings.max_positions)))
        self.a = self.options.a
        if self.a > settings.max_positions:
            raise FieldError(f"`synthesizer_factorized_dense_a` {self.a} is beyond the {settings.max_positions} positions")
        self.tiled_weight, self.tiled_bias = self.output(self.a)
        self.stretched_weight, self.stretched_bias = self.output(math.ceil(settings.max_positions / self.a))

    def input_terms(self, layer: int, window: Window, x: Tensor) -> Terms:
        self.require_rows(window)
        row, hidden = self.row_of(layer), self.hidden(layer, x)
        tiled = hidden @ self.tiled_weight[row] + self.tiled_bias[row]  # (B, H, Q, a)
        stretched = hidden @ self.stretched_weight[row] + self.stretched_bias[row]  # (B, H, Q, b)
        j = window.positions
        return Terms(content=False, biases=(of_keys(tiled, j % self.a, window) * of_keys(stretched, j // self.a, window),))
