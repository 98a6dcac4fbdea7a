"""--optimizer fused_adam."""

import copy

import pytest
import torch
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig
from torch import nn

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.plugin.optim.fused_adam import FusedAdam
from fairseq_posenc.plugin.optim.settings import AdamConfig

SETTINGS = {"adam_betas": "(0.9,0.98)", "adam_eps": 1e-3, "weight_decay": 0.1, "lr": [0.01]}


def parameters(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape in ((3, 4), (), (5,))]


def fused(params, **settings):
    return FusedAdam(AdamConfig(**{**SETTINGS, **settings}), params)


def fairseqs(params):
    return FairseqAdam(FairseqAdamConfig(**SETTINGS), params)


def update(optimizer, params, number, clip=0.0, factor=1.0):
    """One update with gradients of chance; returns their norm."""
    optimizer.zero_grad()
    generator = torch.Generator().manual_seed(number)
    weights = [torch.randn(p.shape, generator=generator) for p in params]
    optimizer.backward(sum((p.float() * w).sum() for p, w in zip(params, weights, strict=True)))
    optimizer.multiply_grads(factor)
    norm = optimizer.clip_grad_norm(clip)
    optimizer.step()
    return norm


@pytest.mark.parametrize(("clip", "factor"), [(0.0, 1.0), (0.5, 0.25), (100.0, torch.tensor(0.25, dtype=torch.float64))])
def test_agrees_with_fairseqs_from_the_first_update_on(clip, factor):
    mine, theirs = parameters(), parameters()
    optimizers = fused(mine), fairseqs(theirs)
    for number in range(12):
        norms = [update(opt, params, number, clip, factor) for opt, params in zip(optimizers, (mine, theirs), strict=True)]
        torch.testing.assert_close(*norms, rtol=1e-6, atol=0)
        for p, q in zip(mine, theirs, strict=True):
            torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
    assert optimizers[0].param_groups[0]["eps"] == SETTINGS["adam_eps"]


def test_bfloat16_is_rounded_from_float32_weights():
    mine, exact = parameters(torch.bfloat16), [nn.Parameter(p.detach().float()) for p in parameters(torch.bfloat16)]
    optimizers = fused(mine), fairseqs(exact)
    for number in range(40):
        optimizer, reference = optimizers
        update(optimizer, mine, number)
        for p, q in zip(mine, exact, strict=True):
            q.grad = p.grad.float()  # rounded, as the model's are
        reference.step()
        for p, q in zip(mine, exact, strict=True):
            assert p.dtype == torch.bfloat16
            torch.testing.assert_close(p, q.bfloat16(), rtol=1e-2, atol=1e-6)  # a bit that may round either way
    assert (mine[0] != exact[0]).any()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nothing_changes_once_gradients_were_not_finite(bad):
    params = parameters()
    optimizer = fused(params)
    update(optimizer, params, 0)
    before = copy.deepcopy((params, optimizer.state_dict()))
    assert not optimizer.failed
    assert not update(optimizer, params, 1, clip=0.5, factor=bad).isfinite()
    assert update(optimizer, params, 2, clip=0.5).isfinite()
    assert optimizer.failed
    for p, q in zip(params, before[0], strict=True):
        assert torch.equal(p, q)
    for name, value in before[1]["state"][0].items():
        assert torch.equal(optimizer.state_dict()["state"][0][name], value), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_goes_on_from_its_state_bit_for_bit(dtype):
    params = parameters(dtype)
    optimizer = fused(params)
    for number in range(3):
        update(optimizer, params, number, clip=0.5)
    others = [nn.Parameter(p.detach().clone()) for p in params]
    state = copy.deepcopy(optimizer.state_dict())
    other = fused(others)
    other.load_state_dict(state, {"lr": 0.02})
    optimizer.set_lr(0.02)
    for number in range(3, 30):
        update(optimizer, params, number, clip=0.5)
        update(other, others, number, clip=0.5)
        assert all(torch.equal(p, q) for p, q in zip(params, others, strict=True)), number
    averaged = [nn.Parameter(torch.zeros_like(p)) for p in params]
    optimizer = fused(averaged)
    optimizer.load_state_dict(state)
    update(optimizer, averaged, 30)
    assert max(p.abs().max() for p in averaged) < 0.1  # from the weights of the model, not those of the state


def test_a_parameter_without_gradient_decays_alone():
    params = parameters()
    optimizer = fused(params)
    before = params[2].detach().clone()
    optimizer.backward(params[0].sum())
    optimizer.clip_grad_norm(0)
    optimizer.step()
    torch.testing.assert_close(params[2].detach(), before * (1 - 0.01 * 0.1))


def test_what_it_refuses():
    with pytest.raises(InputError, match=r"--adam-betas 0.9: two numbers"):
        fused(parameters(), adam_betas="0.9")
    with pytest.raises(InputError, match=r"--adam-betas __import__.*two numbers"):
        fused(parameters(), adam_betas="__import__('os').getcwd()")
    with pytest.raises(InputError, match=r"--bf16.*torch.float16"):
        fused(parameters(torch.float16))
