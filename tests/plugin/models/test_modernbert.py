"""ModernBERT in fairseq: its sizes and layers, and each part of its architecture in it and in other families."""

import math

import pytest
import torch
from cases import SOME, thorough_but
from test_roberta import Task, build, encoder_of
from torch import nn

from fairseq_posenc.base.errors import FieldError, InputError
from fairseq_posenc.core.families import MODERNBERT, expressions
from fairseq_posenc.core.terms import Window
from fairseq_posenc.core.transformer import Decoder, DecoderConfig, Encoder, EncoderConfig
from fairseq_posenc.plugin.models.building import complete_new
from fairseq_posenc.study.catalogue.listing import count

TOKENS = torch.randint(4, 60, (2, 12), generator=torch.Generator().manual_seed(0))
SIZES = dict(encoder_layers=4, encoder_embed_dim=16, encoder_ffn_embed_dim=24, encoder_attention_heads=2)


@pytest.mark.parametrize(
    ("size", "parameters"), [("", 149_014_272), pytest.param("_large", 394_781_696, marks=pytest.mark.thorough)]
)
def test_sizes_are_the_published_models(size, parameters):
    """transformers' ModernBertModel of that size and of 50,368 symbols."""
    assert count(encoder_of(MODERNBERT.architecture("rope", size), 50_368)) == parameters


def test_the_smallest_model_is_as_large_as_robertas():
    sizes = [count(encoder_of(f"{family}_rope_tiny", 100)) for family in ("modernbert", "roberta")]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.02)


@pytest.mark.parametrize("scheme", thorough_but({"absolute_tisa", "rope", "cable"}, expressions(), SOME))
def test_every_scheme_has_the_windows(scheme):
    encoder = encoder_of(MODERNBERT.architecture(scheme, "_tiny"), 100)
    with torch.device("meta"):
        window = Window(3, dtype=torch.float32)
        terms = encoder.positions.terms(window)
        assert [terms.of(layer, torch.zeros(1, 3, 128)).window for layer in range(3)] == [None, 64, 64]


PARTS = {  # a flag's option, and how many parameters it adds to, or takes from, a model without any part
    "gated_ffn": (True, 4 * 24 * 17),
    "no_linear_bias": (True, -4 * (5 * 16 + 24)),
    "no_norm_bias": (True, -10 * 16),  # that of the language model's head, too
    "no_head_bias": (True, -16),
    "encoder_normalize_before": (True, 2 * 16),
    "no_layernorm_embedding": (True, -2 * 16),
}


PARTS_OF_EUROBERT = {
    "norm": ("rms", -10 * 16),  # the same as without its biases
    "no_head_layer": (True, -(16 * 16 + 16 + 2 * 16)),
    "no_output_bias": (True, -len(Task().source_dictionary)),
}


@pytest.mark.parametrize("option", PARTS | PARTS_OF_EUROBERT)
def test_each_part_is_one_option_of_every_family(option):
    value, parameters = (PARTS | PARTS_OF_EUROBERT)[option]
    plain, changed = (build("roberta_rope", Task(), **SIZES, **options) for options in ({}, {option: value}))
    assert count(changed) - count(plain) == parameters
    changed.train()(TOKENS)[0].square().sum().backward()
    assert all(parameter.grad is not None for parameter in changed.parameters())


@pytest.mark.parametrize("model", [Encoder, Decoder])
def test_rms_norm_replaces_every_layer_norm(model):
    """And computes x / sqrt(mean(x²) + ε), times its weight."""
    modules = [*model("none", vocab_size=9, layers=2, dim=16, heads=2, norm="rms", layer_norm_eps=0.5).modules()]
    norms = [module for module in modules if isinstance(module, nn.RMSNorm)]
    assert len(norms) == (5 if model is Encoder else 7)  # two or three in each layer, and that of the embeddings
    assert not any(isinstance(module, nn.LayerNorm) for module in modules)
    x = torch.randn(3, 16)
    torch.testing.assert_close(norms[0](x), x / (x.square().mean(-1, keepdim=True) + 0.5).sqrt())


@pytest.mark.parametrize(("config", "options"), [(EncoderConfig, {"embed_dim": 8}), (DecoderConfig, {})])
def test_the_inner_layer_of_the_head_is_left_out_of_encoders_without_a_narrow_embedding(config, options):
    with pytest.raises(FieldError, match="head_layer"):
        config(vocab_size=9, head_layer=False, **options)
    with pytest.raises(FieldError, match="norm must be"):
        config(vocab_size=9, norm="batch")


def test_a_part_of_modernbert_is_left_out_by_the_opposite_flag(configure):
    def options(*flags):
        model = configure("data", "modernbert_rope", *flags).model
        complete_new(model, "modernbert_rope", None)
        return {name for name in (*PARTS, "no_first_norm") if model[name]}

    everything = {*PARTS, "no_first_norm"} - {"no_layernorm_embedding"}
    assert options() == everything
    assert options("--no-gated-ffn", "--norm-bias") == everything - {"gated_ffn", "no_norm_bias"}
    assert options("--first-norm", "--no-encoder-normalize-before") == everything - {"no_first_norm", "encoder_normalize_before"}
    model = configure("data", "modernbert_rope", "--no-encoder-normalize-before").model
    with pytest.raises(InputError, match=r"--no-first-norm.*--encoder-normalize-before.*--encoder-layer-groups"):
        complete_new(model, "modernbert_rope", None)


def test_windows_are_left_out_by_other_positions():
    model = build("modernbert_posenc", Task(), **SIZES, positions="tisa")
    assert model.encoder.sentence_encoder.positions.terms(Window(3)).of(1, torch.zeros(1, 3, 16)).window is None


def test_the_first_weights_end_each_block_with_less():
    model = build("modernbert_rope", Task(), **{**SIZES, "encoder_embed_dim": 256, "encoder_ffn_embed_dim": 256})
    truncated = 0.88 * 0.02  # the standard deviation after truncation at twice it
    for name, weight in model.named_parameters():
        if weight.dim() == 2 and weight.shape[0] >= 256:
            small = name.endswith(("out_proj.weight", "fc2.weight", "dense.weight"))
            assert weight.std().item() == pytest.approx(truncated / (math.sqrt(8) if small else 1), rel=0.02), name
    with pytest.raises(ValueError, match="initialization"):
        EncoderConfig(vocab_size=9, scale_embeddings=True, initialization="megatron")
