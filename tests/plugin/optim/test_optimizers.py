"""--optimizer stable_adamw and --optimizer muon."""

import copy

import numpy as np
import pytest
import torch
from async_step.test_waiting import NothingWaits
from cases import thorough_but
from fairseq.optim import FP16Optimizer, MemoryEfficientFP16Optimizer, build_optimizer
from omegaconf import OmegaConf, open_dict
from torch import nn

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.core.families import expressions
from fairseq_posenc.core.transformer import Encoder, EncoderConfig
from fairseq_posenc.plugin.models.building import parse
from fairseq_posenc.plugin.optim.muon import MATRIX, mark_matrices
from fairseq_posenc.plugin.optim.stable_adamw import StableAdamW
from fairseq_posenc.plugin.run.checks import check_pairs

from .conftest import optimizer, schedule

NAMES = ("stable_adamw", "muon")


def algorithm_2(weights, gradients, lr, beta1, beta2, eps, decay):
    """Wortsman et al. 2023, Algorithm 2, line by line in float64; returns the weights and the RMS of every update."""
    theta, v, u, every_rms = weights.astype(np.float64), 0.0, 0.0, []
    for t, gradient in enumerate(gradients, start=1):
        g = gradient.astype(np.float64)
        beta1_hat = beta1 * (1 - beta1 ** (t - 1)) / (1 - beta1**t)
        beta2_hat = beta2 * (1 - beta2 ** (t - 1)) / (1 - beta2**t)
        v = beta1_hat * v + (1 - beta1_hat) * g
        u = beta2_hat * u + (1 - beta2_hat) * g**2
        rms = np.sqrt(np.mean(g**2 / np.maximum(u, eps**2)))
        eta = lr / max(1.0, rms)
        theta = theta - eta * decay * theta - eta * v / (np.sqrt(u) + eps)
        every_rms.append(rms)
    return theta, every_rms


@pytest.mark.parametrize("shape", [(4, 3), (), (5,)])
@pytest.mark.parametrize("eps", [1e-8, 0.5])
def test_stable_adamw_is_the_papers(shape, eps):
    rng = np.random.default_rng(0)
    scales = [1, 0.1, 0.1, 30, 1, 1e-9, 2] * 4
    weights, gradients = rng.standard_normal(shape), [np.asarray(s * rng.standard_normal(shape)) for s in scales]
    expected, every_rms = algorithm_2(np.asarray(weights), gradients, 0.01, 0.9, 0.98, eps, 0.1)
    assert max(every_rms) > 2 > 1 > min(every_rms)
    p = nn.Parameter(torch.tensor(weights, dtype=torch.float32))
    stable = StableAdamW([p], 0.01, (0.9, 0.98), eps, 0.1)
    for gradient in gradients:
        p.grad = torch.tensor(gradient, dtype=torch.float32)
        stable.step()
    torch.testing.assert_close(p.detach().double(), torch.tensor(expected), rtol=2e-5, atol=1e-6)


def test_stable_adamw_reads_nothing_from_the_device():
    p = nn.Parameter(torch.ones(3))
    p.grad = torch.ones(3)
    stable = StableAdamW([p], 0.05, (0.9, 0.98), 1e-6, 0.1)
    with NothingWaits():
        stable.step()


def test_stable_adamw_in_half_precision_keeps_float32_moments():
    exact = nn.Parameter(torch.linspace(-1, 1, 7).bfloat16().float())
    rounded = nn.Parameter(exact.detach().bfloat16())
    optimizers = [StableAdamW([p], 0.05, (0.9, 0.98), 1e-6, 0.0) for p in (exact, rounded)]
    for number in range(3):
        for p in (exact, rounded):
            p.grad = torch.randn(7, generator=torch.Generator().manual_seed(number)).bfloat16().to(p.dtype)
        for each in optimizers:
            each.step()
        torch.testing.assert_close(rounded.detach().float(), exact.detach(), rtol=0, atol=0.02)
    states = [each.state[p] for each, p in zip(optimizers, (exact, rounded), strict=True)]
    assert torch.equal(*(state["exp_avg_sq"] for state in states))


def marked(encoder):
    mark_matrices(encoder)
    return {name for name, p in encoder.named_parameters() if getattr(p, "param_group", None) == MATRIX}


@pytest.mark.parametrize("options", [{}, {"layer_groups": 1}, {"gated_ffn": True, "linear_bias": False, "norm": "rms"}], ids=str)
def test_muon_updates_the_matrices_of_the_layers_alone(options):
    sizes = {"vocab_size": 20, "layers": 2, "dim": 16, "ffn_dim": 16, "heads": 2, "max_positions": 16}
    layers = range(options.get("layer_groups", 2))
    maps = [*(f"self_attn.{name}_proj" for name in ("q", "k", "v", "out")), "fc1", "fc2"]
    expected = {f"layers.{i}.{name}.weight" for i in layers for name in maps}
    for expression in expressions().values() if not options else ["none"]:
        assert marked(Encoder(EncoderConfig(**sizes, positions=expression, **options))) == expected, expression


def test_muon_is_pytorchs_with_adamw():
    def parameters():
        generator = torch.Generator().manual_seed(0)
        return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((4, 6), (5,))]

    ours, theirs = parameters(), parameters()
    ours[0].param_group = MATRIX
    mine = build_optimizer(optimizer("muon", muon_momentum=0.9), ours)
    muon = torch.optim.Muon(theirs[:1], lr=0.01, weight_decay=0.1, momentum=0.9, adjust_lr_fn="match_rms_adamw")
    adamw = torch.optim.AdamW(theirs[1:], lr=0.01, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.1)
    for number in range(6):
        for params in (ours, theirs):
            generator = torch.Generator().manual_seed(number)
            for p in params:
                p.grad = torch.randn(p.shape, generator=generator)
        mine.step()
        muon.step()
        adamw.step()
        if number == 2:
            state = copy.deepcopy(mine.state_dict())
            mine = build_optimizer(optimizer("muon", muon_momentum=0.9), ours)
            mine.load_state_dict(state)
            for other in (muon, adamw):
                other.param_groups[0]["lr"] = 0.02
            mine.set_lr(0.02)
    assert all(torch.equal(p, q) for p, q in zip(ours, theirs, strict=True))


def test_nag_resumes_with_the_rate_of_the_update_before():
    """It scales its momentum by the ratio of two learning rates."""

    def train(rates, p, state=None):
        nag = build_optimizer(OmegaConf.create({"_name": "nag", "momentum": 0.9, "lr": [0.5]}), [p])
        if state is not None:
            nag.load_state_dict(state)
        for number, rate in rates:
            nag.set_lr(rate)
            p.grad = torch.full_like(p, number)
            nag.step()
        return copy.deepcopy(nag.state_dict())

    rates = [(1, 0.5), (2, 0.4), (3, 0.3), (4, 0.2)]
    whole, parts = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    train(rates, whole)
    train(rates[2:], parts, train(rates[:2], parts))
    assert torch.equal(whole, parts)


@pytest.mark.parametrize("name", thorough_but(["muon"], (*NAMES, "adam")))
@pytest.mark.parametrize(
    "precision", thorough_but(["float32", "bf16 in groups"], ["float32", "bf16", "bf16 in groups", "memory_efficient_bf16"])
)
def test_training_resumes_bit_for_bit(name, precision, train):
    values = {"optimizer": optimizer(name)}
    values |= {"common.bf16": True} if precision != "float32" else {}
    values |= {"optimization.no_decay": "positions,norms,biases"} if precision == "bf16 in groups" else {}
    values |= {"common.memory_efficient_bf16": True} if precision == "memory_efficient_bf16" else {}
    if precision == "memory_efficient_bf16" and name == "muon":
        with pytest.raises(InputError, match=r"--memory-efficient-bf16 and --optimizer muon"):
            train("plain", "whole", values)
        return
    whole = train("plain", "whole", {**values, **schedule(2, 3, 7)})
    train("plain", "parts", {**values, **schedule(2, 0, 3)})
    parts = train("plain", "parts", {**values, **schedule(2, 3, 7)})
    assert parts.curve[-1]["num_updates"] == 7
    assert parts.curve[-1]["loss"] < 6
    for key, value in whole.checkpoint["model"].items():
        assert torch.equal(value, parts.checkpoint["model"][key]), key
    for state, other in zip(*(t.checkpoint["last_optimizer_state"]["state"].values() for t in (whole, parts)), strict=True):
        assert state.keys() == other.keys()
        assert all(torch.equal(torch.as_tensor(state[key]), torch.as_tensor(other[key])) for key in state)
    masters = [t.checkpoint["last_optimizer_state"].get("master", ()) for t in (whole, parts)]
    assert (len(masters[0]) > 0) == precision.startswith("bf16")
    assert all(map(torch.equal, *masters))


@pytest.mark.parametrize("name", NAMES)
def test_with_float32_copies_of_weights_in_bfloat16(name, train):
    trained = train("plain", "bf16", {"optimizer": optimizer(name), "common.bf16": True, "optimization.max_update": 2})
    groups = trained.checkpoint["last_optimizer_state"]["param_groups"]
    assert len(groups[0]["params"]) == 12 if name == "muon" else len(groups) == 1  # six matrices in each of two layers


@pytest.mark.parametrize(
    ("kind", "name", "values"),
    [
        (FP16Optimizer, "adam", {"bf16": True}),
        (FP16Optimizer, "adam", {"fp16": True}),  # one flat tensor of all weights
        (FP16Optimizer, "stable_adamw", {"fp16": True, "fp16_no_flatten_grads": True}),
        (MemoryEfficientFP16Optimizer, "adam", {"bf16": True, "memory_efficient_bf16": True}),
        (None, "fused_adam", {"bf16": True}),
    ],
)
def test_what_keeps_float32_is_trained_in_float32_beside_half_precision(kind, name, values, configure, monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    cfg = configure(
        "plain", {"optimizer": optimizer(name, weight_decay=0.0, adam_eps=1e-16), **{f"common.{k}": v for k, v in values.items()}}
    )
    torch.manual_seed(0)
    model = Encoder("liere", vocab_size=20, layers=2, dim=16, heads=2, ffn_dim=16, max_positions=16, dropout=0.0)
    model.to(torch.bfloat16 if "bf16" in values else torch.float16)
    theta, tokens = model.positions.liere.theta, torch.randint(4, 20, (2, 12))
    before, parameters = theta.detach().clone(), list(model.parameters())
    built = build_optimizer(cfg.optimizer, parameters) if kind is None else kind.build_optimizer(cfg, parameters)
    built.set_lr(1e-5)
    for update in range(1, 3):
        built.zero_grad()
        built.backward(model(tokens).last_hidden_state.float().square().mean(-1)[:, ::2].sum())
        built.multiply_grads(1.0)
        built.clip_grad_norm(0.0)
        built.step()
        assert theta.dtype == torch.float32
        assert 0 < (theta - before).abs().max() <= 1.01e-5 * update  # less than a unit of half precision
    assert (theta - before).ne(0).all()
    if kind is FP16Optimizer:  # the weights are rounded, and what a checkpoint has of the optimizer is not
        again = kind.build_optimizer(cfg, parameters)
        again.load_state_dict(copy.deepcopy(built.state_dict()))
        (masters, loaded) = (o.fp32_params.values() if o.has_flat_params else o.fp32_params for o in (built, again))
        assert all(map(torch.equal, loaded, masters))
        assert any((p.half().float() != p).any() for p in loaded)


def test_muon_refuses():
    with pytest.raises(InputError, match="--optimizer muon"):
        build_optimizer(optimizer("muon", muon_momentum=0.9), [nn.Parameter(torch.ones(2, 2))])
    with pytest.raises(InputError, match=r"--muon-momentum 1\.5"):
        build_optimizer(optimizer("muon", muon_momentum=1.5), [nn.Parameter(torch.ones(2, 2))])


@pytest.mark.parametrize(
    ("name", "flag", "default"),
    [
        *((name, "--adam-betas", (0.9, 0.999)) for name in ("adam", "cpu_adam", "fused_adam", "stable_adamw")),
        ("adamax", "--adamax-betas", (0.9, 0.999)), ("lamb", "--lamb-betas", (0.9, 0.999)),
        ("adafactor", "--adafactor-eps", (1e-30, 1e-3)),
    ],
)  # fmt: skip
def test_pairs_of_numbers_are_checked_before_training(name, flag, default):
    """Of every optimizer that has some, as flags and as lists of Hydra's."""
    cfg = parse([".", "--task", "masked_lm", "--arch", "roberta_t5", "--optimizer", name, "--batch-size", "1"])

    def check(value):
        with open_dict(cfg):
            setattr(cfg.optimizer, flag[2:].replace("-", "_"), value)
        check_pairs(cfg)

    check_pairs(cfg)
    for right in ("(0.5, 0.25)", "[0,0.25]", [0.5, 0.25], default):
        check(right)
    for wrong in (
        "'(0.9,0.98)'",
        "(0.9 0.98)",
        "0.9",
        "(0.9,)",
        "(0.9,0.98,0.9)",
        "(0.9,-1)",
        "(0.9,'0.98')",
        "x",
        "(",
        0.9,
        [0.9],
    ):
        with pytest.raises(InputError, match=rf"^{flag} .*: two numbers .* are needed"):
            check(wrong)
    if not flag.endswith("eps"):
        with pytest.raises(InputError, match="from 0 to below 1"):
            check("(0.9,1)")
