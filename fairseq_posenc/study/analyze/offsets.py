"""A layer's positional terms as functions of the offset, and the kind of a head by its attention weights."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...core.attention.relative import dense, times_keys, times_queries
from ...core.attention.transform import transform
from ...core.transformer import Encoder
from .embeddings import average_word, repeated_symbol
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
            those of [CLS] if it has terms of its own; NaN beyond a layer's window, and for a layer without the term.
        r_squared: (L, 1 or H), :func:`.toeplitz.r_squared` of the term.
        cls: (L, 1 or H, 2), the terms with [CLS] as the query and as the key, if it has terms of its own.
    """

    values: Tensor
    r_squared: Tensor
    cls: Tensor | None = None


@torch.no_grad()
def term_matrices(layers: Sequence[Layer], with_content: bool = False) -> dict[str, Tensor]:
    """Return each kind of term that a layer has, by its name in :data:`TERMS`: (L, 1 or H, n, n), the mean over the batch.

    They are NaN outside of a layer's window, and for a layer without such a term.
    """
    of_layers = [_terms_of(layer, with_content) for layer in layers]
    matrices = {}
    for term in TERMS:
        if present := [of_layer[term] for of_layer in of_layers if term in of_layer]:
            absent = torch.full_like(max(present, key=len), torch.nan)  # of one function for all heads, or of each head's
            matrices[term] = torch.stack([of_layer.get(term, absent).expand_as(absent) for of_layer in of_layers])
    return matrices


def _terms_of(layer: Layer, with_content: bool = False) -> dict[str, Tensor]:
    """Return (1 or H, n, n), the mean over the batch, by the kind of term; NaN outside of the window."""
    terms, (q, k) = layer.terms, transform(layer.queries, layer.keys, layer.terms)
    scale = 1.0 if terms.combine == "multiply" else layer.scale
    parts: dict[str, list[Tensor]] = {
        "bias": [] if layer.bias is None else [layer.bias],
        "gain": [math.prod(map(dense, terms.gains[1:]), start=dense(terms.gains[0]))] if terms.gains else [],
        "query": [times_queries(q, table) for table in terms.query_tables],
        "key": [times_keys(k, table) for table in terms.key_tables],
        "value": [dense(replace(table, table=table.table.norm(dim=-1))) for table in terms.value_tables],
    }
    sums = {term: sum(matrices[1:], start=matrices[0]) for term, matrices in parts.items() if matrices}
    means = {term: ((matrix * scale).abs() if term in SIZES else matrix).mean(0) for term, matrix in sums.items()}
    means |= {CONTENT: _content(q, k, layer.scale)} if with_content and terms.content else {}
    outside = layer.outside
    return means if outside is None else {term: matrix.masked_fill(outside[0], torch.nan) for term, matrix in means.items()}


def _content(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """Return s q·k less its mean over all pairs, (H, n, n); 0 if it varies by no more than float32's rounding."""
    scores = q @ k.mT
    scores = (scores - scores.mean((-2, -1), keepdim=True)).mean(0) * scale
    rounding = 1e-5 * scale * q.norm(dim=-1).max() * k.norm(dim=-1).max()
    return scores if scores.abs().max() > rounding else torch.zeros_like(scores)


def has_own_cls(layers: Sequence[Layer]) -> bool:
    """Return whether [CLS], at position 0, has terms of its own in a layer."""
    tables = [table for layer in layers for table in (*layer.terms.vectors, *layer.terms.value_tables, *layer.terms.gains)]
    own_bias = any(layer.terms.cls_bias is not None for layer in layers)
    return own_bias or any(table.index.cls_rows is not None for table in tables)


def offset_functions(matrices: Mapping[str, Tensor], own_cls: bool) -> dict[str, OffsetFunction]:
    """Return each kind of term as a function of the offset.

    Args:
        matrices: (L, 1 or H, n, n) by the kind of term.
        own_cls: whether [CLS] has terms of its own, which are not functions of the offset.
    """
    functions = {}
    for term, matrix in matrices.items():
        words = matrix[..., 1:, 1:] if own_cls else matrix
        cls = torch.stack([matrix[..., 0, 1], matrix[..., 1, 0]], dim=-1) if own_cls else None
        values, r2 = (torch.stack([of(layer) for layer in words]) for of in (diagonal_means, r_squared))  # one layer's memory
        functions[term] = OffsetFunction(values, r2, cls)
    return functions


def functions_of_average_word(encoder: Encoder, n: int) -> dict[str, OffsetFunction]:
    """Return the functions of the offset on n average words, also that of the products q·k where these vary from pair to pair."""
    layers = trace(encoder, repeated_symbol(encoder, n), average_word(encoder).expand(1, n, -1)).layers
    matrices = term_matrices(layers, with_content=True)
    if CONTENT in matrices and not matrices[CONTENT].nan_to_num().any():
        del matrices[CONTENT]
    return offset_functions(matrices, has_own_cls(layers))


MIN_TO_CLS, MIN_TO_NEIGHBOUR, NEARBY, MIN_NEARBY, MIN_UNEVEN = 0.5, 0.4, 5, 0.5, 0.2
KINDS = ("previous", "next", "local", "global", "flat", "[CLS]")
RULE = (
    f"By its mean attention on the text, a head is of the kind [CLS] if queries give position 0 at least {MIN_TO_CLS:.0%} of "
    f"their attention; else flat, if less than {MIN_UNEVEN:.0%} of the attention would have to move to make it even; previous or "
    f"next, if that neighbour gets at least {MIN_TO_NEIGHBOUR:.0%}; local, if the tokens at most {NEARBY} away get at least "
    f"{MIN_NEARBY:.0%}; and global otherwise."
)


def kind_of(attention: Tensor) -> str:
    """Return the kind of a head by its mean attention weights (n, n), according to :data:`RULE`."""
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
