"""Products in half precision with results in float32, where the device has them: here one that pretends to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch
from attending import attend
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fairseq_posenc.core.attention import BACKENDS, eager, products
from fairseq_posenc.core.terms import Relative, RelativeIndex, Terms, Window

B, H, N, DIM = 2, 3, 7, 4


class WideProducts(TorchFunctionMode):
    """Does on the CPU what CUDA's ``torch.mm(x, y, out_dtype=torch.float32)`` does, and remembers the types."""

    def __init__(self) -> None:
        super().__init__()
        self.types: list[torch.dtype] = []

    def __torch_function__(
        self, function: Callable[..., Tensor], types: Any, arguments: Any = (), options: dict[str, Any] | None = None
    ) -> Tensor:
        options = options or {}
        if function in (torch.mm, torch.bmm) and "out_dtype" in options:
            assert options["out_dtype"] == torch.float32
            self.types += [tensor.dtype for tensor in arguments]
            return function(*(tensor.float() for tensor in arguments))
        return function(*arguments, **options)


def run(combine: Literal["add", "multiply"], shared: bool) -> list[Tensor]:
    """z and every gradient, of the reference in bfloat16."""
    torch.manual_seed(0)
    index, heads = RelativeIndex(Window(N), torch.arange(2 * N - 1), (2 * N - 1, 2 * N)), 1 if shared else H
    shapes = [(B, H, N, DIM)] * 3 + [(heads, 2 * N + 1, DIM)] * 2
    inputs = [torch.randn(shape).bfloat16().requires_grad_() for shape in shapes]
    a, b = ((Relative(table, index),) for table in inputs[3:])
    z, _ = attend(BACKENDS["eager"], Terms(combine=combine, query_tables=a, key_tables=b), *inputs[:3])
    assert z.dtype == torch.bfloat16
    return [z, *torch.autograd.grad(z, inputs, torch.randn_like(z))]


@pytest.mark.parametrize("shared", [True, False])
def test_scores_are_products_of_half_precision(shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run("add", shared)  # on this device by products of float32
    monkeypatch.setattr(eager, "multiplies_half", lambda x: x.dtype.itemsize == 2)
    with WideProducts() as wide:
        found = run("add", shared)
    assert wide.types == [torch.bfloat16] * 6  # q·k, q·A and k·B
    assert found[0].equal(expected[0]), "the scores are the same numbers"
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.double() - theirs.double()).norm() < 4 * torch.finfo(torch.bfloat16).eps * theirs.double().norm()


def test_factors_of_a_product_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager, "multiplies_half", lambda x: x.dtype.itemsize == 2)
    with WideProducts() as wide:
        run("multiply", True)
    assert wide.types == []


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_other_devices_do_not_have_them(device: str) -> None:
    assert not products.multiplies_half(torch.empty(1, device=device, dtype=torch.bfloat16))
