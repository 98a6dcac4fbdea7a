"""Models for transformers with attention functions that are registered there."""

import pytest
import torch
from cases import thorough_but
from transformers import AttentionInterface

from fairseq_posenc.core.attention import BACKENDS
from fairseq_posenc.huggingface.configuration import PosencConfig
from fairseq_posenc.huggingface.modeling import PosencForMaskedLM

TOKENS = torch.tensor([[0, 5, 6, 7, 8, 2], [0, 9, 10, 2, 1, 1]])


def mine(module, query, key, value, attention_mask, scaling=None, position_bias=None, **options):
    assert position_bias is None or position_bias.shape == (2, 2, 6, 6)
    e = query @ key.transpose(-1, -2) * scaling + (attention_mask if position_bias is None else position_bias)
    p = e.softmax(-1)
    return (p @ value).transpose(1, 2), p


def without_bias(module, query, key, value, attention_mask, **options):
    return mine(module, query, key, value, attention_mask, **options)


def make(positions):
    torch.manual_seed(0)
    sizes = dict(vocab_size=20, layers=2, dim=32, ffn_dim=32, heads=2, max_positions=24)
    model = PosencForMaskedLM(PosencConfig(**sizes, positions=positions)).eval()
    with torch.no_grad():
        for parameter in model.model.encoder.positions.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model


@pytest.mark.parametrize("positions", ["absolute", "rope", "tisa+reset", "untied+t5+reset", "alibi | fire(window=2)"])
def test_a_users_function_computes_the_same(positions):
    AttentionInterface.register("mine", mine)
    model, backends = make(positions), dict(BACKENDS)
    with torch.no_grad():
        expected = model(TOKENS).logits
        model.set_attn_implementation("mine")
        torch.testing.assert_close(model(TOKENS).logits, expected, atol=1e-5, rtol=1e-4)
    assert backends == BACKENDS  # which encoders of other interfaces choose from


@pytest.mark.parametrize("positions", thorough_but((), ["tisa", "rope"], ()))
def test_flex_attention_computes_the_same(positions):
    model = make(positions)
    with torch.no_grad():
        expected = model(TOKENS).logits
        model.set_attn_implementation("flex_attention")
        torch.testing.assert_close(model(TOKENS).logits, expected, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(("positions", "name"), [("tisa", "without_bias"), ("shaw", "mine"), ("synthesizer_random", "mine")])
def test_what_a_function_has_no_place_for_is_refused(positions, name):
    AttentionInterface.register("mine", mine)
    AttentionInterface.register("without_bias", without_bias)
    model = make(positions)
    model.set_attn_implementation(name)
    with pytest.raises(ValueError, match=f"attention_backend {name} cannot run"):
        model(TOKENS)
