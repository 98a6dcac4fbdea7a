"""Positions that are drawn in training."""

import dataclasses

import pytest
import torch

from fairseq_posenc.attention import Mask
from fairseq_posenc.errors import FieldError
from fairseq_posenc.families import expressions
from fairseq_posenc.schemes import REGISTRY, parse
from fairseq_posenc.transformer import Decoder, DecoderConfig, Encoder, EncoderConfig, PositionSampling

CONFIG = EncoderConfig(vocab_size=20, layers=2, dim=16, ffn_dim=16, heads=2, max_positions=40, dropout=0.0, attention_dropout=0.0)
FUNCTIONS = {"none", "sinusoidal", "tisa", "alibi", "kerple", "fire", "rope", "t5", "cable", "liere", "log_cpb", "pope"}
FUNCTIONS |= {"floater", "transformer_xl"}
"""What takes real numbers."""


def make(positions, sampling, kind=Encoder, config=CONFIG, **changes):
    torch.manual_seed(0)
    model = kind(dataclasses.replace(config, positions=positions, position_sampling=sampling, **changes)).double()
    with torch.no_grad():
        for parameter in model.positions.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model


def draws(text, n, count=400):
    sampling, generator = PositionSampling.parse(text, None), torch.Generator().manual_seed(0)
    return torch.stack([sampling.draw(n, generator) for _ in range(count)])


def test_random_positions_are_a_subset_in_order():
    found = draws("random:12", 5)
    assert (found.diff(dim=1) > 0).all()
    assert set(found.flatten().tolist()) == set(range(12))
    assert found.double().mean().item() == pytest.approx(5.5, abs=0.3)
    assert draws("random:5", 5).tolist() == [list(range(5))] * 400


def test_a_shift_moves_all():
    found = draws("shift:3", 5)
    assert (found.diff(dim=1) == 1).all()
    assert set(found[:, 0].tolist()) == {0, 1, 2, 3}


def test_cape_moves_jitters_and_scales():
    found = draws("cape:5:0.5:1.2", 6, 4000)
    assert (found.diff(dim=1) > 0).all()
    assert found[:, 0].min() < -4
    distances = found[:, -1] - found[:, 0]
    assert distances.max().item() == pytest.approx(6 * 1.2, abs=0.4)
    assert distances.min().item() == pytest.approx(4 / 1.2, abs=0.4)
    assert distances.log().mean().item() == pytest.approx(torch.tensor(5.0).log().item(), abs=0.02)
    assert PositionSampling.parse("cape", None).numbers == (5.0, 0.5, 1.03)


def test_uniform_positions_are_in_order():
    found = draws("uniform:10", 6)
    assert (found.diff(dim=1) >= 0).all()
    assert found.mean().item() == pytest.approx(5, abs=0.2)
    assert found.max() < 10


@pytest.mark.parametrize(
    ("sampling", "evaluation", "message"),
    [
        ("random", None, "give random:L"),
        ("random:1.5", None, "whole number"),
        ("random:x", None, "give random:L"),
        ("cape:5:0.7:1", None, "at most 0.5"),
        ("steps:3", None, "give random:L"),
        ("shift:3", "even", "means nothing to `position_sampling` shift:3"),
        (None, "plain", "means nothing without `position_sampling`"),
        ("random:30", "odd", "one of even, plain"),
        ("random:30", None, None),
        ("random:41", None, "is longer than the 40 positions"),
    ],
)
def test_what_has_no_meaning_is_refused(sampling, evaluation, message):
    if message is None:
        make("absolute", sampling)
        return
    with pytest.raises(FieldError) as error:
        make("absolute", sampling, position_evaluation=evaluation)
    assert message in error.value.args[0]


@pytest.mark.parametrize("name", expressions())
@pytest.mark.parametrize("sampling", ["random:40", "shift:20", "cape", "uniform:40"])
def test_every_scheme_trains_and_is_evaluated(name, sampling):
    positions = expressions()[name]
    real = sampling in ("cape", "uniform:40")
    names = [scheme.name for scheme in parse(positions)]
    if real and not {*names} <= FUNCTIONS:
        with pytest.raises(FieldError, match="whole numbers only"):
            make(positions, sampling)
        return
    encoder, tokens = make(positions, sampling), torch.randint(4, 20, (2, 9))
    tokens[1, 6:] = 1
    torch.manual_seed(5)
    first = encoder(tokens).last
    first.sum().backward()
    again, other = encoder(tokens).last, encoder(tokens).last
    assert first.isfinite().all()
    order = [scheme for scheme in names if scheme not in ("none", "cable") and not scheme.startswith("synthesizer")]
    invariant = sampling == "shift:20" and all(
        REGISTRY[scheme].translation_invariant or scheme in ("reset", "sentence_absolute") for scheme in order
    )
    dense = positions in ("none", "cable", "synthesizer_dense", "synthesizer_factorized_dense")
    if not dense and not (invariant or positions.startswith("fire")):
        assert not torch.equal(again, other)
    for seed in (6, 5):
        torch.manual_seed(seed)
        repeated = encoder(tokens).last
    assert torch.equal(repeated, first)
    encoder.eval()
    torch.testing.assert_close(encoder(tokens).last[1:, :6], encoder(tokens[1:, :6]).last)


def test_the_draws_do_not_depend_on_the_scheme_or_on_dropout(monkeypatch):
    drawn, draw = [], PositionSampling.draw

    def listed(sampling, n, generator):
        drawn.append(draw(sampling, n, generator).tolist())
        return torch.tensor(drawn[-1])

    monkeypatch.setattr(PositionSampling, "draw", listed)
    for positions, dropout in (("absolute", 0.0), ("shaw", 0.5), ("rope", 0.5)):
        model = make(positions, "random:40", dropout=dropout)
        for update in (1, 2):
            torch.manual_seed(update)
            for _ in range(2):  # two batches for one update
                model(torch.randint(4, 20, (2, 9)))
    assert drawn[:4] == drawn[4:8] == drawn[8:]
    assert len({str(positions) for positions in drawn[:4]}) == 4


def test_evaluation_is_even_or_plain():
    encoder, tokens = make("absolute", "random:40").eval(), torch.randint(4, 20, (1, 9))
    even = encoder(tokens).last
    torch.testing.assert_close(even, encoder(tokens, position_ids=torch.arange(9)[None] * 40 // 9).last)
    plain = make("absolute", "random:40", position_evaluation="plain").eval()
    torch.testing.assert_close(plain(tokens).last, make("absolute", None).eval()(tokens).last)
    with pytest.raises(FieldError, match="41 tokens"):
        make("rope", "random:40").eval()(torch.randint(4, 20, (1, 41)))
    assert make("rope", "random:40").max_length == 40
    assert make("rope", "random:40", position_evaluation="plain").max_length is None


@pytest.mark.parametrize("positions", ["untied+reset", "absolute"])
def test_documents_are_spread_by_their_own_number_of_tokens(positions):
    encoder, tokens = make(positions, "random:40").eval(), torch.randint(4, 20, (1, 9))
    packed = encoder(tokens, mask=Mask(documents=torch.tensor([[0] * 4 + [4] * 5]))).last
    for part in (slice(4), slice(4, None)):
        torch.testing.assert_close(packed[:, part], encoder(tokens[:, part]).last)


def test_decoders_sample_in_training_and_are_plain_afterwards():
    config = DecoderConfig(**{**vars(CONFIG), "cross_attention": False})
    with pytest.raises(FieldError, match="a decoder does not know how many follow"):
        make("absolute", "random:40", Decoder, config)
    decoder = make("absolute", "random:40", Decoder, config, position_evaluation="plain")
    tokens = torch.randint(4, 20, (1, 9))
    assert not torch.allclose(decoder(tokens), decoder(tokens))
    torch.testing.assert_close(decoder.eval()(tokens), make("absolute", None, Decoder, config).eval()(tokens))
