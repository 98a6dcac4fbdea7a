"""PyTorch's FlexAttention: masks by blocks and biases by offset, in one kernel that torch.compile makes for them.

It takes memory in O(n) and leaves blocks of keys out that no query of a block of queries sees, so that windows and documents take
time in O(n·w). Whatever depends on lengths and positions is in tensors that the kernel reads, as numbers would be compiled in.
"""

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from ..terms import Relative, Terms, Window, first_tokens, is_captured
from .base import Attend, Backend, register_backend
from .bias import beyond_bias, low_rank_bias
from .call import Call, Mask
from .tables import Tables, objection_to_cls
from .transform import fold, of_one_width, transform

BLOCK = 128  # queries, and keys, of a block of the mask
LEAST_WIDTH = 16  # features that Triton can multiply
COMPILED = 64  # programs at most, by kinds of masks and biases, types, and whether lengths vary

Modify = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
"""(score, b, h, i, j), scalars -> the score with the bias."""


@register_backend
class Flex(Backend):
    """``softmax(s·q·k + b) v`` with b of low rank, as part of queries and keys, or read from a table by offset.

    The gradient of a table is a sum by atomic additions, whose order differs from run to run. On a CPU, PyTorch computes all
    scores, and no gradients.
    """

    name = "flex"

    def objection(self, terms: Terms, call: Call | None = None) -> str | None:
        if kinds := beyond_bias(terms):
            return f"FlexAttention has no place for {kinds}"
        if any(isinstance(bias, Tensor) for bias in terms.biases):
            return "it reads biases by offset, and has no place for one that differs from pair to pair"
        if any(isinstance(bias, Relative) and bias.index.window.bounds is None for bias in terms.biases):
            return "it reads biases at whole offsets, and has no place for positions that are real numbers"
        return objection_to_cls(terms) or (None if call is None else self._objection_to(call))

    def suits(self, terms: Terms, call: Call | None = None) -> bool:
        """Not yet: it has never run on a GPU. It is taken by name."""
        return False

    def bind(self, terms: Terms, mask: Mask, call: Call) -> Attend:
        low_rank, modify = low_rank_bias(terms, call), None
        scale = 1 / math.sqrt(terms.factor * call.head_dim)
        if low_rank is None and (terms.biases or terms.cls_bias is not None):
            tables = Tables.of(terms, call)
            low_rank, modify = tables.low_rank, _biased(terms, call, tables)
        blocks = (block_mask if is_captured() else _kept_block_mask)(mask, call, terms.window)

        def attend(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, None]:
            q, k = of_one_width(*fold(*transform(q, k, terms), low_rank, scale, terms.content), least=LEAST_WIDTH)
            (v,) = of_one_width(v, least=LEAST_WIDTH)
            q, k, v = (x.to(call.dtype) for x in (q, k, v))
            return _run(q, k, v, modify, blocks, scale)[..., : call.head_dim], None

        return attend

    def _objection_to(self, call: Call) -> str | None:
        if call.weights:
            return "FlexAttention does not give the attention weights"
        if call.dropout:
            return "FlexAttention has no dropout of attention weights"
        if call.device.type != "cpu":
            return f"its kernels do not compute in {call.dtype}" if call.dtype.itemsize > 4 else None
        if torch.is_grad_enabled():
            return "FlexAttention has no backward pass on a CPU, where it runs under torch.no_grad() only"
        return None


def block_mask(mask: Mask, call: Call, window: int | None) -> BlockMask | None:
    """Return the mask, with the terms' ``window``, as FlexAttention takes it; None if every key is visible.

    ``create_block_mask`` would compute the mask of all pairs first. Here blocks are compared by their least and greatest
    positions and documents, which ascend in a row, so that with a window a few more blocks are visited than need be.
    """
    longest = max(call.keys, call.queries)
    reach = longest if window is None else min(window, longest)
    ahead = 0 if mask.causal else reach
    if mask.padding is None and mask.documents is None and min(reach, ahead + call.start) >= call.keys - 1:
        return None
    places = torch.arange(call.keys, device=call.device)
    documents = torch.zeros_like(places)[None] if mask.documents is None else mask.documents
    own = torch.arange(call.queries, device=call.device) + call.start  # negative where a target is longer than the source
    of_queries = (torch.zeros_like(own)[None] if mask.documents is None else documents[:, call.start :]).int()
    of_keys = (documents if mask.padding is None else documents.masked_fill(mask.padding, call.keys)).int()  # of no document
    first, last = (own - reach).int(), (own + ahead).int()  # keys that a query sees
    of_query, of_key = _row_of(of_queries), _row_of(of_keys)

    def visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (of_keys[b * of_key, j] == of_queries[b * of_query, i]) & (first[i] <= j) & (j <= last[i])

    least_q, most_q = (x[..., :, None] for x in _ends(of_queries))
    least_k, most_k = (x[..., None, :] for x in _ends(of_keys))
    (least_first, most_first), (least_last, most_last) = ([x[:, None] for x in _ends(bound)] for bound in (first, last))
    least, most = _ends(places)
    some = (least_k <= most_q) & (most_k >= least_q) & (most >= least_first) & (least <= most_last)
    every = (least_k == most_q) & (most_k == least_q) & (least >= most_first) & (most <= least_last)
    every[..., call.queries // BLOCK :, :] = False  # as FlexAttention has it of a block that is not whole
    every[..., call.keys // BLOCK :] = False
    partly, wholly = _ordered(some & ~every), _ordered(every)
    return BlockMask.from_kv_blocks(*partly, *wholly, BLOCK, visible, (call.queries, call.keys))


_kept_block_mask = functools.lru_cache(maxsize=4)(block_mask)
"""For all layers of a model, whose terms may differ: a mask takes some hundred kernels."""


def _biased(terms: Terms, call: Call, tables: Tables) -> Modify:
    """What adds the bias, one row of a table for each pair, to a score."""
    table = tables.bias
    assert table is not None
    window = next((bias.index.window for bias in terms.biases if isinstance(bias, Relative)), None)
    window = window or Window(call.keys, call.queries, device=call.device)
    assert window.bounds is not None
    keys = window.positions.int()
    queries = keys[:, call.start :] + window.bounds[0]
    if is_cls := tables.cls:  # whose rows become the first
        table, queries = torch.cat([table[:, -2:], table[:, :-2]], dim=1), queries - 2
    first_keys = first_tokens(terms.cls_first, call.keys, call.device)
    first_queries = first_keys[:, call.start :]
    of_head, of_position, of_first = map(_row_of, (table, keys, first_keys))

    def modify(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        row = keys[b * of_position, j] - queries[b * of_position, i]
        if is_cls:
            row = torch.where(first_queries[b * of_first, i], 0, torch.where(first_keys[b * of_first, j], 1, row))
        return score + table[h * of_head, row]

    return modify


def _run(q: Tensor, k: Tensor, v: Tensor, modify: Modify | None, blocks: BlockMask | None, scale: float) -> Tensor:
    """FlexAttention, compiled where it has kernels; an error if it cannot be, rather than all scores."""
    if q.device.type == "cpu" or torch.compiler.is_compiling():
        return flex_attention(q, k, v, modify, blocks, scale)
    with torch._dynamo.config.patch(cache_size_limit=COMPILED):  # recompile_limit from PyTorch 2.7 on, which knows both names
        return _compiled()(q, k, v, modify, blocks, scale)


@functools.cache
def _compiled() -> Callable[..., Tensor]:
    return torch.compile(flex_attention, fullgraph=True)


def _row_of(x: Tensor) -> int:
    """The factor of an index into the first dimension, which is shared where it has one row."""
    return int(len(x) > 1)


def _ends(x: Tensor) -> tuple[Tensor, Tensor]:
    """(…, n) -> twice (…, blocks): the least and the greatest number of each block."""
    n = x.shape[-1]
    blocks = -(-n // BLOCK)
    places = torch.arange(blocks * BLOCK, device=x.device).clamp(max=n - 1)
    least, greatest = x[..., places].unflatten(-1, (blocks, BLOCK)).aminmax(dim=-1)
    return least, greatest


def _ordered(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """(B or 1, q, k) bool -> (B or 1, 1, q) how many, and (B or 1, 1, q, k) all blocks of keys, those that are true first."""
    return blocks.sum(-1)[:, None].int(), (~blocks).int().argsort(dim=-1, stable=True)[:, None].int()
