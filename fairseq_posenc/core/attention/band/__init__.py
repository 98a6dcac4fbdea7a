"""Flash attention in which A, B, V, g and b are bands around the diagonal: Triton kernels that need memory in O(n).

Each tile of scores takes what it needs of the tables, and the gradients of all of them are summed in one order: see
``tiles`` for the products, ``forward`` and ``backward`` for the passes. The kernels run on CUDA, and with TRITON_INTERPRET=1 from
the start as Python on a CPU: slow, and how they are tested without a GPU.
"""

import importlib.util
import math
import os

import torch
from torch import Tensor
from torch.nn import functional as F

from ...terms import LowRank, Relative, Terms, exact
from ..base import Attend, Backend, opaque, register_backend
from ..call import Call, Mask
from ..tables import Tables, objection_to_cls
from ..transform import fold, of_one_width, transform

MAX_WIDTH = 128  # features of a head
DTYPES = {torch.float32, torch.bfloat16, torch.float16}


def interpreted() -> bool:
    """Whether kernels run in Triton's interpreter."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def block_size(call: Call, width: int, terms: Terms) -> int:
    """The number of queries and of keys of a tile, such that a program fits into the registers and shared memory of an A100.

    The sizes follow from the compiler's report (``tests/core/attention/compile_band.py``) and were not timed. Products of float32
    hold whole rows of both factors in registers. ``width`` is the number of features of a query.
    """
    vectors = bool(terms.vectors or terms.value_tables)
    if call.dtype.itemsize > 2:
        return 16 if vectors or width > 64 else 32
    scalars = terms.gains or any(isinstance(bias, Relative) for bias in terms.biases)
    return 32 if vectors or scalars or width > 64 else 64


@register_backend
class Band(Backend):
    """Runs the whole form but for the few mixtures that :meth:`objection` names. Only a dense bias takes memory in n²."""

    name = "band"

    @property
    def missing(self) -> str | None:
        return None if importlib.util.find_spec("triton") else "it needs Triton: pip install 'triton>=3.3'"

    def objection(self, terms: Terms, call: Call | None = None) -> str | None:
        if terms.widens:
            return "its kernels have queries and keys as wide as the values"
        if not terms.contiguous:
            return "its kernels know only contiguous positions"
        if (reason := objection_to_cls(terms)) is not None:
            return reason
        rank = sum(bias.left.shape[-1] for bias in terms.biases if isinstance(bias, LowRank))
        if rank and (terms.combine == "multiply" or terms.gains or (terms.vectors and not terms.content)):
            return (
                "its kernels have a bias of low rank within q·k, which gains, products and vectors without q·k leave no place for"
            )
        if terms.combine == "multiply" and not terms.content:
            return "its kernels have no product without q·k"
        return None if call is None else self._objection_to(call, rank)

    def suits(self, terms: Terms, call: Call | None = None) -> bool:
        """Not yet: its kernels have been compiled, and run in the interpreter, but never on a GPU. It is taken by name."""
        return False

    def bind(self, terms: Terms, mask: Mask, call: Call) -> Attend:
        from .function import BandAttention, Setup

        tables = Tables.of(terms, call)
        rank = 0 if tables.low_rank is None else tables.low_rank.left.shape[-1]
        width = max(call.head_dim, rank + call.head_dim * terms.content)
        scale = 1 / math.sqrt(terms.factor * call.head_dim)
        setup = Setup(
            scale=scale,
            content=terms.content or bool(rank),
            combine=terms.combine,
            causal=mask.causal,
            window=terms.window,
            dropout=call.dropout,
            block=block_size(call, width, terms),
            interpreted=interpreted(),
            cls=tables.cls,
            padding=None if mask.padding is None else mask.padding.contiguous().view(torch.uint8),
            documents=None if mask.documents is None else mask.documents.to(torch.int32).contiguous(),
        )
        vectors = (None if x is None else F.pad(x, (0, width - x.shape[-1])).to(call.dtype) for x in tables.vectors)
        inputs = [None if x is None else x.contiguous() for x in (*vectors, tables.gain, tables.bias, tables.dense)]

        def attend(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, None]:
            with exact(q.device):
                q, k = fold(*transform(q, k, terms), tables.low_rank, scale, terms.content)
                q, k, v = (x.to(call.dtype).transpose(1, 2).contiguous() for x in of_one_width(q, k, v))
                z = opaque(BandAttention.apply)(q, k, v, setup, *inputs)
            return z.transpose(1, 2)[..., : call.head_dim], None

        return attend

    def _objection_to(self, call: Call, rank: int) -> str | None:
        if call.weights:
            return "its kernels do not give the attention weights"
        if call.device.type != ("cpu" if interpreted() else "cuda"):
            return f"its kernels run on CUDA or, with TRITON_INTERPRET=1, on the CPU, and not on {call.device.type}"
        if call.dtype not in DTYPES and not (interpreted() and call.dtype == torch.float64):
            return f"its kernels do not take {call.dtype}"
        if call.head_dim + rank > MAX_WIDTH:
            return f"its kernels take at most {MAX_WIDTH} features per head, and the terms make {call.head_dim + rank}"
        return None
