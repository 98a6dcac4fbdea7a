"""Functional interpolation for relative positions (Li et al. 2024)."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from ...base.errors import MAX_POSITIONS
from ..terms import Terms, Window, is_captured, precise
from .base import Scheme, Settings, option, register

QUERIES_AT_ONCE = 64  # bounds the (queries, keys, hidden) activations of the network


@register
class Fire(Scheme):
    """``b_ij = f_θ(ψ(|i - j|) / ψ(max(L, i, j)))``, ``ψ(x) = log(c·x + 1)``, f_θ a network 1 → hidden → heads with ReLU (eq. 2).

    The paper's form is causal (j ≤ i, divided by ψ(max(L, i))); this one is symmetric and equal to it there. c and the
    threshold L are learned; L starts at ``--fire-threshold``. One network for all layers.

    It is symmetric in j - i, so one layer cannot distinguish left from right, which the order task of FIDELITY.md needs. With
    ``--fire-sided true``, the network gets the sign of j - i too: ``f_θ(sign(j - i) ψ(|i - j|) / …)``.
    """

    name = "fire"
    equation = "e = q·k / √d + f_θ(ψ(|i-j|) / ψ(max(L,i,j)))"
    source = "Li et al. 2024, eq. 2"
    family, advice = "scalar biases by offset", "a learned function of the distance; --fire-sided true tells left from right"
    translation_invariant = False
    share_layers = True

    class Options:
        hidden: int = option("hidden width of the network", 32, minimum=1, maximum=1 << 16)
        threshold: float = option("initial L, in tokens", 512.0, minimum=1.0, maximum=MAX_POSITIONS)
        sided: bool = option("distinguish right from left", False)

    def __init__(self, settings: Settings, options: Options) -> None:
        super().__init__(settings, options)
        layers, heads = self.layer_sets, self.head_sets
        self.c = nn.Parameter(torch.full((layers,), 0.1))
        self.threshold = nn.Parameter(torch.full((layers,), 1.0))  # in units of the initial L
        self.weight1 = nn.Parameter(torch.empty(layers, options.hidden, 1))
        self.bias1 = nn.Parameter(torch.empty(layers, options.hidden))
        self.weight2 = nn.Parameter(torch.empty(layers, heads, options.hidden))
        self.bias2 = nn.Parameter(torch.zeros(layers, heads))
        nn.init.uniform_(self.weight1, -1, 1)
        nn.init.uniform_(self.bias1, -1, 1)
        nn.init.normal_(self.weight2, std=options.hidden**-0.5)

    def layer_terms(self, window: Window) -> list[Terms]:
        return [Terms(biases=(self._bias(layer, window),)) for layer in range(len(self.c))]

    def _bias(self, layer: int, window: Window) -> Tensor:
        """(B or 1, H, Q, K)."""
        positions = window.positions.to(precise(self.c).dtype)
        queries = positions[:, window.start :]
        parts = [queries] if is_captured() else queries.split(QUERIES_AT_ONCE, dim=1)  # whose number cannot be a symbol
        # Recomputed in the backward pass, so that the network's activations never exist for all pairs. Without one, the compiler,
        # which the first checkpoint imports, would only cost seconds.
        compute = partial(checkpoint, self._scores, use_reentrant=False) if torch.is_grad_enabled() else self._scores
        rows = [compute(layer, some, positions) for some in parts]
        return torch.cat(rows, dim=1).permute(0, 3, 1, 2)

    def _scores(self, layer: int, queries: Tensor, keys: Tensor) -> Tensor:
        """(B or 1, some queries), (B or 1, K) -> (B or 1, some queries, K, H)."""
        i, j = queries[:, :, None], keys[:, None]
        parameters = (self.c, self.threshold, self.weight1, self.bias1, self.weight2, self.bias2)
        c, threshold, weight1, bias1, weight2, bias2 = (precise(p)[layer] for p in parameters)
        c, longest = c.abs(), threshold.abs() * self.options.threshold
        normalised = (c * (i - j).abs()).log1p() / (c * torch.maximum(torch.maximum(i, j), longest)).log1p()
        if self.options.sided:
            normalised = normalised * (j - i).sign()
        hidden = F.relu(F.linear(normalised[..., None], weight1, bias1))
        return F.linear(hidden, weight2, bias2)
