"""A layer's positional terms as functions of the offset, and the kind of a head by its attention weights."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..attention.relative import dense, times_keys, times_queries
from ..attention.transform import transform
from ..transformer import Encoder
from .embeddings import average_word, made_up
from .toeplitz import diagonal_means, r_squared
from .trace import Layer, trace

CONTENT = "content"
TERMS = {
    CONTENT: "s q·k of average words, less the mean over all pairs",
    "bias": "b, added to the scores",
    "gain": "g, by which the scores are multiplied",
    "query": "|q·a|, the mean size of what queries make of an offset's vector",
    "key": "|k·b|, the mean size of what keys make of an offset's vector",
    "value": "‖v‖, the length of the vector that an offset adds to the values",
}
SIZES = ("query", "key")
"""Terms whose sign depends on the words, so that their size is shown."""


@dataclass(frozen=True, eq=False)
class OffsetFunction:
    """One kind of term as a function of the offset r = j - i.

    Attributes:
        values: (L, 1 or H, 2n-1), at the offsets from ``-(n-1)`` to ``n-1``: the mean over all pairs of that offset, without
            those of [CLS] if it has terms of its own.
        r_squared: (L, 1 or H), :func:`.toeplitz.r_squared` of the term.
        cls: (L, 1 or H, 2), the terms with [CLS] as the query and as the key, if it has terms of its own.
    """

    values: Tensor
    r_squared: Tensor
    cls: Tensor | None = None


@torch.no_grad()
def term_matrices(layer: Layer) -> dict[str, Tensor]:
    """Returns each kind of term that a layer has, by its name in :data:`TERMS`: (1 or H, n, n), the mean over the batch."""
    terms, q, k = layer.terms, layer.queries, layer.keys
    scale = 1.0 if terms.combine == "multiply" else layer.scale
    found: dict[str, list[Tensor]] = {
        "bias": [] if layer.bias is None else [layer.bias],
        "gain": [math.prod(map(dense, terms.gains[1:]), start=dense(terms.gains[0]))[None]] if terms.gains else [],
        "query": [times_queries(q, table) for table in terms.query_tables],
        "key": [times_keys(k, table) for table in terms.key_tables],
        "value": [dense(replace(table, table=table.table.norm(dim=-1)))[None] for table in terms.value_tables],
    }
    matrices = {term: sum(parts[1:], start=parts[0]) for term, parts in found.items() if parts}
    return {term: ((matrix * scale).abs() if term in SIZES else matrix).mean(0) for term, matrix in matrices.items()}


def has_own_cls(layer: Layer) -> bool:
    """Returns whether [CLS], at position 0, has terms of its own."""
    terms = layer.terms
    tables = (*terms.vectors, *terms.value_tables, *terms.gains)
    return terms.cls_bias is not None or any(table.index.cls_rows is not None for table in tables)


def layers_of_average_word(encoder: Encoder, n: int) -> list[Layer]:
    """Returns the layers on a sequence of n average words."""
    return trace(encoder, made_up(encoder, n), average_word(encoder).expand(1, n, -1)).layers


def offset_functions(matrices: list[dict[str, Tensor]], own_cls: bool) -> dict[str, OffsetFunction]:
    """Returns the functions of all layers.

    Args:
        matrices: :func:`term_matrices` of each layer.
        own_cls: whether [CLS] has terms of its own, which are not functions of the offset.
    """
    found = {}
    for term in matrices[0]:
        stacked = torch.stack([layer[term] for layer in matrices])  # (L, 1 or H, n, n)
        words = stacked[..., 1:, 1:] if own_cls else stacked
        cls = torch.stack([stacked[..., 0, 1], stacked[..., 1, 0]], dim=-1) if own_cls else None
        found[term] = OffsetFunction(diagonal_means(words), r_squared(words), cls)
    return found


def functions_of_average_word(encoder: Encoder, n: int) -> dict[str, OffsetFunction]:
    """Returns the functions of the offset on n average words: those of the terms and, where position vectors, rotations or shifts
    make the products q·k vary from pair to pair, that of these products."""
    layers = layers_of_average_word(encoder, n)
    matrices, content = [term_matrices(layer) for layer in layers], [_content(layer) for layer in layers]
    if any(matrix.any() for matrix in content):
        matrices = [{CONTENT: matrix, **terms} for terms, matrix in zip(matrices, content, strict=True)]
    return offset_functions(matrices, has_own_cls(layers[0]))


def _content(layer: Layer) -> Tensor:
    """(H, n, n): s q·k less its mean over all pairs; 0 where it varies by no more than float32's rounding, or is not there."""
    q, k = transform(layer.queries, layer.keys, layer.terms)
    scores = q @ k.mT
    scores = (scores - scores.mean((-2, -1), keepdim=True)).mean(0) * layer.scale
    rounding = 1e-5 * layer.scale * q.norm(dim=-1).max() * k.norm(dim=-1).max()
    return scores if layer.terms.content and scores.abs().max() > rounding else torch.zeros_like(scores)


MIN_TO_CLS, MIN_TO_NEIGHBOUR, NEARBY, MIN_NEARBY, MIN_UNEVEN = 0.5, 0.4, 5, 0.5, 0.2
KINDS = ("previous", "next", "local", "global", "flat", "[CLS]")
RULE = (
    f"By its mean attention on the text, a head is of the kind [CLS] if queries give position 0 at least {MIN_TO_CLS:.0%} of "
    f"their attention; else flat, if less than {MIN_UNEVEN:.0%} of the attention would have to move to make it even; previous or "
    f"next, if that neighbour gets at least {MIN_TO_NEIGHBOUR:.0%}; local, if the tokens at most {NEARBY} away get at least "
    f"{MIN_NEARBY:.0%}; and global otherwise."
)


def kind_of(attention: Tensor) -> str:
    """Returns the kind of a head by its mean attention weights (n, n), as :data:`RULE` states it."""
    n = attention.shape[-1]
    i = torch.arange(n, device=attention.device)
    offsets = i - i[:, None]
    if attention[1:, 0].mean() >= MIN_TO_CLS:
        return "[CLS]"
    if (attention - 1 / n).abs().sum(-1).mean() / 2 < MIN_UNEVEN:
        return "flat"
    for kind, r in (("previous", -1), ("next", 1)):
        if attention.diagonal(r).mean() >= MIN_TO_NEIGHBOUR:
            return kind
    near = attention.masked_fill(offsets.abs() > NEARBY, 0).sum(-1).mean()
    return "local" if near >= MIN_NEARBY else "global"
