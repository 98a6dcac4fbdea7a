"""Layers that differ: alternatives, options in parentheses, and windows."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from attending import attend

from fairseq_posenc.base.errors import FieldError
from fairseq_posenc.core.attention import BACKENDS, Mask
from fairseq_posenc.core.schemes import Positions, Settings, build, parse, same
from fairseq_posenc.core.terms import Terms, Window
from fairseq_posenc.core.transformer import Cache, Decoder, DecoderConfig, Encoder, EncoderConfig

SETTINGS = Settings(layers=5, heads=2, dim=8, max_positions=16, separator=2)
CONFIG = EncoderConfig(vocab_size=20, layers=5, dim=16, ffn_dim=16, heads=2, max_positions=16, dropout=0.0, attention_dropout=0.0)


def make(positions: str, kind: type = Encoder, config: EncoderConfig = CONFIG) -> Encoder:
    torch.manual_seed(0)
    model = kind(dataclasses.replace(config, positions=positions)).double().eval()
    with torch.no_grad():
        for parameter in model.positions.parameters():
            parameter += 0.5 * torch.randn_like(parameter)
    return model


def test_each_layer_has_its_sum() -> None:
    positions = build("tisa | rope(base=100, window=3)", SETTINGS)
    terms = [positions.terms(Window(7)).of(layer, torch.zeros(1, 7, 8)) for layer in range(5)]
    assert [bool(own.biases) for own in terms] == [True, False, True, False, True]
    assert [own.window for own in terms] == [None, 3, None, 3, None]
    assert positions.sums[0].tisa.amplitude.shape == (3, 2, 5)
    expected = Positions("rope", SETTINGS, {"rope_base": 100.0}).terms(Window(7)).of(0, torch.empty(0))
    torch.testing.assert_close(terms[1].transforms[0].cos, expected.transforms[0].cos)
    assert not torch.equal(terms[0].biases[0].table, terms[2].biases[0].table)  # each layer has its own parameters


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("rope | ropes", "did you mean rope"),
        ("rope |", r"'rope \|': write names of schemes"),
        ("rope(base)", "rope_base must be float"),
        ("rope(bases=3)", "there is no option rope_bases"),
        ("rope(window=x)", "window must be int"),
        ("rope(window=-1)", r"'rope\(window=-1\)': window must be at least 0"),
        ("rope(window=1) + tisa(window=2)", "window twice"),
        ("absolute+tisa | tisa", "absolute is added to the word embeddings"),
        ("sinusoidal(layout=vaswani) | sinusoidal(layout=fairseq)", "sinusoidal is added to the word embeddings"),
        ("absolute(untied_projection_form=equation)", "there is no option absolute_untied_projection_form"),
        ("rope(type=ntk) | rope", "needs a value of rope_factor"),
    ],
)
def test_what_has_no_meaning_is_refused(expression: str, message: str) -> None:
    with pytest.raises(FieldError, match=message):
        build(expression, SETTINGS)


def test_options_in_parentheses_come_before_flags() -> None:
    positions = build("rope(base=100) | rope", SETTINGS, {"rope_base": 50.0})
    assert [part.rope.options.base for part in positions.sums] == [100.0, 50.0]
    assert positions.complete_options["rope_base"] == 50.0
    with pytest.raises(FieldError, match=r"rope_base 50\.0 means nothing"):
        build("rope(base=100) | rope(base=10)", SETTINGS, {"rope_base": 50.0})
    with pytest.raises(FieldError, match="tisa_kernels"):
        build("rope | none", SETTINGS, {"tisa_kernels": 3})
    assert build("rope(layout=half) | tisa", SETTINGS, {"tisa_kernels": 3}).sums[1].tisa.options.kernels == 3


def test_which_expressions_are_the_same() -> None:
    assert same("tisa + absolute", "absolute+tisa")
    assert same("rope(base=1e4)|none", "rope( base=10000 ) | none")
    assert not same("rope | none", "none | rope")
    assert not same("rope", "rope(window=3)")
    assert [scheme.name for scheme in parse("rope | absolute+tisa | rope(window=2)")] == ["rope", "absolute", "tisa"]


def test_embeddings_are_added_once() -> None:
    encoder, tokens = make("absolute+tisa | absolute(window=20)"), torch.randint(4, 20, (2, 9))
    assert [name for name, _ in encoder.positions.named_parameters() if "absolute" in name] == ["sums.0.absolute.weight"]
    plain = make("absolute")
    plain.load_state_dict({name: x for name, x in encoder.state_dict().items() if "positions" not in name}, strict=False)
    plain.positions.absolute.weight.data.copy_(encoder.positions.sums[0].absolute.weight)
    encoder.positions.sums[0].tisa.amplitude.data.zero_()
    torch.testing.assert_close(encoder(tokens).last_hidden_state, plain(tokens).last_hidden_state)


@pytest.mark.parametrize("queries", [9, 3, 1])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [0, 2, 20])
def test_every_backend_sees_the_same_keys(window: int, causal: bool, queries: int) -> None:
    """Keys whose values are unit vectors show what a query sees; row 1 has padding, and row 0 two documents."""
    keys, padding = 9, torch.zeros(2, 9, dtype=torch.bool)
    padding[1, 7:] = True
    documents = torch.tensor([[0] * 4 + [4] * 5, [0] * 9]) if queries == keys else None
    mask = Mask(padding, causal, documents)
    q, k, v = torch.zeros(2, 1, queries, 9), torch.zeros(2, 1, keys, 9), torch.eye(9).expand(2, 1, 9, 9)
    i, j = torch.arange(9)[9 - queries :, None], torch.arange(9)
    visible = ((i - j).abs() <= window) & ~padding[:, None, :]
    visible = visible & (j <= i) if causal else visible
    visible = visible if documents is None else visible & (documents[:, :, None] == documents[:, None, :])
    for name in ("eager", "sdpa", "chunked"):
        found = attend(BACKENDS[name], Terms(window=window), q.double(), k.double(), v.double(), mask)[0][:, 0]
        assert torch.equal(found > 0, visible), name


def test_a_window_of_the_whole_row_is_none() -> None:
    tokens = torch.randint(4, 20, (2, 9))
    torch.testing.assert_close(make("tisa(window=8)")(tokens).last_hidden_state, make("tisa")(tokens).last_hidden_state)
    assert not torch.allclose(make("tisa(window=7)")(tokens).last_hidden_state, make("tisa")(tokens).last_hidden_state)


@pytest.mark.parametrize("positions", ["rope | none(window=2)", "tisa(window=3) | shaw | rope"])
def test_a_decoder_with_a_cache_is_the_whole(positions: str) -> None:
    decoder = make(positions, Decoder, DecoderConfig(**{**vars(CONFIG), "cross_attention": False}))
    tokens, cache = torch.randint(4, 20, (2, 9)), Cache()
    steps = [decoder(tokens[:, : n + 1], cache=cache) for n in range(9)]
    torch.testing.assert_close(torch.cat(steps, dim=1), decoder(tokens))


def test_layers_with_the_same_terms_share_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, bound = make("rope | none(window=2) | none(window=2)"), []
    bind = type(BACKENDS["sdpa"]).bind
    monkeypatch.setattr(
        type(BACKENDS["sdpa"]), "bind", lambda self, terms, *others: (bound.append(terms), bind(self, terms, *others))[1]
    )
    encoder(torch.randint(4, 20, (2, 9)))
    assert [terms.window for terms in bound] == [None, 2, 2]


@pytest.mark.parametrize(
    ("name", "layers", "windows"),
    [
        ("modernbert", 7, [None, 64, 64] * 2 + [None]),
        ("gemma", 7, [511] * 5 + [None, 511]),
        ("rnope", 5, [64, 64, 64, None, 64]),
    ],
)
def test_patterns_by_name(name: str, layers: int, windows: list[int | None]) -> None:
    positions = build(name, dataclasses.replace(SETTINGS, layers=layers))
    terms = [positions.terms(Window(3)).of(layer, torch.zeros(1, 3, 8)) for layer in range(layers)]
    assert [own.window for own in terms] == windows
    assert [bool(own.transforms) for own in terms] == [name != "rnope" or window is not None for window in windows]
    bases = {(part.rope.options.base, part._sum.window) for part in positions.sums if "rope" in dict(part.named_children())}
    assert bases == {"modernbert": {(160000.0, None), (1e4, 64)}, "gemma": {(1e6, None), (1e4, 511)}, "rnope": {(1e4, 64)}}[name]


def test_a_model_with_fewer_layers_has_the_first_sums() -> None:
    encoder = make("none | rope(window=2) | tisa", config=dataclasses.replace(CONFIG, layers=2))
    assert {scheme.name for scheme in encoder.positions.schemes} == {"none", "rope"}
