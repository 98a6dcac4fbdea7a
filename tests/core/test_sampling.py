"""Positions that are drawn in training."""

import contextlib
import dataclasses
import re

import pytest
import readme
import torch

from fairseq_posenc.base.errors import FieldError
from fairseq_posenc.core.attention import Mask
from fairseq_posenc.core.families import expressions
from fairseq_posenc.core.schemes import REGISTRY, parse
from fairseq_posenc.core.transformer import Decoder, DecoderConfig, Encoder, EncoderConfig, PositionSampling

CONFIG = EncoderConfig(vocab_size=20, layers=2, dim=16, ffn_dim=16, heads=2, max_positions=40, dropout=0.0, attention_dropout=0.0)
TABLES = {
    "absolute",
    "absolute_untied_projection",
    "deberta",
    "m1",
    "m2",
    "m4",
    "m4m",
    "raffel",
    "relative_logits",
    "reset",
    "sentence_absolute",
    "shaw",
}
TABLES |= {"untied", *(name for name in REGISTRY if name.startswith("synthesizer"))}
"""What takes whole numbers only."""
FUNCTIONS = REGISTRY.keys() - TABLES
BY_TOKENS = {"none", "cable", "log_n", "selective_rope", "key_offset", "key_convolution"}
"""What depends on no positions, but on which tokens are between, or beside."""


def make(positions, sampling, kind=Encoder, config=CONFIG, **changes):
    torch.manual_seed(0)
    model = kind(dataclasses.replace(config, positions=positions, position_sampling=sampling, **changes)).double()
    with torch.no_grad():
        for parameter in model.positions.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model


def draws(text, n, count=400):
    sampling, generator = PositionSampling.parse(text, None), torch.Generator().manual_seed(0)
    return torch.cat([sampling.draw(torch.arange(n)[None], None, generator) for _ in range(count)])


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
        ("random:0", None, "above 0"),
        ("uniform:0", None, "above 0"),
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
    refusal = pytest.raises(FieldError, match="whole numbers only") if real and {*names} & TABLES else contextlib.nullcontext()
    with refusal:
        encoder = make(positions, sampling)
    if real and {*names} & TABLES:
        return
    tokens = torch.randint(4, 20, (2, 9))
    tokens[1, 6:] = 1
    torch.manual_seed(5)
    first = encoder(tokens).last_hidden_state
    first.sum().backward()
    again, other = encoder(tokens).last_hidden_state, encoder(tokens).last_hidden_state
    assert first.isfinite().all()
    order = [scheme for scheme in names if scheme not in BY_TOKENS and not scheme.startswith("synthesizer")]
    invariant = sampling == "shift:20" and all(
        REGISTRY[scheme].translation_invariant or scheme in ("reset", "sentence_absolute") for scheme in order
    )
    dense = positions in {*BY_TOKENS, "synthesizer_dense", "synthesizer_factorized_dense"}
    if not dense and not (invariant or positions.startswith("fire")):
        assert not torch.equal(again, other)
    for seed in (6, 5):
        torch.manual_seed(seed)
        repeated = encoder(tokens).last_hidden_state
    assert torch.equal(repeated, first)
    encoder.eval()
    torch.testing.assert_close(encoder(tokens).last_hidden_state[1:, :6], encoder(tokens[1:, :6]).last_hidden_state)


def test_the_documentation_lists_what_takes_whole_numbers_only():
    paragraph = next(
        part for part in (readme.ROOT / "docs" / "length.md").read_text("utf-8").split("\n\n") if "reject, since" in part
    )
    # `reset` has rows in the tables of others, and two numbers beside their biases, which take any positions.
    assert {*re.findall(r"`(\w+)`", paragraph)} - {"cape", "uniform"} == TABLES - {"reset"}


@pytest.fixture
def drawn(monkeypatch):
    """The positions that are drawn."""
    listed, draw = [], PositionSampling.draw

    def drawing(*args):
        listed.append(draw(*args).tolist())
        return torch.tensor(listed[-1])

    monkeypatch.setattr(PositionSampling, "draw", drawing)
    return listed


def updates_by_fairseq(model, seed, updates, batches=2):
    """As its trainer seeds PyTorch and tells the model what it is at."""
    for update in updates:
        torch.manual_seed(seed + update)
        for _ in range(batches):
            model.set_num_updates(update)
            model(torch.randint(4, 20, (2, 9)))


def test_the_draws_do_not_depend_on_the_scheme_or_on_dropout(drawn):
    for positions, dropout in (("absolute", 0.0), ("shaw", 0.5), ("rope", 0.5)):
        updates_by_fairseq(make(positions, "random:40", dropout=dropout), 1, range(2))
    assert drawn[:4] == drawn[4:8] == drawn[8:]
    assert len({str(positions) for positions in drawn[:4]}) == 4


def test_seeds_of_fairseq_share_no_draws_and_a_run_that_continues_draws_the_same(drawn):
    model = make("none", "uniform:40")
    for seed in (1, 2, 3):
        updates_by_fairseq(model, seed, range(10))
    assert len({str(positions) for positions in drawn}) == 60
    updates_by_fairseq(make("none", "uniform:40"), 2, range(5, 10))
    assert drawn[60:] == drawn[30:40]


@pytest.mark.parametrize("kind", [Encoder, Decoder])
def test_pytorchs_seed_decides_the_draws_elsewhere(drawn, kind):
    config = CONFIG if kind is Encoder else DecoderConfig(**{**vars(CONFIG), "cross_attention": False})
    model, tokens = make("none", "random:40", kind, config, position_evaluation="plain"), torch.randint(4, 20, (2, 9))
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        model(tokens)
        model(tokens)
    assert drawn[:2] == drawn[2:4]
    assert len({str(positions) for positions in drawn}) == 4


def test_evaluation_is_even_or_plain():
    encoder, tokens = make("absolute", "random:40").eval(), torch.randint(4, 20, (1, 9))
    even = encoder(tokens).last_hidden_state
    torch.testing.assert_close(even, encoder(tokens, position_ids=torch.arange(9)[None] * 40 // 9).last_hidden_state)
    plain = make("absolute", "random:40", position_evaluation="plain").eval()
    torch.testing.assert_close(plain(tokens).last_hidden_state, make("absolute", None).eval()(tokens).last_hidden_state)
    with pytest.raises(FieldError, match="41 tokens"):
        make("rope", "random:40").eval()(torch.randint(4, 20, (1, 41)))
    assert make("rope", "random:40").max_length == 40
    assert make("rope", "random:40", position_evaluation="plain").max_length is None


@pytest.mark.parametrize(
    ("positions", "sampling"),
    [
        ("untied+reset", "random:40"),
        ("absolute", "random:40"),
        ("rope+shaw", None),
        ("none | liere+m4m", None),
        ("liere+rope(layout=half)", None),
    ],
)
def test_documents_have_the_positions_of_rows_of_their_own(positions, sampling):
    encoder, tokens = make(positions, sampling).eval(), torch.randint(4, 20, (1, 9))
    packed = encoder(tokens, mask=Mask(documents=torch.tensor([[0] * 4 + [4] * 5]))).last_hidden_state
    for part in (slice(4), slice(4, None)):
        torch.testing.assert_close(packed[:, part], encoder(tokens[:, part]).last_hidden_state)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_real_positions_may_be_negative(name):
    encoder, tokens = make(name, "cape").eval(), torch.randint(4, 20, (1, 9))
    ids = torch.tensor([[0.5, 1.25, 2, 3.5, 4.75, 5, 6.5, 7.25, 8]])
    first, moved = (encoder(tokens, position_ids=positions).last_hidden_state for positions in (ids, ids - 4.75))
    assert moved.isfinite().all()
    if REGISTRY[name].translation_invariant:
        torch.testing.assert_close(moved, first)
    with pytest.raises(FieldError, match="one of them is -1"):
        encoder(tokens, position_ids=torch.arange(9)[None] - 1)
    with pytest.raises(FieldError, match="below 1,048,576, and one of them is 5,000,000,008"):
        encoder(tokens, position_ids=torch.arange(9)[None] + 5 * 10**9)


@pytest.mark.parametrize(("sampling", "draw"), [("random:40", torch.randperm), ("uniform:40", torch.rand)])
def test_each_sequence_has_the_first_of_the_draw_in_order(sampling, draw):
    places = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4], [*range(9)], [*range(9)]])
    padding = torch.arange(9) >= torch.tensor([[9], [9], [5]])
    found = PositionSampling.parse(sampling, None).draw(places, padding, torch.Generator().manual_seed(3))
    generator = torch.Generator().manual_seed(3)
    drawn = (
        draw(40, generator=generator)[:9]
        if sampling == "random:40"
        else 40 * draw(11, generator=generator, dtype=torch.float64)[:9]
    )
    first, second, whole = (drawn[:m].sort().values for m in (4, 5, 9))
    assert not torch.equal(second, whole[:5])
    assert torch.equal(found[0], torch.cat([first, second]))
    assert torch.equal(found[1], whole)
    assert torch.equal(found[2], torch.cat([second, whole[-1:].expand(4)]))


@pytest.mark.parametrize("positions", ["untied+reset", "absolute", "rope"])
def test_what_else_a_row_holds_does_not_change_the_positions_in_training(positions):
    def train(*args, **kwargs):
        encoder = make(positions, "random:40")
        torch.manual_seed(5)
        return encoder(*args, **kwargs).last_hidden_state

    tokens = torch.randint(4, 20, (2, 9))
    packed = train(tokens[:1], mask=Mask(documents=torch.tensor([[0] * 4 + [4] * 5])))
    for part in (slice(4), slice(4, None)):
        torch.testing.assert_close(packed[:, part], train(tokens[:1, part]))
    tokens[1, 6:] = 1
    padded = train(tokens)
    torch.testing.assert_close(padded[:1], train(tokens[:1]))
    torch.testing.assert_close(padded[1:, :6], train(tokens[1:, :6]))


@pytest.mark.parametrize("training", [True, False])
def test_rows_may_have_more_tokens_than_there_are_positions(training):
    encoder, tokens = make("rope", "random:6").train(training), torch.randint(4, 20, (1, 9))
    with pytest.raises(FieldError, match="9 tokens"):
        encoder(tokens)
    with pytest.raises(FieldError, match="7 tokens"):
        encoder(tokens, mask=Mask(documents=torch.tensor([[0] * 2 + [2] * 7])))
    assert encoder(tokens, mask=Mask(documents=torch.tensor([[0] * 4 + [4] * 5]))).last_hidden_state.isfinite().all()
    tokens[:, 6:] = 1
    assert encoder(tokens).last_hidden_state.isfinite().all()


def test_decoders_sample_in_training_and_are_plain_afterwards():
    config = DecoderConfig(**{**vars(CONFIG), "cross_attention": False})
    with pytest.raises(FieldError, match="a decoder does not know how many follow"):
        make("absolute", "random:40", Decoder, config)
    decoder = make("absolute", "random:40", Decoder, config, position_evaluation="plain")
    tokens = torch.randint(4, 20, (1, 9))
    assert not torch.allclose(decoder(tokens), decoder(tokens))
    torch.testing.assert_close(decoder.eval()(tokens), make("absolute", None, Decoder, config).eval()(tokens))
