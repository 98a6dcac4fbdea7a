"""--no-decay."""

import pytest
import torch
from cases import thorough_but
from fairseq.optim import FP16Optimizer, MemoryEfficientFP16Optimizer, build_optimizer
from torch import nn

from fairseq_posenc import Encoder
from fairseq_posenc.base.errors import InputError
from fairseq_posenc.core.schemes.decay import KINDS, without_decay
from fairseq_posenc.plugin.optim.muon import mark_matrices
from fairseq_posenc.plugin.run.no_decay import mark

from .conftest import optimizer

ALL = "norms,biases,positions"


def encoder(*kinds):
    """A marked model, all of whose weights are 1."""
    model = Encoder("tisa+untied", vocab_size=20, layers=2, dim=16, heads=2, ffn_dim=16, max_positions=16)
    for p in model.parameters():
        nn.init.ones_(p)
    mark_matrices(model)
    mark(model, kinds)
    return model


@pytest.mark.parametrize("kinds", [(), ("norms",), ("biases", "positions"), KINDS], ids=str)
@pytest.mark.parametrize(
    ("kind", "name", "flags"),
    [
        *((None, name, ()) for name in ("adam", "fused_adam", "stable_adamw", "muon", "adamax")),
        (None, "fused_adam", ("bf16",)),
        *((FP16Optimizer, name, ("bf16",)) for name in ("adam", "stable_adamw", "muon")),
        (FP16Optimizer, "adam", ("fp16",)),  # one flat tensor of all weights
        (FP16Optimizer, "adam", ("fp16", "fp16_no_flatten_grads")),
        (MemoryEfficientFP16Optimizer, "adam", ("bf16", "memory_efficient_bf16")),
    ],
)
def test_an_update_without_gradients_shrinks_what_decays(kind, name, flags, kinds, configure, monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    options = {"adamax_betas": "(0.9,0.98)", "adamax_eps": 1e-6, "no_bias_correction": False} if name == "adamax" else {}
    options |= {"muon_momentum": 0.9} if name == "muon" else {}
    cfg = configure(
        "plain",
        {"optimizer": optimizer(name, weight_decay=0.5, lr=[0.5], **options), **{f"common.{flag}": True for flag in flags}},
    )
    model = encoder(*kinds).to(torch.bfloat16 if "bf16" in flags else torch.float16 if flags else torch.float32)
    parameters = list(model.parameters())
    built = build_optimizer(cfg.optimizer, parameters) if kind is None else kind.build_optimizer(cfg, parameters)
    built.zero_grad()
    built.backward(sum(p.float().sum() for p in model.parameters()) * 0)
    built.clip_grad_norm(1.0)
    built.step()
    exempt = {*without_decay(model, kinds)}
    for path, p in model.named_parameters():
        assert (p == (1 if p in exempt else 0.75)).all(), path
    assert len({p for group in built.param_groups for p in group["params"]}) == sum(len(g["params"]) for g in built.param_groups)


@pytest.mark.parametrize("name", thorough_but(["muon"], ["adam", "fused_adam", "muon"]))
def test_another_value_is_refused_in_a_resume(name, train):
    values = {"optimizer": optimizer(name), "optimization.max_update": 1, "optimization.no_decay": ALL}
    trained = train("plain", "same", values)
    assert trained.checkpoint["cfg"]["optimization"]["no_decay"] == ALL
    for other in ("biases", ""):
        with pytest.raises(InputError, match=f"--no-decay biases,norms,positions.*--no-decay {other or 'left out'}"):
            train("plain", "same", {**values, "optimization.no_decay": other, "optimization.max_update": 2})
    overrides = {"checkpoint.optimizer_overrides": "{'weight_decay': 0.25}", "optimization.max_update": 2}
    again = train("plain", "same", {**values, "optimization.no_decay": "positions, biases,norms", **overrides})
    decays = [group["weight_decay"] for group in again.checkpoint["last_optimizer_state"]["param_groups"]]
    assert decays == ([0.25, 0.25, 0] if name == "muon" else [0.25, 0])
