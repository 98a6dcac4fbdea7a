"""Relative logits: few curves over the offset, which each query mixes (Inkling, Thinking Machines Lab 2026)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...base.errors import MAX_POSITIONS
from ..terms import Relative, RelativeIndex, Terms, Window, precise
from .base import Scheme, Settings, option, register


@register
class RelativeLogits(Scheme):
    """``e_ij = s q_i·k_j + r_i·D_{j-i}`` with the few numbers ``r_i = P q_i`` of each head; D is 0 from ``max_distance`` on.

    The heads of a layer share the curves D: ``weight`` is (layers, 2·max_distance - 1, rank), with a row for each offset of
    either sign. ``projection`` P is (layers, heads, d, rank). The term is a vector per offset, ``P D_r``, as Shaw's keys are, of
    low rank. With ``--relative-logits-input hidden``, as in the source, ``r_i = P x_i`` is made of attention's input: P is
    (layers, heads, D, rank), and each row of the batch has biases of its own.

    D starts at N(0, 0.02²), as in transformers' code, and r about as large as q.
    """

    name = "relative_logits"
    equation = "e = q·k / √d + (P q)·D_{j-i}"
    source = "Thinking Machines Lab 2026 (Inkling)"
    family, advice = "vectors by offset", "as shaw's keys, of rank 16: each query mixes a few curves over the offset"
    interpretable = False
    decays = ("projection",)

    class Options:
        rank: int = option("number of curves over the offset", 16, minimum=1, maximum=1 << 12)
        max_distance: int = option("distance from which the curves are 0", 1024, minimum=1, maximum=MAX_POSITIONS)
        input: str = option("what the curves are mixed by: the query, or the layer's input", "query", choices=("query", "hidden"))

    def __init__(self, settings: Settings, options: Options) -> None:
        super().__init__(settings, options)
        self.reads_input = options.input == "hidden"
        width = settings.dim if self.reads_input else settings.head_dim
        self.projection = self.parameter(width, options.rank, std=0.02 if self.reads_input else width**-0.5)
        self.weight = nn.Parameter(torch.empty(self.layer_sets, 2 * options.max_distance - 1, options.rank))
        nn.init.normal_(self.weight, std=0.02)

    def layer_terms(self, window: Window) -> list[Terms]:
        index, curves = RelativeIndex(window), self._curves(window, precise(self.weight))
        tables = curves[:, None] @ precise(self.projection).mT / self.settings.scale  # (layers, heads, R, d)
        return [Terms(query_tables=(Relative(table, index),)) for table in tables.unbind()]

    def input_terms(self, layer: int, window: Window, x: Tensor) -> Terms:
        row = self.row_of(layer)
        r = torch.einsum("bnd,hdr->bhnr", precise(x), precise(self.projection[row]))
        products = r @ self._curves(window, precise(self.weight[row])).mT  # (B, H, Q, R)
        pairs = window.pairs[:, None].expand(*products.shape[:2], -1, -1)
        return Terms(biases=(products.gather(-1, pairs),))

    def _curves(self, window: Window, weight: Tensor) -> Tensor:
        """(…, 2·max_distance - 1, rank) -> (…, R, rank): D at the offsets of the window."""
        self.require_whole(window)
        last = self.options.max_distance
        return F.pad(weight, (0, 0, 1, 1)).index_select(-2, window.offsets.clamp(-last, last) + last)
