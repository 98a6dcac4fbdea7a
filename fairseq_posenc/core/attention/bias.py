"""The additive bias b of the canonical form: as one matrix, or as a product of few numbers per position."""

import torch
from torch import Tensor

from ..terms import LowRank, Relative, Terms, exact, first_tokens, precise
from .call import Call, Tile
from .relative import dense


def beyond_bias(terms: Terms) -> str:
    """Name what is neither a transform nor an additive bias, for which PyTorch's kernels have no place; "" if all is."""
    kinds = {
        "vectors that multiply queries or keys (A, B)": terms.vectors,
        "vectors that are added to the values (V)": terms.value_tables,
        "gains that multiply the scores (g)": terms.gains,
    }
    unsupported = [kind for kind, present in kinds.items() if present]
    if not terms.content and not (terms.biases and all(isinstance(bias, LowRank) for bias in terms.biases)):
        unsupported.append("scores without q·k")
    return " or ".join(unsupported)


def additive_bias(terms: Terms, call: Call, tile: Tile | None = None) -> Tensor | None:
    """(1 or B, 1 or H, Q, K): the whole bias, or that of a tile, or None where there is none."""
    i, j = tile = tile or call.whole
    parts = [_matrix(bias, tile) for bias in terms.biases]
    total = sum(map(precise, parts[1:]), start=parts[0]) if parts else None
    if terms.cls_bias is None:
        return total
    if total is None:
        total = terms.cls_bias.new_zeros(1, 1, i.stop - i.start, j.stop - j.start)
    theta_1, theta_2 = terms.cls_bias.to(total)[:, :, None, None].unbind(1)  # (1 or H, 1, 1)
    first = first_tokens(terms.cls_first, call.keys, total.device)[:, None]  # (B or 1, 1, K)
    total = torch.where(first[:, :, None, j], theta_2, total)
    return torch.where(first[:, :, call.start :, None][:, :, i], theta_1, total)


def rounded(bias: Tensor, blocked: Tensor | None, dtype: torch.dtype) -> Tensor:
    """A bias in ``dtype``; where that rounds to half precision, less the greatest value of the keys that each query sees.

    Softmax ignores a constant per row, and what is left is the more exact, the larger the weight of a key. ``blocked`` is that of
    :meth:`.call.Mask.blocked`.
    """
    if dtype.itemsize > 2 or bias.dtype == dtype:
        return bias.to(dtype)
    visible = bias.detach()
    if blocked is not None:  # of a fully masked row, all count
        visible = visible.masked_fill(blocked & ~blocked.all(-1, keepdim=True), -torch.inf)
    return (bias - visible.amax(-1, keepdim=True)).to(dtype)


def low_rank_bias(terms: Terms, call: Call) -> LowRank | None:
    """The whole bias as one product of low rank; None if there is no bias, or if a part of it is not of low rank.

    The reset of [CLS] adds two to the rank: its row and its column are taken out of the product, and put back by
    ``[θ_1 at i = 0, else 0 | 0 at i = 0, else 1]`` times ``[1 | θ_2 at j = 0, else 0]``.
    """
    if not all(isinstance(bias, LowRank) for bias in terms.biases) or (product := sum_of_low_rank(terms)) is None:
        return None
    if terms.cls_bias is None:
        return product
    left, right = product.left, product.right
    keys = first_tokens(terms.cls_first, call.keys, left.device)[:, None, :, None]  # (B or 1, 1, K, 1)
    queries = keys[:, :, call.start :]
    theta_1, theta_2 = terms.cls_bias.to(left)[:, :, None, None].unbind(1)  # (1 or H, 1, 1)
    left = _joined([left.masked_fill(queries, 0), theta_1 * queries, (~queries).to(left)])
    right = _joined([right.masked_fill(keys, 0), torch.ones_like(right[..., :1]), theta_2 * keys])
    return LowRank(left, right)


def _matrix(bias: Relative | LowRank | Tensor, tile: Tile) -> Tensor:
    i, j = tile
    if isinstance(bias, Relative):
        return dense(bias, tile)
    if isinstance(bias, LowRank):
        with exact(bias.left.device):
            return precise(bias.left[..., i, :]) @ precise(bias.right[..., j, :]).transpose(-1, -2)
    return bias[..., i, j]


def sum_of_low_rank(terms: Terms) -> LowRank | None:
    """The sum of the biases of low rank as one product, or None where there are none."""
    parts = [bias for bias in terms.biases if isinstance(bias, LowRank)]
    return LowRank(_joined([part.left for part in parts]), _joined([part.right for part in parts])) if parts else None


def _joined(parts: list[Tensor]) -> Tensor:
    """Concatenated along the rank, batch and heads broadcast."""
    shape = torch.broadcast_shapes(*(part.shape[:-1] for part in parts))
    return torch.cat([part.expand(*shape, -1) for part in parts], dim=-1)
