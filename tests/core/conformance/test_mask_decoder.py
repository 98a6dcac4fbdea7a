"""DeBERTa's enhanced mask decoder against its equation, and against transformers' layers, which can run it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fairseq_posenc.core.transformer import Encoder, EncoderConfig

from .make_golden import DIM, HEADS, MAX_POSITIONS, PADDING, SYMBOLS, config, float64, randomise, tokens
from .peers import assert_close
from .references import relative
from .references.reading import Layer, attend, layer_norm
from .test_implementations import DEBERTA, _renamed

OPTIONS = {
    "deberta_projections": "content",
    "deberta_indexing": "original",
    "deberta_buckets": 6,
    "max_relative_position": 10,
}
SIZES = dict(vocab_size=SYMBOLS, padding_idx=PADDING, dim=DIM, ffn_dim=DIM, heads=HEADS, max_positions=MAX_POSITIONS)


def make_encoder(steps: int = 2, layers: int = 2, **options) -> Encoder:
    torch.manual_seed(0)
    given = {"positions": "deberta", "position_options": OPTIONS, "layer_norm_eps": 1e-7, **options}
    encoder = Encoder(EncoderConfig(**SIZES, layers=layers, mask_decoder_steps=steps, **given)).double().eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return encoder


def layer_of_the_paper(p: dict[str, Tensor], number: int, queries: Tensor, memory: Tensor, padding: Tensor) -> Tensor:
    """One layer of a transformer whose queries, and their residual, are not those that keys and values are made from."""
    own = {name.removeprefix(f"layers.{number}."): value for name, value in p.items() if name.startswith(f"layers.{number}.")}

    def linear(name: str, x: Tensor) -> Tensor:
        return torch.einsum("oi,...i->...o", own[f"{name}.weight"], x) + own[f"{name}.bias"]

    def heads(x: Tensor) -> Tensor:
        return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)

    layer = Layer(
        q=heads(linear("self_attn.q_proj", queries)),
        k=heads(linear("self_attn.k_proj", memory)),
        v=heads(linear("self_attn.v_proj", memory)),
        x=queries,
        tokens=tokens(),
        padding=padding,
        projections={f"{x}_{kind}": own[f"self_attn.{x}_proj.{kind}"] for x in "qk" for kind in ("weight", "bias")},
        number=number,
        max_positions=MAX_POSITIONS,
        separator=2,
        options=OPTIONS,
    )
    parameters = {name.removeprefix("positions."): value for name, value in p.items() if name.startswith("positions.")}
    z, _ = attend(relative.deberta(parameters, layer), layer)
    norms = [(own[f"{name}.weight"], own[f"{name}.bias"], 1e-7) for name in ("self_attn_layer_norm", "final_layer_norm")]
    x = layer_norm(queries + linear("self_attn.out_proj", z.transpose(1, 2).flatten(2)), *norms[0])
    return layer_norm(x + linear("fc2", F.gelu(linear("fc1", x))), *norms[1])


def reference(encoder: Encoder, steps: int) -> Tensor:
    """He et al. 2021, section 3.2: H, the last layer's input, and I: H with absolute positions, then the layer's output."""
    p = dict(encoder.named_parameters())
    padding = tokens().eq(PADDING)
    x = p["embed_tokens.weight"][tokens()]
    x = layer_norm(x, p["layernorm_embedding.weight"], p["layernorm_embedding.bias"], 1e-7).masked_fill(padding[..., None], 0.0)
    last = encoder.config.layers - 1
    for number in range(last):
        x = layer_of_the_paper(p, number, x, x, padding)
    i = x + p["mask_positions.weight"][torch.arange(x.shape[1]) * ~padding]
    for _ in range(steps):
        i = layer_of_the_paper(p, last, i, x, padding)
    return i


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_equation(steps: int, layers: int) -> None:
    """Forward, and the gradient of every parameter."""
    encoder, real = make_encoder(steps, layers), tokens().ne(PADDING)
    cotangent = torch.randn(*real.shape, DIM, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    names, parameters = zip(*encoder.named_parameters(), strict=True)
    results = []
    for states in (encoder(tokens(), decode_masks=True).last_hidden_state, reference(encoder, steps)):
        results.append((states[real], torch.autograd.grad((states * cotangent)[real].sum(), parameters, materialize_grads=True)))
    (found, found_gradients), (expected, expected_gradients) = results
    assert_close(found, expected, 1e-9)
    for name, ours, theirs in zip(names, found_gradients, expected_gradients, strict=True):
        pad = name == "embed_tokens.weight"  # whose row of padding learns nothing
        keep = torch.arange(len(ours)) != PADDING if pad else slice(None)
        assert_close(ours[keep], theirs[keep], 1e-8)


def test_transformers_layers_run_so_too() -> None:
    """As the authors' pretraining runs them: its encoder's own layer, with query_states."""
    pytest.importorskip("transformers")
    import fairseq_posenc.huggingface.auto  # noqa: F401

    with float64():
        from transformers import DebertaV2Model

        own = dict(relative_attention=True, pos_att_type=["c2p", "p2c"], max_relative_positions=10, type_vocab_size=0)
        own |= dict(position_buckets=6, share_att_key=True, norm_rel_ebd="layer_norm", position_biased_input=False)
        model = randomise(DebertaV2Model(config("DebertaV2Config", **own)))
        mask = tokens().ne(PADDING).long()
        memory = model(tokens(), attention_mask=mask, output_hidden_states=True).hidden_states[-2]
        table = torch.randn(MAX_POSITIONS, DIM, generator=torch.Generator().manual_seed(2))
        queries = memory + table[: memory.shape[1]]
        parts = model.encoder
        given = {"relative_pos": parts.get_rel_pos(memory), "rel_embeddings": parts.get_rel_embedding()}
        for _ in range(2):
            queries, _ = parts.layer[-1](memory, parts.get_attention_mask(mask), query_states=queries, **given)
    parameters = {_renamed(name, DEBERTA): value for name, value in model.state_dict().items()}
    parameters["positions.deberta.weight"] = parameters["positions.deberta.weight"][None, None]
    encoder = make_encoder()
    encoder.load_state_dict({**parameters, "mask_positions.weight": table})
    real = tokens().ne(PADDING)
    with torch.no_grad():
        assert_close(encoder(tokens(), decode_masks=True).last_hidden_state[real], queries[real], 1e-6)


def test_without_masks_to_decode_the_encoder_is_the_ordinary_one() -> None:
    with_decoder, without = make_encoder(2), make_encoder(0)
    without.load_state_dict({name: v for name, v in with_decoder.state_dict().items() if name != "mask_positions.weight"})
    expected = without(tokens()).last_hidden_state
    assert torch.equal(with_decoder(tokens()).last_hidden_state, expected)
    assert torch.equal(without(tokens(), decode_masks=True).last_hidden_state, expected)
    assert not torch.allclose(with_decoder(tokens(), decode_masks=True).last_hidden_state, expected)


def test_padding_at_the_left_and_longer_sequences() -> None:
    encoder, real = make_encoder(), tokens()[1].ne(PADDING)
    row = tokens()[1][real]
    left = torch.cat([torch.full((3,), PADDING), row])[None]
    with torch.no_grad():
        expected = encoder(row[None], decode_masks=True).last_hidden_state[0]
        assert_close(encoder(left, decode_masks=True).last_hidden_state[0, 3:], expected, 1e-9)
    long = torch.full((1, MAX_POSITIONS + 1), 5)
    encoder(long)  # relative positions alone take any length
    with pytest.raises(ValueError, match=r"mask_decoder_steps.* 48 .*positions.* 49: .*max_positions"):
        encoder(long, decode_masks=True)


def test_activations_can_be_recomputed_and_layers_dropped() -> None:
    """The decoder always runs; layerdrop concerns the layers before it."""
    plain = make_encoder(dropout=0.0, attention_dropout=0.0)
    sparing = make_encoder(dropout=0.0, attention_dropout=0.0, checkpoint_activations=True)
    sparing.load_state_dict(plain.state_dict())
    results = []
    for encoder in (plain.train(), sparing.train()):
        encoder(tokens(), decode_masks=True).last_hidden_state.sum().backward()
        results.append({name: p.grad for name, p in encoder.named_parameters()})
    for name, gradient in results[0].items():
        assert_close(results[1][name], gradient, 1e-9)
    dropping = make_encoder(dropout=0.0, attention_dropout=0.0, layerdrop=0.99).train()
    assert len(dropping(tokens(), output_attentions=True, decode_masks=True).attentions) >= 2


@pytest.mark.parametrize(("sampling", "message"), [("random:99", "48 learned positions.*99"), ("cape", "no values between")])
def test_positions_that_its_table_does_not_have_are_not_sampled(sampling: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"mask_decoder_steps.*{message}"):
        make_encoder(positions="rope", position_options={}, position_sampling=sampling)


def test_layer_norm_before_the_blocks_is_refused() -> None:
    with pytest.raises(ValueError, match=r"mask_decoder_steps.*normalize_before"):
        make_encoder(normalize_before=True)
