"""The band kernels compiled, on a GPU: they agree with the reference in float64, in every precision, and use memory in O(n)."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from attending import attend
from torch import Tensor

from fairseq_posenc.core.attention import BACKENDS, Mask
from fairseq_posenc.core.attention.band import interpreted
from fairseq_posenc.core.terms import Relative, RelativeIndex, Terms, Window

BAND, EAGER = BACKENDS["band"], BACKENDS["eager"]
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.skipif(BAND.missing is not None, reason=str(BAND.missing)),
    pytest.mark.skipif(interpreted(), reason="TRITON_INTERPRET=1 is set, and nothing would be compiled"),
]
KINDS = {  # kinds of tables
    "plain": [],
    "bias": ["biases"],
    "gain": ["gains"],
    "shaw": ["query_tables", "value_tables"],
    "m4": ["query_tables", "key_tables"],
    "everything": ["query_tables", "key_tables", "value_tables", "gains", "biases"],
}


def run(
    name: str, kinds: list[str], combine: Literal["add", "multiply"], cls: bool, tensors: list[Tensor], dtype: torch.dtype
) -> list[Tensor]:
    """z and the gradients in queries, keys, values and tables."""
    n = tensors[0].shape[-2]
    plain, with_cls = (
        RelativeIndex(Window(n)),
        RelativeIndex(Window(n), torch.arange(2 * n - 1, device="cuda"), (2 * n - 1, 2 * n)),
    )
    inputs = [tensor.to(dtype).requires_grad_() for tensor in tensors]
    tables = {}
    for kind, table in zip(kinds, inputs[3:], strict=True):
        rows = cls and kind in ("gains", "biases")
        tables[kind] = (Relative(table[:, : 2 * n - 1 + 2 * rows], with_cls if rows else plain),)
    padding = torch.arange(n, device="cuda") >= torch.tensor([[n], [n - n // 3]], device="cuda")
    z, _ = attend(BACKENDS[name], Terms(combine=combine, **tables), *inputs[:3], Mask(padding))
    return [z, *torch.autograd.grad(z, inputs, torch.ones_like(z).tril())]


SIZES = [(64, 300, torch.bfloat16), (128, 129, torch.bfloat16), (32, 129, torch.float16), (80, 7, torch.float32)]
CASES = [  # few, as each compiles four programs
    *((kind, False, *SIZES[0]) for kind in (*KINDS, "m4m")),
    *((kind, kind == "everything", *size) for kind in ("everything", "m4m") for size in SIZES),
]


@pytest.mark.parametrize(("kind", "cls", "head_dim", "n", "dtype"), CASES)
def test_agrees_with_the_reference(kind: str, cls: bool, head_dim: int, n: int, dtype: torch.dtype) -> None:
    generator = torch.Generator("cuda").manual_seed(0)
    combine, kinds = "multiply" if kind == "m4m" else "add", KINDS["m4" if kind == "m4m" else kind]
    shapes = [(2, 2, n, head_dim)] * 3 + [(2, 2 * n + 1, *([head_dim] if name.endswith("_tables") else [])) for name in kinds]
    tensors = [torch.randn(shape, generator=generator, device="cuda", dtype=torch.float64) / 4 for shape in shapes]
    tensors = [tensor.to(dtype).double() for tensor in tensors]
    exact = run("eager", kinds, combine, cls, tensors, torch.float64)
    errors = {
        name: [
            ((value.double() - right).norm() / right.norm().clamp(min=1e-30)).item()
            for value, right in zip(run(name, kinds, combine, cls, tensors, dtype), exact, strict=True)
        ]
        for name in ("band", "eager")
    }
    assert max(errors["band"]) <= 3 * max(errors["eager"]) + 4 * torch.finfo(dtype).eps


def test_the_same_call_gives_the_same_bits() -> None:
    tensors = [torch.randn(2, 2, 200, 64, device="cuda") for _ in range(3)] + [torch.randn(2, 401, 64, device="cuda")] * 2
    runs = [run("band", KINDS["m4"], False, False, tensors, torch.bfloat16) for _ in range(2)]
    assert all(first.equal(second) for first, second in zip(*runs, strict=True))


def test_a_long_sequence_trains_in_linear_memory() -> None:
    n = 32768
    q, k, v = (torch.randn(1, 1, n, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    table = torch.randn(1, 2 * n - 1, 64, device="cuda", requires_grad=True)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    z, _ = attend(BAND, Terms(query_tables=(Relative(table, RelativeIndex(Window(n))),)), q, k, v)
    z.float().square().sum().backward()
    assert table.grad.isfinite().all()
    assert torch.cuda.max_memory_allocated() - before < n * n / 4
