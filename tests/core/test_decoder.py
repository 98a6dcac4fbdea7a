"""The decoder: step by step as at once, under every scheme that has a causal form."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from attending import parameters
from torch import Tensor

from fairseq_posenc.base.errors import FieldError
from fairseq_posenc.core.attention import BACKENDS, Backend, Mask
from fairseq_posenc.core.families import expressions
from fairseq_posenc.core.schemes import parse
from fairseq_posenc.core.terms import Window
from fairseq_posenc.core.transformer import Cache, Decoder, DecoderConfig, Encoder

PAD = 1
CONFIG = DecoderConfig(vocab_size=20, layers=2, dim=16, ffn_dim=32, heads=2, max_positions=80, dropout=0, attention_dropout=0)
EVERY_TERM = "absolute+shaw+t5"
CAUSAL = sorted(e for e in {*expressions().values(), EVERY_TERM} if all(scheme.has_causal_form for scheme in parse(e)))
ACAUSAL = sorted({*expressions().values()} - {*CAUSAL})
OPTIONS = [
    ("cable | selective_rope+cable", {}),
    ("deberta", {"deberta_projections": "content", "max_relative_position": 5}),
    ("deberta", {"deberta_projections": "model", "deberta_indexing": "original", "max_relative_position": 5}),
    ("rope(fraction=0.5)+key_offset", {"position_log_n": "floor", "log_n_length": 3}),
    ("rope+key_convolution", {"position_log_n": "ssmax"}),
    ("selective_rope+key_convolution", {"position_log_n": "ssmax"}),
    ("rope+relative_logits", {"relative_logits_input": "hidden", "relative_logits_max_distance": 4}),
    ("shaw", {"max_relative_position": 0}),
    ("shaw", {"max_relative_position": 3, "shaw_terms": "keys", "position_share_heads": False}),
    ("shaw", {"max_relative_position": 3, "shaw_terms": "values", "position_share_layers": True}),
]
every_scheme = pytest.mark.parametrize(
    ("positions", "options"), [*((e, {}) for e in CAUSAL), *OPTIONS], ids=lambda value: str(value).replace("'", "")
)


@pytest.fixture(autouse=True)
def _seed() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def make(positions: str = EVERY_TERM, options: dict[str, Any] | None = None, **changes: Any) -> Decoder:
    """In float64, for evaluation, positions away from their initial values."""
    config = dataclasses.replace(CONFIG, positions=positions, position_options=options or {}, **changes)
    decoder = Decoder(config).double().eval()
    with torch.no_grad():
        for parameter in decoder.positions.parameters():
            parameter += 0.5 * torch.randn_like(parameter)
    return decoder


def sequence(n: int, batch: int = 1) -> Tensor:
    return torch.randint(4, 20, (batch, n))


def states(batch: int, n: int = 5) -> tuple[Tensor, Tensor]:
    """An encoder's, of rows of different lengths."""
    padding = torch.arange(n) >= torch.tensor([n - row % 2 for row in range(batch)])[:, None]
    return torch.randn(batch, n, CONFIG.dim, dtype=torch.float64), padding


@pytest.mark.parametrize("backend", parameters("band", "sdpa", "chunked"))
def test_backends_agree_on_a_whole_decoder(backend: Backend) -> None:
    """Forward and backward, over padding on both sides, and step by step."""
    positions = "absolute+t5" if backend.name == "sdpa" else EVERY_TERM
    decoder = make(positions)
    trained = [*decoder.layers.parameters(), *decoder.positions.parameters()]
    tokens, (memory, padding) = sequence(6, batch=2), states(2)
    tokens[1, 4:] = PAD
    results = []
    for name in ("eager", backend.name):
        decoder.attention_backend = name
        found = decoder(tokens, memory, padding)
        gradients = torch.autograd.grad(found[tokens.ne(PAD)].sin().sum(), trained)
        cache = Cache()
        steps = [decoder(tokens[:1, :n], memory[:1], padding[:1], cache) for n in (1, 2, 6)]
        results.append([found[tokens.ne(PAD)], *gradients, torch.cat(steps, dim=1)])
    for expected, got in zip(*results, strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize(("positions", "sampling"), [*((e, None) for e in CAUSAL), ("pope", "cape"), ("transformer_xl", "cape")])
def test_every_backend_gives_the_states_of_an_encoder_with_a_causal_mask(positions: str, sampling: str | None) -> None:
    """At real positions, too, where Transformer-XL's queries and keys have more features, as PoPE's always have."""
    decoder = make(positions, cross_attention=False, position_sampling=sampling).train()
    encoder = Encoder(decoder.config).double().train()
    encoder.load_state_dict(decoder.state_dict(), strict=False)
    encoder.attention_backend, tokens = "eager", sequence(7, batch=2)
    terms = decoder.positions.terms(Window(7, causal=True)).of(0, encoder.embed_tokens(tokens))
    backends = [name for name in ("eager", "sdpa", "chunked") if BACKENDS[name].objection(terms) is None]
    for seed, backend in enumerate(backends):
        decoder.attention_backend = backend
        torch.manual_seed(seed)  # of the positions that are drawn
        found = decoder(tokens)
        torch.manual_seed(seed)
        torch.testing.assert_close(found, encoder(tokens, mask=Mask(causal=True)).last_hidden_state)
    if sampling:
        decoder.attention_backend = "band"
        with pytest.raises(FieldError, match=r"as wide as the values|Triton"):
            decoder(tokens)


@every_scheme
def test_step_by_step_is_as_at_once(positions: str, options: dict[str, Any]) -> None:
    """Rows are reordered, repeated and removed on the way, as beam search does, and several tokens can come in one step."""
    decoder = make(positions, options)
    tokens, (memory, padding) = sequence(9, batch=3), states(3)
    cache, rows = Cache(), torch.arange(3)
    for n, order in ((1, [2, 0, 1]), (4, [0, 0, 2]), (5, [2, 1]), (6, [1, 0]), (9, [0, 1])):
        at_once = decoder(tokens[rows, :n], memory[rows], padding[rows])
        done = cache.length
        found = decoder(tokens[rows, :n], memory[rows], padding[rows], cache)
        torch.testing.assert_close(found, at_once[:, done:])
        cache.select(torch.tensor(order))
        rows = rows[order]


@pytest.mark.parametrize("positions", ["absolute", "shaw", "t5", "rope", "fire", "untied", "deberta"])
def test_steps_beyond_the_terms_that_were_computed_ahead(positions: str) -> None:
    """Terms are computed for 64 positions, and again for more; a table's end is no reason to compute them beyond it."""
    decoder, tokens = make(positions), sequence(CONFIG.max_positions)
    cache, (memory, padding) = Cache(), states(1)
    found = [decoder(tokens[:, :n], memory, padding, cache) for n in (1, 63, 64, 65, 66, 80)]
    torch.testing.assert_close(torch.cat(found, dim=1), decoder(tokens, memory, padding))


@pytest.mark.parametrize("positions", ["absolute", EVERY_TERM, "rope", "untied", "deberta"])
def test_step_by_step_is_as_at_once_in_bfloat16(positions: str) -> None:
    """Both differ from float64 by rounding, and from each other by no more."""
    decoder = make(positions)
    tokens, (memory, padding) = sequence(9, batch=2), states(2)
    exact = decoder(tokens, memory, padding)
    decoder.to(torch.bfloat16)
    memory, cache = memory.to(torch.bfloat16), Cache()
    at_once = decoder(tokens, memory, padding).double()
    steps = torch.cat([decoder(tokens[:, :n], memory, padding, cache) for n in (1, 2, 3, 9)], dim=1).double()
    rounding = (at_once - exact).abs().max()
    assert 0 < rounding < 0.2  # of states with a variance of 1
    assert (steps - exact).abs().max() < 2 * rounding
    assert (steps - at_once).abs().max() < 2 * rounding


@pytest.mark.parametrize("positions", CAUSAL)
def test_no_state_depends_on_later_tokens(positions: str) -> None:
    decoder, tokens, (memory, padding) = make(positions), sequence(7, batch=2), states(2)
    expected = decoder(tokens[:, :4], memory, padding)
    torch.testing.assert_close(decoder(tokens, memory, padding)[:, :4], expected)


@pytest.mark.parametrize("positions", [EVERY_TERM, "rope", "untied"])
def test_padding_on_either_side_changes_nothing(positions: str) -> None:
    decoder, tokens, (memory, padding) = make(positions), sequence(5), states(1)
    expected = decoder(tokens, memory, padding)
    right = torch.nn.functional.pad(tokens, (0, 3), value=PAD)
    found = decoder(torch.cat([right, right.roll(3, 1)]), memory.repeat(2, 1, 1), padding.repeat(2, 1))
    torch.testing.assert_close(found[:1, :5], expected)
    torch.testing.assert_close(found[1:, 3:], expected)


@pytest.mark.parametrize("cross_attention", [True, False])
def test_memory_is_for_all_steps_or_for_none(cross_attention: bool) -> None:
    decoder, tokens, (memory, _) = make(cross_attention=cross_attention), sequence(4), states(1)
    with pytest.raises(FieldError, match="memory"):
        decoder(tokens, None if cross_attention else memory)


def test_padding_of_the_memory_is_not_seen() -> None:
    decoder, tokens = make(), sequence(4)
    memory, _ = states(1)
    padding = torch.tensor([[True, False, False, False, True]])
    torch.testing.assert_close(decoder(tokens, memory, padding), decoder(tokens, memory[:, 1:4]))


def test_cross_attention_has_no_positions() -> None:
    decoder, tokens, (memory, _) = make(), sequence(4), states(1)
    torch.testing.assert_close(decoder(tokens, memory.flip(1)), decoder(tokens, memory))


def test_what_is_known_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are projected and rotated once, the memory's too, and terms are computed once for many steps."""
    decoder, tokens, (memory, padding) = make("rope+deberta"), sequence(6), states(1)
    projected: list[int] = []
    for layer in decoder.layers:
        for attention in (layer.self_attn, layer.encoder_attn):
            attention.k_proj.register_forward_hook(lambda module, args, output: projected.append(output.shape[1]))
    windows, terms = [], decoder.positions.terms
    monkeypatch.setattr(decoder.positions, "terms", lambda window: windows.append(window.keys) or terms(window))
    cache = Cache()
    for n in range(1, 7):
        decoder(tokens[:, :n], memory, padding, cache)
    assert sorted(projected) == [1] * 6 * CONFIG.layers + [5] * CONFIG.layers
    assert windows == [64]


@pytest.mark.parametrize("positions", ["absolute", "rope", "untied", "shaw", "t5"])
def test_a_language_model_has_no_memory(positions: str) -> None:
    decoder = make(positions, cross_attention=False)
    assert not any("encoder_attn" in name for name, _ in decoder.named_parameters())
    tokens, cache = sequence(6, batch=2), Cache()
    steps = [decoder(tokens[:, :n], cache=cache) for n in range(1, 7)]
    torch.testing.assert_close(torch.cat(steps, dim=1), decoder(tokens))


@pytest.mark.parametrize("checkpoint", [False, True])
def test_every_parameter_has_a_gradient(checkpoint: bool) -> None:
    decoder = make(checkpoint_activations=checkpoint, share_output=False, max_positions=16).train()
    memory, padding = states(2)
    decoder.output_projection(decoder(sequence(16, batch=2), memory, padding)).square().sum().backward()
    assert [name for name, parameter in decoder.named_parameters() if parameter.grad is None] == []


@pytest.mark.parametrize("positions", ["absolute", "rope", "untied"])
def test_a_fused_kernel_gets_no_mask_where_it_needs_none(positions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, tokens, (memory, _) = make(positions), sequence(4), states(1)
    masks, sdpa = [], torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(
        torch.nn.functional,
        "scaled_dot_product_attention",
        lambda q, k, v, mask, *rest, **more: masks.append(mask) or sdpa(q, k, v, mask, *rest, **more),
    )
    at_once, cache = decoder(tokens, memory), Cache()
    steps = [decoder(tokens[:, :n], memory, None, cache) for n in range(1, 5)]
    assert len(masks) == 2 * CONFIG.layers * 5
    assert all(mask is None for mask in masks)
    torch.testing.assert_close(torch.cat(steps, dim=1), at_once)
    torch.testing.assert_close(make_eager(decoder)(tokens, memory), at_once)


def make_eager(decoder: Decoder) -> Decoder:
    decoder.attention_backend = BACKENDS["eager"].name
    return decoder


@pytest.mark.parametrize("positions", ["sinusoidal", "absolute"])
def test_torch_compile_takes_a_cache(positions: str) -> None:
    decoder, tokens, cache = make(positions, cross_attention=False), sequence(6), Cache()
    torch._dynamo.reset()
    compiled = torch.compile(decoder, backend="eager")
    parts = [compiled(tokens[:, :n], cache=cache) for n in (2, 3, 6)]
    torch.testing.assert_close(torch.cat(parts, 1), decoder(tokens))


@pytest.mark.parametrize("positions", ACAUSAL)
def test_a_scheme_without_a_causal_form_is_refused(positions: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be a decoder's: (reset|sentence_absolute) is for encoders"):
        make(positions)


def test_a_sequence_beyond_the_table_is_refused_at_once_and_step_by_step() -> None:
    decoder, cache = make("absolute", cross_attention=False, max_positions=6), Cache()
    tokens = sequence(7)
    decoder(tokens[:, :6], cache=cache)
    for then in (cache, None):
        with pytest.raises(ValueError, match="7 tokens is longer than the 6 positions"):
            decoder(tokens, cache=then)


def test_shaws_matrix_is_the_one_of_their_code() -> None:
    """What ``generate_relative_positions_matrix(7, 3)`` of the authors' code returns, and of it the last row when decoding."""
    decoder = make("shaw", {"max_relative_position": 3}, cross_attention=False)
    matrix = [
        [3, 4, 5, 6, 6, 6, 6],
        [2, 3, 4, 5, 6, 6, 6],
        [1, 2, 3, 4, 5, 6, 6],
        [0, 1, 2, 3, 4, 5, 6],
        [0, 0, 1, 2, 3, 4, 5],
        [0, 0, 0, 1, 2, 3, 4],
        [0, 0, 0, 0, 1, 2, 3],
    ]
    whole = decoder.positions.terms(Window(7, causal=True))
    x = torch.zeros(1, 7, CONFIG.dim)
    tables = whole.of(0, x).query_tables + whole.of(0, x).value_tables
    assert [table.index.matrix().tolist() for table in tables] == [[matrix]] * 2
    for keys in range(1, 8):  # a cache's last query
        cut = whole.cut(Window(keys, 1, causal=True)).of(0, x[:, :1])
        assert cut.query_tables[0].index.matrix().tolist() == [[[row[:keys] for row in matrix][keys - 1]]]


@pytest.mark.parametrize("positions", [EVERY_TERM, "rope", "deberta", "fire", "transformer_xl", "untied"])
def test_steps_agree_in_bfloat16(positions: str) -> None:
    decoder, tokens, (memory, padding) = make(positions).bfloat16(), sequence(6, batch=2), states(2)
    memory, cache = memory.bfloat16(), Cache()
    steps = torch.cat([decoder(tokens[:, :n], memory, padding, cache) for n in range(1, 7)], dim=1)
    assert steps.dtype == torch.bfloat16
    torch.testing.assert_close(steps.float(), decoder(tokens, memory, padding).float(), rtol=0.05, atol=0.1)
