"""ALBERT in fairseq: its sizes, what its layers share and what is each one's own."""

import pytest
import torch
from fairseq.models import ARCH_MODEL_REGISTRY
from test_roberta import Task, build, encoder_of
from untrained import plain

from fairseq_posenc.core.families import ALBERT, expressions
from fairseq_posenc.plugin.checkpoint.checkpoint import Checkpoint
from fairseq_posenc.plugin.checkpoint.checkpoint_file import untrained, write
from fairseq_posenc.plugin.models.building import complete_new
from fairseq_posenc.plugin.models.roberta import PosencRobertaModel
from fairseq_posenc.study.catalogue.listing import count

TINY = dict(max_positions=24, encoder_layers=3, encoder_embed_dim=32, encoder_ffn_embed_dim=48, encoder_attention_heads=4)


@pytest.mark.parametrize(
    ("name", "parameters"), [("absolute", 65_536), ("tisa", 2_160), ("absolute_tisa", 65_536 + 2_160), ("t5", 384), ("none", 0)]
)
def test_positions_of_the_base_size(name, parameters):
    """Wennberg & Henter 2021, Table 2, at n = 512: the table is as wide as the embeddings, TISA has 3·S·H·L for 12 layers."""
    assert count(encoder_of(ALBERT.architecture(name)).positions) == parameters


def test_the_neutral_architecture_is_an_albert_too(configure):
    model = configure("data", ALBERT.model, "--positions", "t5", "--embedding-size", 8).model
    complete_new(model, ALBERT.model, None)
    expected = dict(encoder_layer_groups=1, embedding_size=8, activation_fn="gelu_accurate", dropout=0.0, layer_norm_eps=1e-12)
    assert {name: model[name] if name != "activation_fn" else str(model[name]) for name in expected} == expected


@pytest.mark.parametrize(
    ("size", "parameters"), [("", 11_683_584), ("_large", 17_683_968), ("_xlarge", 58_724_864), ("_xxlarge", 222_595_584)]
)
def test_sizes_are_the_published_models(size, parameters):
    """transformers' AlbertModel of that size, which has a pooler and two token types besides."""
    encoder = encoder_of(ALBERT.architecture("absolute", size))
    dim = encoder.config.dim
    assert count(encoder) + dim * dim + dim + 2 * 128 == parameters


@pytest.mark.parametrize("name", expressions())
def test_every_scheme_trains(name):
    for size in ALBERT.sizes:
        assert ARCH_MODEL_REGISTRY[ALBERT.architecture(name, size)] is PosencRobertaModel
    model = build(ALBERT.architecture(name, "_tiny"), Task(), **TINY)
    encoder = model.encoder.sentence_encoder
    assert (len(encoder.layers), encoder.positions.settings.layers, encoder.embed_tokens.embedding_dim) == (1, 3, 32)
    tokens = torch.randint(4, 60, (2, 24), generator=torch.Generator().manual_seed(0))
    model.train()(tokens)[0].square().sum().backward()
    assert [name for name, parameter in encoder.positions.named_parameters() if parameter.grad is None] == []


def test_a_checkpoint_is_read_back_and_its_sizes_are_checked(tmp_path):
    model = build("albert_shaw_tiny", Task(), **TINY)
    cfg = {"model": dict(model.args), "task": {"_name": "masked_lm", "data": "", "tokens_per_sample": 24}}
    path = tmp_path / "checkpoint.pt"
    content = untrained(plain(cfg), model)
    write(path, content)
    tokens = torch.tensor([[0, 7, 9, 2]])
    with torch.no_grad():
        expected = model.encoder.sentence_encoder(tokens)["encoder_out"][0][:, 0]
        torch.testing.assert_close(Checkpoint(path).encoder()(tokens).last_hidden_state[0], expected)
    for name, value, said in [
        ("encoder_layer_groups", 3, "encoder_layer_groups = 3, and its parameters 1"),
        ("encoder_layer_groups", 0, "encoder_layers = 3, and its parameters 1"),
        ("embedding_size", 16, "embedding_size = 16, and its parameters 32"),
    ]:
        content["cfg"]["model"] |= {name: value}
        write(path, content)
        with pytest.raises(ValueError, match=said):
            Checkpoint(path).encoder()
        content["cfg"]["model"] |= dict(encoder_layer_groups=1, embedding_size=32)
