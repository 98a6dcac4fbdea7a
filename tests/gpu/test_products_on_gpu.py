"""Products of half precision whose result is float32."""

from __future__ import annotations

import pytest
import torch

from fairseq_posenc.core.attention.products import multiplies_half, product

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(64, 130), (3, 64, 130), (2, 3, 64, 130)])
def test_they_are_not_rounded(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = torch.randn(2, 3, 70, 64, device="cuda", dtype=dtype, requires_grad=True)
    y = torch.randn(shape, device="cuda", dtype=dtype, requires_grad=True)
    assert multiplies_half(x)
    found, expected = product(x, y), x.double() @ y.double()
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-4)
    for ours, theirs in zip(*(torch.autograd.grad(e.sin().sum(), (x, y)) for e in (found, expected)), strict=True):
        assert (ours.double() - theirs.double()).norm() < 4 * torch.finfo(dtype).eps * theirs.double().norm()
