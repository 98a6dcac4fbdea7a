"""The names of architectures: family, scheme and size."""

import pytest
import torch

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.core.families import NAMED, ROBERTA, Architecture, Family, architectures, expressions, tells_order
from fairseq_posenc.core.schemes import REGISTRY
from fairseq_posenc.core.transformer import Encoder
from fairseq_posenc.study.catalogue.listing import positions_of


@pytest.mark.parametrize(
    "expression", [*expressions().values(), "none | none", "log_n(beta=0.2) | none", "none(window=2)", "log_n | rope"]
)
def test_schemes_without_order_are_known(expression):
    torch.manual_seed(0)
    encoder = Encoder(expression, vocab_size=20, layers=2, dim=16, heads=2, ffn_dim=16, max_positions=16).double().eval()
    for parameter in encoder.positions.parameters():
        torch.nn.init.normal_(parameter)
    tokens = torch.randint(4, 20, (1, 9))
    order = torch.tensor([3, 0, 7, 1, 8, 5, 2, 6, 4])
    states, permuted = encoder(tokens).last_hidden_state, encoder(tokens[:, order]).last_hidden_state
    assert tells_order(expression, 0) == (not torch.allclose(states[:, order], permuted))
    assert tells_order(expression, 2)


def test_a_name_says_family_scheme_and_size():
    causal = sum(Architecture(ROBERTA, scheme, "").has_causal_form for scheme in expressions())
    assert len(architectures()) == (3 + 5 + 3) * (1 + len(expressions())) + (4 + 3) * (1 + causal)
    for name, architecture in architectures().items():
        assert architecture.name == name == architecture.family.architecture(architecture.scheme, architecture.size)
    hybrid = architectures()["roberta_m4_reset_large"]
    assert (hybrid.scheme, hybrid.expression, hybrid.size) == ("m4_reset", "m4+reset", "_large")
    assert hybrid.options["encoder_layers"] == 24
    neutral = architectures()["roberta_posenc_tiny"]
    assert (neutral.expression, neutral.options) == (None, ROBERTA.sizes["_tiny"])
    assert Family("albert", {"": {}}).architecture("tisa") == "albert_tisa"
    assert architectures()["albert_m4_reset_xxlarge"].options == dict(
        encoder_layers=12, encoder_embed_dim=4096, encoder_ffn_embed_dim=16384, encoder_attention_heads=64, embedding_size=128,
        encoder_layer_groups=1, activation_fn="gelu_accurate", dropout=0.0, attention_dropout=0.0, layer_norm_eps=1e-12,
        positions="m4+reset",
    )  # fmt: skip
    assert architectures()["albert_tisa_tiny"].options["embedding_size"] == 32
    modern = {architectures()[f"modernbert_{scheme}"].expression for scheme in ("rope", "absolute_tisa")}
    assert modern == {"modernbert", "absolute+tisa | absolute+tisa(window=64) | absolute+tisa(window=64)"}


def test_a_model_with_a_decoder_has_the_schemes_that_have_a_causal_form():
    names = [name for name in expressions() if f"transformer_{name}" in architectures()]
    assert [name for name in expressions() if f"transformer_lm_{name}_tiny" in architectures()] == names
    acausal = {"m4_reset", "sentence_absolute", "tupe_a", "tupe_r"}
    assert {*expressions()} - {*names} == acausal
    assert "transformer_posenc_big" in architectures()


def test_names_that_are_written_down_are_those_that_cannot_be_derived():
    assert not NAMED.keys() & REGISTRY.keys()
    assert {*expressions().values()} == {name for name, scheme in REGISTRY.items() if scheme.alone} | {*NAMED.values()}
    assert len({*expressions().values()}) == len(expressions())


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_a_scheme_says_whether_it_stands_alone(name):
    if REGISTRY[name].alone:
        positions_of(name)
    else:
        with pytest.raises(InputError):
            positions_of(name)
