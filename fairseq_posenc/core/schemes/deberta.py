"""Disentangled attention of DeBERTa (He et al. 2021), in Huang et al.'s form and in the original ones."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from ...base.errors import FieldError
from ..terms import Relative, RelativeIndex, Terms, Window
from .base import Settings, option, register
from .offset_tables import OffsetTableScheme

ROUNDING = 1e-9  # less than that above a whole number is that number


def log_bucket(offsets: Tensor, buckets: int, max_distance: int) -> Tensor:
    """The bucket of each offset, of the offset's sign: itself up to ``buckets // 2``, logarithmic beyond.

    ``max_distance - 1`` is in bucket ``buckets - 1``, where ``buckets`` is even. In float64, so that every device agrees.
    """
    exact, distance = buckets // 2, offsets.abs()
    far = torch.log(distance.clamp(min=1).double() / exact) / math.log((max_distance - 1) / exact) * (exact - 1)
    return torch.where(distance <= exact, offsets, offsets.sign() * (exact + (far - ROUNDING).ceil().long()))


@register
class Deberta(OffsetTableScheme):
    """``e_ij = (q_i·k_j + q_i·A_r + k_j·B_r) / sqrt(3d)``, A and B two projections of one relative table.

    Projections (``--deberta-projections``):

    - ``head``: ``weight`` (layers, 1, rows, d), ``A = weight W^K``, ``B = weight W^Q`` with (layers, 1, d, d) each; eq. 13 of
      Huang et al. 2021.
    - ``model``: ``weight`` (1, 1, rows, D) for all layers, (layers, 1, D, D) projections and a bias of B, as in DeBERTa v1.
    - ``content``: ``weight`` as in ``model``, normalised and put through the layer's own projections of keys and queries, as
      in DeBERTa v2 with ``share_att_key``.

    Rows (``--deberta-indexing``): ``relative`` reads ``clip(j - i, ±k) + k`` in both terms; ``original`` reads
    ``clamp(i - j + k, 0, 2k-1)`` in both, as the authors' code; ``paper`` reads that in A and, with i and j exchanged, in B.

    With ``--deberta-buckets s``, as in DeBERTa v2 and v3, the :func:`log_bucket` of an offset replaces it in these formulas, and
    s replaces k; ``--max-relative-position`` is then the largest distance with a bucket of its own.

    The table decays, as in the authors' code, which exempts norms and biases alone.
    """

    name = "deberta"
    equation = "e = (q·k + q·(a_r W^K) + k·(a_r W^Q)) / √(3d)"
    source = "He et al. 2021; Huang et al. 2021, eq. 13"
    family, advice = "vectors by offset", "as m4, with projected vectors: good from little training, slower than biases"
    interpretable = False
    decays = ("weight", "key_projection", "query_projection")
    scale_factor = 3.0

    class Options:
        projections: str = option("how the table is projected", "head", choices=("head", "model", "content"))
        indexing: str = option("which rows are read", "relative", choices=("relative", "original", "paper"))
        buckets: int | None = option("logarithmic buckets per direction", None, minimum=2, maximum=1 << 16)
        norm_eps: float = option("of the LayerNorm of projections=content", 1e-7, minimum=1e-20, maximum=1)

    def __init__(self, settings: Settings, options: Options) -> None:
        super().__init__(settings, options)
        if options.buckets is not None and self.clip <= options.buckets // 2 + 1:
            raise FieldError(
                f"`max_relative_position` {self.clip} must exceed half of `deberta_buckets` {options.buckets} by two or more: "
                "up to that half, every offset has a bucket of its own (by default it is `max_positions` less one)"
            )
        self.span = options.buckets or self.clip
        self.offsets = 2 * self.span + 1 if options.indexing == "relative" else max(2 * self.span, 1)
        if options.projections == "head":
            self.weight = self.offset_table(settings.head_dim)
            self.key_projection = self.parameter(settings.head_dim, settings.head_dim)
            self.query_projection = self.parameter(settings.head_dim, settings.head_dim)
        else:
            self.weight = nn.Parameter(torch.empty(1, 1, self.offsets + 2 * self.has_cls_rows, settings.dim))
        if options.projections == "model":
            layers = self.layer_sets
            self.key_projection = nn.Parameter(torch.empty(layers, 1, settings.dim, settings.dim))
            self.query_projection = nn.Parameter(torch.empty(layers, 1, settings.dim, settings.dim))
            self.query_bias = nn.Parameter(torch.zeros(layers, 1, settings.dim))
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02)
        if options.projections == "content":
            self.layer_norm = nn.LayerNorm(settings.dim, options.norm_eps)

    def layer_terms(self, window: Window) -> list[Terms]:
        query_index, key_index = self._indices(window)
        if self.options.projections == "content":
            table = self.layer_norm(self.weight[0])
            return [Terms(hidden_query_tables=(Relative(table, query_index),), hidden_key_tables=(Relative(table, key_index),))]
        a, b = self.weight @ self.key_projection, self.weight @ self.query_projection
        if self.options.projections == "model":
            a, b = self.by_head(a[:, 0]), self.by_head((b + self.query_bias[..., None, :])[:, 0])
        return [
            Terms(query_tables=(Relative(for_queries, query_index),), key_tables=(Relative(for_keys, key_index),))
            for for_queries, for_keys in zip(a.unbind(), b.unbind(), strict=True)
        ]

    @property
    def takes_any_length(self) -> bool:
        return super().takes_any_length or self.options.indexing != "relative" or self.options.buckets is not None

    @property
    def general_options(self) -> dict[str, Any]:
        per_head, per_layer = self.options.projections == "head", self.options.projections != "content"
        shared = {"position_share_heads": per_head, "position_share_layers": per_layer}
        return {name: value for name, value in super().general_options.items() if shared.get(name, True)}

    def _indices(self, window: Window) -> tuple[RelativeIndex, RelativeIndex]:
        """Of A and of B."""
        (self.require_whole if self.takes_any_length else self.require_rows)(window)
        r, k = window.offsets, self.span
        if self.options.buckets is not None:
            r = self.of_offsets(self._bucket, window)
        if self.options.indexing == "relative":
            return (self.indexed(window, r.clamp(-k, k) + k),) * 2
        c2p = self.indexed(window, (k - r).clamp(0, self.offsets - 1))
        if self.options.indexing == "original":
            return c2p, c2p
        return c2p, self.indexed(window, (k + r).clamp(0, self.offsets - 1))

    def _bucket(self, offsets: Tensor) -> Tensor:
        return log_bucket(offsets, self.span, self.clip)
