"""Terms reduced to one table per kind and by offset, as kernels that compute a tile of scores at a time read them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..terms import LowRank, Relative, Terms, first_tokens, precise
from .bias import sum_of_low_rank
from .call import Call
from .relative import by_offset, sum_by_offset


def objection_to_cls(terms: Terms) -> str | None:
    """Why the rows of [CLS] cannot be reduced so, or None if there are none but those of ``cls_bias``."""
    biases = tuple(bias for bias in terms.biases if isinstance(bias, Relative))
    if any(table.index.cls_rows is not None for table in terms.vectors + terms.value_tables + terms.gains + biases):
        return "it has no place for tables with rows for [CLS]"
    return None


@dataclass(frozen=True, eq=False)
class Tables:
    """Everything about positions that scores and sums are made of. None is absent."""

    vectors: tuple[Tensor | None, ...]  # A, B and V by offset, (1 or H, R, d)
    gain: Tensor | None  # by offset, (1 or H, R)
    bias: Tensor | None  # by offset, (1 or H, R); with ``cls`` two rows more, of the query 0 and of the key 0 for other queries
    cls: bool
    dense: Tensor | None  # (1 or B, 1 or H, Q, K)
    low_rank: LowRank | None

    @classmethod
    def of(cls, terms: Terms, call: Call) -> Tables:
        """The tables of these terms. Where [CLS] has biases of its own, every other bias is zero in its row and column."""
        vectors = tuple(sum_by_offset(tables) for tables in (terms.query_tables, terms.key_tables, terms.value_tables))
        gains = [by_offset(gain) for gain in terms.gains]
        gain = math.prod(gains[1:], start=gains[0]) if gains else None
        bias = sum_by_offset([bias for bias in terms.biases if isinstance(bias, Relative)])
        matrices = [bias for bias in terms.biases if isinstance(bias, Tensor)]
        dense = sum(matrices[1:], start=matrices[0]) if matrices else None
        low_rank, theta = sum_of_low_rank(terms), terms.cls_bias
        if theta is None:
            return cls(vectors, gain, bias, False, dense, low_rank)
        theta = precise(theta)
        bias = theta.new_zeros(1, call.queries + call.keys - 1) if bias is None else bias
        heads = max(len(bias), len(theta))
        bias = torch.cat([bias.expand(heads, -1), theta.expand(heads, -1)], dim=1)
        keys = first_tokens(terms.cls_first, call.keys, theta.device)[:, None, :, None]  # (B or 1, 1, K, 1)
        queries = keys[:, :, call.start :]
        if dense is not None:
            dense = dense.masked_fill(queries | keys.transpose(-1, -2), 0)
        if low_rank is not None:
            low_rank = LowRank(low_rank.left.masked_fill(queries, 0), low_rank.right.masked_fill(keys, 0))
        return cls(vectors, gain, bias, True, dense, low_rank)
