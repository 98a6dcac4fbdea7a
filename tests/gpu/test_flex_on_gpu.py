"""FlexAttention compiled, on a GPU: values and gradients agree with the reference in float64, and use memory in O(n)."""

from __future__ import annotations

import pytest
import torch
from attending import attend
from torch import Tensor

from fairseq_posenc.core.attention import BACKENDS, Mask
from fairseq_posenc.core.terms import LowRank, Relative, RelativeIndex, Terms, Window

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
B, H = 3, 2
KINDS = ["plain", "bias", "low rank", "[CLS]"]


def run(backend: str, kind: str, mask: Mask, window: int | None, tensors: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """z and the gradients in queries, keys, values and biases."""
    inputs = [tensor.to(dtype).requires_grad_() for tensor in tensors]
    q, k, v, table, left, right, cls = inputs
    places = Window(k.shape[-2], q.shape[-2], device="cuda")
    bias, low_rank = Relative(table[:, : len(places.offsets)], RelativeIndex(places)), LowRank(left, right)
    terms = {
        "plain": Terms(window=window),
        "bias": Terms(biases=(bias,), window=window),
        "low rank": Terms(biases=(low_rank,), window=window),
        "[CLS]": Terms(biases=(bias, low_rank), cls_bias=cls, window=window),
    }[kind]
    z, _ = attend(BACKENDS[backend], terms, q, k, v, mask)
    return [z, *torch.autograd.grad(z, inputs, torch.ones_like(z).tril(), allow_unused=True, materialize_grads=True)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("n", "queries", "head_dim"), [(300, 300, 64), (300, 77, 32), (9, 9, 8)])
@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_the_reference(kind: str, n: int, queries: int, head_dim: int, dtype: torch.dtype) -> None:
    """Packed, padded, causal and windowed, with a sequence that is all padding."""
    generator = torch.Generator("cuda").manual_seed(0)
    shapes = [(B, H, queries, head_dim), *[(B, H, n, head_dim)] * 2, (H, 2 * n), (1, H, queries, 3), (B, 1, n, 3), (H, 2)]
    tensors = [torch.randn(shape, generator=generator, device="cuda", dtype=torch.float64) / 2 for shape in shapes]
    tensors = [tensor.to(dtype).double() for tensor in tensors]
    places = torch.arange(n, device="cuda")
    padding = places >= torch.tensor([[n], [n - n // 3], [0]], device="cuda")
    documents = torch.where(places < n // 2, 0, n // 2)[None]
    for mask, window in ((Mask(padding), None), (Mask(padding, documents=documents), 20), (Mask(causal=True), None)):
        exact = run("eager", kind, mask, window, tensors, torch.float64)
        least = max(right.norm() for right in exact) / 10  # some gradients are zero but for rounding
        errors = {
            name: max(
                ((value.double() - right).norm() / right.norm().clamp(min=least)).item()
                for value, right in zip(run(name, kind, mask, window, tensors, dtype), exact, strict=True)
            )
            for name in ("flex", "eager")
        }
        assert errors["flex"] <= 3 * errors["eager"] + 4 * torch.finfo(dtype).eps


def test_a_long_sequence_trains_in_linear_memory() -> None:
    n = 32768
    q, k, v = (torch.randn(1, 1, n, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    table = torch.randn(1, 2 * n - 1, device="cuda", requires_grad=True)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    terms = Terms(biases=(Relative(table, RelativeIndex(Window(n, device="cuda"))),), window=64)
    z, _ = attend(BACKENDS["flex"], terms, q, k, v, Mask(documents=torch.zeros(1, n, dtype=torch.long, device="cuda")))
    z.float().square().sum().backward()
    assert table.grad.isfinite().all()
    assert torch.cuda.max_memory_allocated() - before < n * n / 4
