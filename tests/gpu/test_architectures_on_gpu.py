"""Every architecture on a GPU, forward and backward, in every precision, against the CPU's float64."""

from __future__ import annotations

import copy

import pytest
import torch
from on_device import DEVICE, needs_device
from torch import Tensor, nn
from torch.nn import functional as F

from fairseq_posenc.core.families import ROBERTA, expressions

pytestmark = needs_device
SYMBOLS, SHAPE, PADDING = 60, (3, 33), 1


def make(scheme: str) -> nn.Module:
    """The tiny size, every parameter moved away from its initial value."""
    from omegaconf import OmegaConf

    from fairseq_posenc.plugin.models.building import build, dictionary_of

    torch.manual_seed(0)
    options = OmegaConf.create({"dropout": 0.0, "attention_dropout": 0.0, "max_positions": SHAPE[1]})
    try:
        model = build(ROBERTA.architecture(scheme, "_tiny"), options, dictionary_of(SYMBOLS))
    except ValueError as error:
        pytest.skip(str(error))  # a scheme that needs a package
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    return model


def results(model: nn.Module, device: torch.device, dtype: torch.dtype) -> list[Tensor]:
    """Logits, and the gradients of the loss of all tokens in every parameter."""
    model = copy.deepcopy(model).to(device, dtype)
    tokens = torch.randint(4, SYMBOLS, SHAPE, generator=torch.Generator().manual_seed(1)).to(device)
    tokens[1, 20:] = PADDING
    logits = model(tokens)[0][tokens != PADDING]
    # The sum rather than the mean, so that gradients are not too small for 16 bits.
    F.cross_entropy(logits.float() if dtype.itemsize < 4 else logits, tokens[tokens != PADDING], reduction="sum").backward()
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
    return [tensor.detach().cpu().double() for tensor in (logits, *gradients)]


def error(found: list[Tensor], exact: list[Tensor]) -> float:
    """The largest of all tensors, relative to the tensor's norm, or to a tenth of the largest gradient's where it is smaller:
    some gradients are zero but for rounding."""
    least = max(tensor.norm() for tensor in exact[1:]) / 10
    errors = [(a - b).norm() / torch.maximum(b.norm(), least) for a, b in zip(found, exact, strict=True)]
    assert all(each.isfinite() for each in errors)
    return max(errors).item()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("scheme", expressions())
def test_agrees_with_float64_on_the_cpu(scheme: str, dtype: torch.dtype) -> None:
    """To three times what the CPU's own rounding in that precision makes of it, and four roundings."""
    model = make(scheme).to(dtype)
    exact = results(model, torch.device("cpu"), torch.float64)
    allowed = 3 * error(results(model, torch.device("cpu"), dtype), exact) + 4 * torch.finfo(dtype).eps
    assert error(results(model, DEVICE, dtype), exact) <= allowed
