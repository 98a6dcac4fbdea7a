"""Against the implementations of Hugging Face's transformers, where the ``hf`` extra has installed them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest
import torch
from torch import Tensor, nn

from .peers import HEAD_DIM, HEADS, MAX_POSITIONS, Attention, assert_close, bias, make, terms

if find_spec("transformers") is None:
    pytest.skip("transformers is not installed: pip install fairseq_posenc[hf]", allow_module_level=True)

import fairseq_posenc.huggingface  # noqa: F401  before transformers, to which it hides a torchaudio that does not load

import transformers  # isort: skip

SIZES = {"vocab_size": 50, "hidden_size": HEADS * HEAD_DIM, "num_hidden_layers": 2, "num_attention_heads": HEADS}
COMMON = {"max_position_embeddings": MAX_POSITIONS, "intermediate_size": 64, "attn_implementation": "eager"}
N = 21


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    """transformers makes parts of a model in the default type and keeps them."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def randomise(model: nn.Module) -> nn.Module:
    """Every parameter that learns away from its initial value, so that no term is left unseen."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in filter(lambda parameter: parameter.requires_grad, model.parameters()):
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return model.eval().requires_grad_(False)


def run(model: nn.Module) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """The input of every layer, and every layer's attention weights."""
    tokens = torch.randint(5, 50, (2, N), generator=torch.Generator().manual_seed(1))
    output = model(tokens, output_hidden_states=True, output_attentions=True)
    return output.hidden_states, output.attentions


@pytest.mark.parametrize(("buckets", "distance"), [(32, 128), (8, 20)])
def test_t5(buckets: int, distance: int) -> None:
    config = transformers.T5Config(
        vocab_size=50,
        d_model=HEADS * HEAD_DIM,
        d_kv=HEAD_DIM,
        d_ff=64,
        num_layers=2,
        num_heads=HEADS,
        relative_attention_num_buckets=buckets,
        relative_attention_max_distance=distance,
        attn_implementation="eager",
    )
    model = randomise(transformers.T5EncoderModel(config))
    attention = model.encoder.block[0].layer[0].SelfAttention
    values = {"t5.weight": attention.relative_attention_bias.weight.T[None]}
    positions = make("t5", values, t5_buckets=buckets, t5_max_distance=distance, position_scale_factor=1 / HEAD_DIM)
    assert_close(bias(positions, N), attention.compute_bias(N, N)[0], 1e-12)
    states, attentions = run(model)
    for number, block in enumerate(model.encoder.block):
        ours = Attention.of(dict(block.layer[0].SelfAttention.state_dict()), "q", "k", "v")
        _, p = ours(block.layer[0].layer_norm(states[number]), terms(positions, N, number))
        assert_close(p, attentions[number], 1e-5)  # a softmax in float32


def test_roformer() -> None:
    model = randomise(transformers.RoFormerModel(transformers.RoFormerConfig(**SIZES, **COMMON)))
    states, attentions = run(model)
    positions = make("rope", {})
    for number, layer in enumerate(model.encoder.layer):
        ours = Attention.of(dict(layer.attention.self.state_dict()), "query", "key", "value")
        _, p = ours(states[number], terms(positions, N, number))
        assert_close(p, attentions[number], 2e-6)


def test_deberta_v1() -> None:
    config = transformers.DebertaConfig(
        **SIZES, **COMMON, relative_attention=True, pos_att_type=["c2p", "p2c"], max_relative_positions=8, type_vocab_size=0
    )
    model = randomise(transformers.DebertaModel(config))
    states, attentions = run(model)
    attention_weights = [dict(layer.attention.self.state_dict()) for layer in model.encoder.layer]
    values = {
        "deberta.weight": model.encoder.rel_embeddings.weight[None, None],
        "deberta.key_projection": torch.stack([w["pos_proj.weight"].T[None] for w in attention_weights]),
        "deberta.query_projection": torch.stack([w["pos_q_proj.weight"].T[None] for w in attention_weights]),
        "deberta.query_bias": torch.stack([w["pos_q_proj.bias"][None] for w in attention_weights]),
    }
    positions = make(
        "deberta", values, layers=2, deberta_projections="model", deberta_indexing="original", max_relative_position=8
    )
    for number, weights in enumerate(attention_weights):
        _, p = Attention.by_head(weights)(states[number], terms(positions, N, number))
        assert_close(p, attentions[number], 1e-6)


def test_deberta_v2_sharing_content_projections() -> None:
    config = transformers.DebertaV2Config(
        **SIZES,
        **COMMON,
        relative_attention=True,
        pos_att_type=["c2p", "p2c"],
        max_relative_positions=8,
        position_buckets=-1,
        share_att_key=True,
        norm_rel_ebd="layer_norm",
        layer_norm_eps=1e-5,
        type_vocab_size=0,
    )
    model = randomise(transformers.DebertaV2Model(config))
    states, attentions = run(model)
    values = {
        "deberta.weight": model.encoder.rel_embeddings.weight[None, None],
        **{f"deberta.layer_norm.{name}": value for name, value in model.encoder.LayerNorm.state_dict().items()},
    }
    positions = make(
        "deberta", values, layers=2, deberta_projections="content", deberta_indexing="original", max_relative_position=8
    )
    for number, layer in enumerate(model.encoder.layer):
        weights = dict(layer.attention.self.state_dict())
        _, p = Attention.of(weights, "query_proj", "key_proj", "value_proj")(states[number], terms(positions, N, number))
        assert_close(p, attentions[number], 1e-6)
