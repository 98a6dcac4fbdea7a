"""The encoder around positions and attention."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairseq_posenc.base.errors import FieldError
from fairseq_posenc.core.attention import BACKENDS, Call, Mask
from fairseq_posenc.core.families import expressions
from fairseq_posenc.core.terms import Terms, Window
from fairseq_posenc.core.transformer import Decoder, DecoderConfig, Encoder, EncoderConfig

PAD = 1
CONFIG = EncoderConfig(vocab_size=20, layers=3, dim=16, ffn_dim=32, heads=2, max_positions=16)
EVERY_TERM = "absolute+shaw+t5"  # embeddings, vectors, values and biases
MODERN = dict(gated_ffn=True, normalize_before=True, first_norm=False, linear_bias=False, norm_bias=False)
ORDERS: dict[str, dict[str, Any]] = {"post-norm": {}, "pre-norm": {"normalize_before": True}, "modernbert": MODERN}
every_order = pytest.mark.parametrize("order", ORDERS)


@pytest.fixture(autouse=True)
def _seed() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def make(positions: str = EVERY_TERM, **changes: Any) -> Encoder:
    """In float64 and without dropout, positions away from their initial values."""
    config = dataclasses.replace(CONFIG, positions=positions, dropout=0.0, attention_dropout=0.0, **changes)
    encoder = Encoder(config).double()
    with torch.no_grad():
        for parameter in encoder.positions.parameters():
            parameter += 0.5 * torch.randn_like(parameter)
    return encoder


def sequence(n: int, batch: int = 1) -> Tensor:
    return torch.randint(4, 20, (batch, n))


@every_order
@pytest.mark.parametrize("positions", [EVERY_TERM, "sentence_absolute", "untied+t5+reset", "rope", "synthesizer_dense"])
def test_padding_changes_nothing(positions: str, order: str) -> None:
    encoder = make(positions, **ORDERS[order])
    short, long = sequence(5), sequence(9)
    batch = torch.cat([torch.cat([short, torch.full((1, 4), PAD)], dim=1), long])
    together = encoder(batch).last_hidden_state
    torch.testing.assert_close(together[:1, :5], encoder(short).last_hidden_state)
    torch.testing.assert_close(together[1:], encoder(long).last_hidden_state)


KEYS, GROWING = "rope(fraction=0.5)+key_offset", {"position_log_n": "floor", "log_n_beta": 0.8, "log_n_length": 2}


@pytest.mark.parametrize(
    ("positions", "options"),
    [
        (KEYS, {}),
        (f"rope+key_convolution | {KEYS}(window=1)", {"key_convolution_width": 3}),
        ("alibi(window=2) | rope+log_n", {"position_log_n": "ssmax"}),
        ("rope(window=2) | t5 | relative_logits", GROWING),
        ("selective_rope", {"position_log_n": "ssmax"}),
    ],
)
@pytest.mark.parametrize("backend", ["eager", "sdpa", "chunked"])
def test_a_row_of_documents_is_a_padded_batch(positions: str, options: dict[str, Any], backend: str) -> None:
    """Neither neighbours of keys nor their number go beyond a document or reach its padding, and neither do gradients."""
    encoder, lengths, size = make(positions, position_options=options), (5, 1, 3), 9
    encoder.attention_backend = "auto" if backend == "sdpa" and "relative_logits" in positions else backend
    documents = [sequence(length) for length in lengths]
    batch = torch.cat([F.pad(document, (0, size - document.shape[1]), value=PAD) for document in documents])
    row = torch.cat([*documents, torch.full((1, 4), PAD)], dim=1)
    starts = torch.tensor([[0] * 5 + [5] + [6] * 7])
    found = encoder(row, mask=Mask(row == PAD, documents=starts)).last_hidden_state[row != PAD]
    expected = encoder(batch).last_hidden_state[batch != PAD]
    torch.testing.assert_close(found, expected)
    cotangent, parameters = torch.randn_like(found), [*encoder.layers.parameters(), *encoder.positions.parameters()]
    gradients = [torch.autograd.grad((z * cotangent).sum(), parameters) for z in (found, expected)]
    torch.testing.assert_close(*gradients)


def test_padding_of_a_whole_sequence_is_finite_and_has_no_gradient() -> None:
    encoder = make()
    batch = torch.cat([sequence(6), torch.full((1, 6), PAD)])
    last = encoder(batch).last_hidden_state
    assert last.isfinite().all()
    last[1].sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name
    assert encoder.positions.shaw.keys.grad.eq(0).all()


@every_order
def test_recomputed_activations_give_the_same_gradients(order: str) -> None:
    tokens = sequence(7, batch=2)
    gradients = []
    for checkpoint in (False, True):
        torch.manual_seed(1)
        encoder = make(checkpoint_activations=checkpoint, **ORDERS[order])
        encoder.train()(tokens).last_hidden_state.square().sum().backward()
        gradients.append({name: parameter.grad for name, parameter in encoder.named_parameters()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, msg=name)


@pytest.mark.parametrize(("positions", "distinct"), [("none", 1), ("t5", 1), ("absolute+t5", 1), ("shaw", 3), ("t5+shaw", 3)])
def test_layers_with_equal_terms_share_what_a_backend_binds(
    positions: str, distinct: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, bound = make(positions, attention_backend="eager"), []
    eager = BACKENDS["eager"]
    bind = eager.bind
    monkeypatch.setattr(eager, "bind", lambda terms, *rest: bound.append(terms) or bind(terms, *rest))
    encoder(sequence(5))
    assert len(bound) == distinct


def test_hidden_states_and_attentions() -> None:
    encoder, tokens = make(), sequence(6, batch=2)
    plain = encoder(tokens)
    assert plain.hidden_states == plain.attentions == ()
    output = encoder(tokens, output_hidden_states=True, output_attentions=True)
    torch.testing.assert_close(output.last_hidden_state, plain.last_hidden_state)
    assert [state.shape for state in output.hidden_states] == [(2, 6, 16)] * 4
    torch.testing.assert_close(output.hidden_states[-1], plain.last_hidden_state)
    for p in output.attentions:
        assert p.shape == (2, 2, 6, 6)
        torch.testing.assert_close(p.sum(-1), torch.ones(2, 2, 6, dtype=p.dtype))


def test_attentions_of_a_fused_backend_come_from_the_eager_one() -> None:
    encoder, tokens = make("t5", attention_backend="sdpa"), sequence(6)
    output = encoder(tokens, output_attentions=True)
    assert len(output.attentions) == 3
    torch.testing.assert_close(output.last_hidden_state, encoder(tokens).last_hidden_state)


@pytest.mark.parametrize("groups", [1, 2])
def test_layers_that_share_weights_are_layers_with_the_same_weights(groups: int) -> None:
    """Consecutive ones, with positions of their own; and each set's gradient is the sum of its layers'."""
    shared, alone = make("shaw+tisa", layers=4, layer_groups=groups), make("shaw+tisa", layers=4)
    assert len(shared.layers) == groups
    state = {name: value for name, value in shared.state_dict().items() if not name.startswith("layers.")}
    for i in range(4):
        state |= {f"layers.{i}.{name}": value for name, value in shared.layers[i * groups // 4].state_dict().items()}
    alone.load_state_dict(state)
    tokens = sequence(7, batch=2)
    outputs = [encoder(tokens, output_hidden_states=True, output_attentions=True) for encoder in (shared, alone)]
    torch.testing.assert_close(outputs[0].hidden_states, outputs[1].hidden_states)
    torch.testing.assert_close(outputs[0].attentions, outputs[1].attentions)
    for output in outputs:
        output.last_hidden_state.square().sum().backward()
    torch.testing.assert_close(shared.positions.shaw.keys.grad, alone.positions.shaw.keys.grad)
    for i, layer in enumerate(shared.layers):
        group = list(alone.layers)[i * 4 // groups : (i + 1) * 4 // groups]
        for name, parameter in layer.named_parameters():
            torch.testing.assert_close(parameter.grad, sum(each.get_parameter(name).grad for each in group), msg=name)


@pytest.mark.parametrize("positions", ["absolute", "sinusoidal", "sentence_absolute"])
def test_narrow_embeddings_meet_their_positions_before_the_projection(positions: str) -> None:
    encoder, tokens = make(positions, embed_dim=6), sequence(9, batch=2)
    tokens[1, 5:] = PAD
    assert encoder.embed_tokens.weight.shape == (20, 6)
    addition = encoder.positions.embed(Window(9), tokens)
    narrow = nn.functional.layer_norm(
        encoder.embed_tokens(tokens) + addition, (6,), encoder.layernorm_embedding.weight, encoder.layernorm_embedding.bias, 1e-5
    )
    expected = narrow @ encoder.project_in_dim.weight.T + encoder.project_in_dim.bias
    found = encoder(tokens, output_hidden_states=True)
    torch.testing.assert_close(found.hidden_states[0][tokens != PAD], expected[tokens != PAD])
    if positions != "sentence_absolute":  # which needs the tokens
        again = encoder(None, padding=tokens == PAD, inputs_embeds=encoder.embed_tokens(tokens))
        torch.testing.assert_close(again.last_hidden_state, found.last_hidden_state)


@pytest.mark.parametrize("positions", sorted({*expressions().values(), EVERY_TERM, "sinusoidal+rope"}))
def test_positions_count_the_tokens_wherever_the_padding_stands(positions: str) -> None:
    encoder, tokens = make(positions), sequence(6)
    right = torch.nn.functional.pad(tokens, (0, 3), value=PAD)
    left, around = right.roll(3, 1), right.roll(1, 1)
    expected = encoder(right, output_hidden_states=True, output_attentions=True)
    for given, start in ((left, 3), (around, 1)):
        found = encoder(torch.cat([given, right]), output_hidden_states=True, output_attentions=True)
        here = slice(start, start + 6)
        torch.testing.assert_close(found.last_hidden_state[:1, here], expected.last_hidden_state[:, :6])
        torch.testing.assert_close(found.last_hidden_state[1:, :6], expected.last_hidden_state[:, :6])
        for state, own in zip(found.hidden_states, expected.hidden_states, strict=True):
            torch.testing.assert_close(state[:1, here], own[:, :6])
        for p, own in zip(found.attentions, expected.attentions, strict=True):
            torch.testing.assert_close(p[:1, :, here, here], own[:, :, :6, :6])


def test_embeddings_in_place_of_tokens() -> None:
    encoder, tokens = make(), sequence(6, batch=2)
    tokens[0, 4:] = PAD
    found = encoder(None, padding=tokens == PAD, inputs_embeds=encoder.embed_tokens(tokens)).last_hidden_state
    torch.testing.assert_close(found, encoder(tokens).last_hidden_state)


def test_positions_count_tokens_and_not_padding() -> None:
    """fairseq pads on the left at times; a token's position must not depend on it."""
    encoder, tokens = make("absolute"), sequence(5)
    left = torch.cat([torch.full((1, 3), PAD), tokens], dim=1)
    torch.testing.assert_close(encoder(left).last_hidden_state[:, 3:], encoder(tokens).last_hidden_state)


@pytest.mark.parametrize("positions", ["shaw", "t5", "tisa", "rope", "alibi", "kerple", "fire", "transformer_xl", "sinusoidal"])
def test_an_inductive_encoder_runs_at_any_length(positions: str) -> None:
    assert make(positions, max_positions=64)(sequence(256)).last_hidden_state.isfinite().all()


def test_a_sequence_beyond_the_table_names_the_flag() -> None:
    with pytest.raises(ValueError, match=r"17 tokens.*max_positions"):
        make("absolute+tisa")(sequence(17))


@pytest.mark.parametrize("positions", ["absolute+tisa", "m4", "synthesizer_random", "untied+t5+reset"])
@pytest.mark.parametrize("options", [{}, {"mask_decoder_steps": 2}], ids=str)
def test_a_row_beyond_the_table_whose_documents_fit(positions: str, options: dict[str, Any]) -> None:
    """As it is where batches are flattened or padded to a multiple: positions begin again, and padding needs none."""
    encoder, parts = make(positions, **options), [sequence(n) for n in (15, 9, 16)]
    encoder.eval()
    ends = torch.tensor([15, 24, 40])
    documents = torch.repeat_interleave(torch.tensor([0, 15, 24]), ends.diff(prepend=torch.zeros(1, dtype=torch.long)))[None]
    row = torch.cat([*parts, torch.full((1, 3), PAD)], 1)
    mask = Mask(row == PAD, documents=F.pad(documents, (0, 3), value=40))
    together = encoder(row, mask=mask, decode_masks=True).last_hidden_state
    padded = encoder(torch.cat([parts[1], torch.full((1, 11), PAD)], 1), decode_masks=True).last_hidden_state
    for part, states in zip(parts, together.split([15, 9, 16, 3], 1), strict=False):
        torch.testing.assert_close(states, encoder(part, decode_masks=True).last_hidden_state)
    torch.testing.assert_close(padded[:, :9], together[:, 15:24])
    with pytest.raises(FieldError, match=r"17 positions"):
        encoder(torch.cat([sequence(17), torch.full((1, 3), PAD)], 1), decode_masks=True)


def test_offloaded_parameters_of_positions_are_an_error() -> None:
    encoder = make("t5").double()
    encoder.positions.to("meta")
    with pytest.raises(FieldError, match="offloaded"):
        encoder(sequence(5))


def test_embeddings_that_are_given_keep_their_weights() -> None:
    words = nn.Embedding(20, 16, PAD)
    before = words.weight.clone()
    encoder, decoder = Encoder(CONFIG, words), Decoder(DecoderConfig(**vars(CONFIG)), words)
    assert encoder.embed_tokens is decoder.embed_tokens is words
    torch.testing.assert_close(words.weight, before, rtol=0, atol=0)


@pytest.mark.parametrize("positions", ["shaw", "untied", "m4m", "synthesizer_dense"])
def test_shapes_without_data(positions: str) -> None:
    encoder = make(positions).to("meta")
    mask = Mask(torch.zeros(2, 5, dtype=torch.bool, device="meta"))
    assert encoder(sequence(5, 2).to("meta"), mask=mask).last_hidden_state.shape == (2, 5, 16)


def test_parameters_are_all_that_a_checkpoint_needs() -> None:
    encoder, tokens = make(), sequence(6)
    expected = encoder(tokens).last_hidden_state
    torch.manual_seed(2)
    other = make()
    assert not torch.allclose(other(tokens).last_hidden_state, expected)
    other.load_state_dict(encoder.state_dict())
    torch.testing.assert_close(other(tokens).last_hidden_state, expected, rtol=0, atol=0)
    assert set(encoder.state_dict()) == {name for name, _ in encoder.named_parameters()}


def test_every_parameter_has_a_gradient() -> None:
    """What no loss can reach is a dead parameter: it costs memory, and DDP stops at it."""
    encoder = make()
    encoder(sequence(16)).last_hidden_state.square().sum().backward()
    assert [name for name, parameter in encoder.named_parameters() if parameter.grad is None] == []


@pytest.mark.parametrize("positions", ["cable", "synthesizer_dense"])
def test_terms_of_the_input_are_those_of_the_normalised_input(positions: str) -> None:
    encoder, x = make(positions, normalize_before=True, layernorm_embedding=False), torch.randn(1, 5, 16).double()
    first, second = (encoder(None, inputs_embeds=scale * x, output_attentions=True).attentions[0] for scale in (1, 10))
    torch.testing.assert_close(first, second, rtol=0, atol=1e-4)


def test_layerdrop_leaves_layers_out_of_training_only() -> None:
    encoder, tokens = make("t5", layerdrop=1.0), sequence(6)
    assert len(encoder.train()(tokens, output_hidden_states=True).hidden_states) == 1
    assert len(encoder.eval()(tokens, output_hidden_states=True).hidden_states) == 4


def test_a_config_at_its_bounds() -> None:
    config = dataclasses.replace(CONFIG, layers=1, heads=16, dropout=0, attention_dropout=1, separator_idx=None)
    assert Encoder(config)(sequence(5)).last_hidden_state.isfinite().all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"activation": "swoosh"}, "activation must be one of gelu, .*, got 'swoosh'"),
        ({"layers": 0}, "layers must be at least 1, got 0"),
        ({"layers": -1}, "layers must be at least 1, got -1"),
        ({"layers": 10**9}, "layers must be at most 10000"),
        ({"layers": "3"}, "layers must be a whole number, got '3'"),
        ({"layers": True}, "layers must be a whole number, got True"),
        ({"layers": None}, "layers must be a whole number, got None"),
        ({"dim": 0}, "dim must be at least 1"),
        ({"dim": 16.0}, "dim must be a whole number, got 16.0"),
        ({"ffn_dim": 0}, "ffn_dim must be at least 1"),
        ({"heads": 0}, "heads must be at least 1"),
        ({"max_positions": 0}, "max_positions must be at least 1"),
        ({"max_positions": 10**12}, "max_positions must be at most 1048576"),
        ({"vocab_size": 0}, "vocab_size must be at least 1"),
        ({"vocab_size": 10**12}, "vocab_size must be at most 16777216"),
        ({"padding_idx": 20}, "padding_idx must be below vocab_size 20, got 20"),
        ({"separator_idx": -1}, "separator_idx must be at least 0"),
        ({"dropout": -0.1}, "dropout must be at least 0, got -0.1"),
        ({"dropout": float("nan")}, "dropout must be a number, and finite, got nan"),
        ({"attention_dropout": 1.1}, "attention_dropout must be at most 1, got 1.1"),
        ({"activation_dropout": float("-inf")}, "activation_dropout must be a number, and finite, got -inf"),
        ({"layerdrop": 2}, "layerdrop must be at most 1, got 2"),
        ({"layer_norm_eps": 0}, "layer_norm_eps must be at least 1e-20, got 0"),
        ({"layernorm_embedding": "yes"}, "layernorm_embedding must be true or false, got 'yes'"),
        ({"positions": None}, "positions must be a string, got None"),
        ({"position_options": []}, "position_options must be names with values"),
        ({"layers": 4, "layer_groups": 3}, "layers 4 do not divide into layer_groups 3"),
        ({"layer_groups": 4}, "layers 3 do not divide into layer_groups 4"),
        ({"embed_dim": -1}, "embed_dim must be at least 0"),
        ({"heads": 3}, "dim 16 does not divide into heads 3"),
        ({"attention_backend": "flash"}, "attention_backend is one of"),
        ({"attention_backend": "sdpa", "positions": "m4"}, "attention_backend sdpa cannot run these positions"),
        ({"positions": "tiza"}, "unknown positional encoding 'tiza'"),
        ({"position_options": {"tisa_kernels": 0}}, "tisa_kernels must be at least 1"),
    ],
)
def test_a_config_without_meaning_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Encoder(dataclasses.replace(CONFIG, **changes))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"padding": torch.zeros(2, 6)}, "padding must be bool"),
        ({"padding": torch.zeros(1, 6, dtype=torch.bool)}, "padding must be bool, .2, 6."),
        ({"padding": torch.zeros(2, 6, dtype=torch.bool), "mask": Mask()}, "padding and mask"),
        ({"position_ids": torch.zeros(2, 6, dtype=torch.bool)}, "position_ids must be .2 or 1, 6. numbers"),
        ({"inputs_embeds": torch.zeros(2, 0, 16, dtype=torch.float64)}, "at least one token"),
    ],
)
def test_inputs_without_meaning_are_refused(inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(FieldError, match=message):
        make()(None if "inputs_embeds" in inputs else sequence(6, batch=2), **inputs)


def test_terms_without_a_scheme_are_plain_attention() -> None:
    """An encoder without positions is PyTorch's own."""
    encoder = make("none", layers=1, ffn_dim=32)
    layer = encoder.layers[0]
    stock = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, activation="gelu", batch_first=True).double()
    attention = layer.self_attn
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    stock.load_state_dict(
        {
            "self_attn.in_proj_weight": torch.cat([projection.weight for projection in projections]),
            "self_attn.in_proj_bias": torch.cat([projection.bias for projection in projections]),
            **{f"self_attn.out_proj.{name}": value for name, value in attention.out_proj.state_dict().items()},
            **{f"linear1.{name}": value for name, value in layer.fc1.state_dict().items()},
            **{f"linear2.{name}": value for name, value in layer.fc2.state_dict().items()},
            **{f"norm1.{name}": value for name, value in layer.self_attn_layer_norm.state_dict().items()},
            **{f"norm2.{name}": value for name, value in layer.final_layer_norm.state_dict().items()},
        }
    )
    x = torch.randn(2, 6, 16, dtype=torch.float64)
    found, _ = layer(x, (), BACKENDS["eager"].bind(Terms(), Mask(), Call(x.device, x.dtype, 8, 6, 6)))
    torch.testing.assert_close(found, stock(x))
