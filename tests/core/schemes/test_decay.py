"""Which parameters weight decay shrinks, and groups of parameters for PyTorch's optimizers."""

import functools

import pytest
import torch
from torch import nn

from fairseq_posenc import Encoder, decay_groups, position_bias
from fairseq_posenc.core.schemes import REGISTRY
from fairseq_posenc.core.schemes.decay import without_decay

DECAYS = {  # the others' parameters are tables, biases and scales, which do not
    "absolute": {"weight"},
    "absolute_untied_projection": {"weight", "query_projection", "key_projection"},
    "cable": {"weight"},
    "deberta": {"weight", "query_projection", "key_projection"},
    "floater": {"weight1", "weight2"},
    "relative_logits": {"projection"},
    "selective_rope": {"down", "up"},
    "sentence_absolute": {"weight"},
    "synthesizer_dense": {"weight1", "weight2"},
    "synthesizer_factorized_dense": {"weight1", "tiled_weight", "stretched_weight"},
    "transformer_xl": {"projection"},
    "untied": {"weight", "query_projection", "key_projection", "cls"},
}
SIZES = {"vocab_size": 20, "layers": 2, "dim": 16, "ffn_dim": 16, "heads": 2, "max_positions": 16}


@functools.cache
def encoder_of(name):
    """A model with a scheme, and for [CLS] what it has beside ``reset``."""
    expression = next((e for e in (f"{name}+reset", name, f"rope+{name}", f"t5+{name}") if _builds(e)), None)
    assert expression is not None
    return Encoder(expression, **SIZES)


def _builds(expression):
    try:
        return Encoder(expression, **SIZES) is not None
    except ValueError:
        return False


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_parameter_of_a_scheme_decays_or_does_not(name):
    encoder = encoder_of(name)
    (scheme,) = [module for module in encoder.modules() if getattr(module, "name", None) == name]
    exempt = {*without_decay(encoder)}
    found = {key for key, p in scheme.named_parameters() if p not in exempt}
    assert found == DECAYS.get(name, set())
    assert set(type(scheme).decays) == found  # no name is misspelt


def test_the_kinds_of_parameters():
    encoder = Encoder("deberta(projections=content)+t5", **SIZES)
    names = {p: name for name, p in encoder.named_parameters()}
    kinds = {kind: {names[p] for p in without_decay(encoder, [kind])} for kind in ("norms", "biases", "positions")}
    assert kinds["positions"] == {"positions.t5.weight"}
    assert "positions.deberta.layer_norm.weight" in kinds["norms"]
    assert all("norm" in name for name in kinds["norms"])
    assert all(name.startswith("layers.") and name.endswith(".bias") and "norm" not in name for name in kinds["biases"])
    assert {*map(names.get, without_decay(encoder))} == set.union(*kinds.values())
    rest = {*names.values()} - set.union(*kinds.values())
    assert {name.rpartition(".")[0].rpartition(".")[2] for name in rest} == {
        "embed_tokens", "deberta", "q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2",
    }  # fmt: skip


def test_a_module_of_a_scheme_decays_by_its_name(monkeypatch):
    encoder = Encoder("t5", **SIZES)
    scheme = encoder.positions.t5
    scheme.net = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))
    monkeypatch.setattr(type(scheme), "decays", ("net.0",))
    exempt = {*without_decay(scheme)}
    assert {name for name, p in scheme.named_parameters() if p not in exempt} == {"net.0.weight"}
    assert scheme.net[0].bias in {*without_decay(scheme, ["positions"])}


@pytest.mark.parametrize("positions", ["t5", "tisa", "fire"])
def test_a_plain_optimizer_shrinks_what_decays(positions):
    model = nn.ModuleDict({"bias": position_bias("t5", heads=2), "encoder": Encoder(positions, **SIZES)})
    optimizer = torch.optim.AdamW(decay_groups(model, 0.5), lr=0.1)
    exempt, before = set(without_decay(model)), {p: p.detach().clone() for p in model.parameters()}
    for p in before:
        p.grad = torch.zeros_like(p)
    optimizer.step()
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(before)
    for p, old in before.items():
        assert torch.equal(p, old if p in exempt else old * (1 - 0.1 * 0.5))
