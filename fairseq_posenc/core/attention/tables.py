"""Terms reduced to one table per kind and by offset, as backends that take a product per tile or per head read them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..terms import LowRank, Relative, Terms, first_tokens, precise
from .bias import sum_of_low_rank
from .call import Call
from .relative import by_offset


def relative_tables(terms: Terms) -> dict[str, tuple[Relative, ...]]:
    """Every kind of table by a short name, in the order of :attr:`Tables.relative`."""
    biases = tuple(bias for bias in terms.biases if isinstance(bias, Relative))
    return {"a": terms.query_tables, "b": terms.key_tables, "v": terms.value_tables, "g": terms.gains, "bias": biases}


def objection_to_cls(terms: Terms) -> str | None:
    """Why the rows of [CLS] cannot be reduced so, or None if they can."""
    if any(table.index.cls_rows is not None for table in terms.vectors + terms.value_tables):
        return "it has no place for vectors of [CLS]"
    if any(len({table.index.cls_rows is None for table in tables}) > 1 for tables in relative_tables(terms).values()):
        return "it has no place for tables of one kind of which only some have rows for [CLS]"
    return None


@dataclass(frozen=True, eq=False)
class Tables:
    """Everything about positions that scores and sums are made of. None is absent.

    ``relative`` are by offset, vectors (1 or H, R, d), gains and biases (1 or H, R). The latter have two rows more where ``cls``
    has their names: of the query 0 ([CLS]), and of the key 0 for the other queries. ``dense`` is (1 or B, 1 or H, Q, K).
    """

    relative: tuple[Tensor | None, ...]
    cls: frozenset[str]
    dense: Tensor | None
    low_rank: LowRank | None

    @classmethod
    def of(cls, terms: Terms, call: Call) -> Tables:
        """The tables of these terms. Where [CLS] has biases of its own, every other bias is zero in its row and column."""
        kinds = {name: tables for name, tables in relative_tables(terms).items() if tables}
        rows = {name: [by_offset(table) for table in tables] for name, tables in kinds.items()}
        rows |= {name: [precise(part) for part in rows[name]] for name in ("g", "bias") if name in rows}
        merged = {name: sum(parts[1:], start=parts[0]) for name, parts in rows.items() if name != "g"}
        if "g" in rows:
            merged["g"] = math.prod(rows["g"][1:], start=rows["g"][0])
        with_cls = {name for name, tables in kinds.items() if tables[0].index.cls_rows is not None}
        matrices = [bias for bias in terms.biases if isinstance(bias, Tensor)]
        dense = sum(matrices[1:], start=matrices[0]) if matrices else None
        low_rank = sum_of_low_rank(terms)
        if terms.cls_bias is not None:
            bias = merged.get("bias", terms.cls_bias.new_zeros(1, call.queries + call.keys - 1))
            if "bias" in with_cls:
                bias = bias[:, :-2]
            heads = max(len(bias), len(terms.cls_bias))
            merged["bias"] = torch.cat([bias.expand(heads, -1), precise(terms.cls_bias).expand(heads, -1)], dim=1)
            with_cls.add("bias")
            keys = first_tokens(terms.cls_first, call.keys, terms.cls_bias.device)[:, None, :, None]  # (B or 1, 1, K, 1)
            queries = keys[:, :, call.start :]
            if dense is not None:
                dense = dense.masked_fill(queries | keys.transpose(-1, -2), 0)
            if low_rank is not None:
                low_rank = LowRank(low_rank.left.masked_fill(queries, 0), low_rank.right.masked_fill(keys, 0))
        return cls(tuple(merged.get(name) for name in relative_tables(terms)), frozenset(with_cls), dense, low_rank)

    def padded(self, width: int, dtype: torch.dtype) -> tuple[Tensor | None, ...]:
        """What the kernels take, in their order: vectors in the type of queries and filled up with zeros to their width."""
        vectors = [None if t is None else F.pad(t, (0, width - t.shape[-1])).to(dtype).contiguous() for t in self.relative[:3]]
        others = (None if t is None else t.contiguous() for t in (*self.relative[3:], self.dense))
        return (*vectors, *others)
