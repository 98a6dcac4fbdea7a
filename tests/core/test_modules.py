"""Schemes as modules for models of one's own, against the encoder and PyTorch's attention."""

import re

import pytest
import torch
from torch import nn
from torch.export import Dim, export
from torch.nn import functional as F

from fairseq_posenc import Encoder, PositionalAttention, PositionBias, position_bias
from fairseq_posenc.base.errors import FieldError
from fairseq_posenc.core.families import expressions
from fairseq_posenc.core.schemes import parse

LAYERS, HEADS, HEAD_DIM, N, BATCH = 2, 2, 8, 7, 3
BIASES = {"alibi", "fire", "kerple", "log_cpb", "none", "raffel", "t5", "tisa"}
OF_EMBEDDINGS_AND_INPUTS = {"absolute", "sinusoidal", "sentence_absolute", "floater"}
ATTENTION = sorted(e for e in expressions().values() if not OF_EMBEDDINGS_AND_INPUTS & {*e.split("+")})


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def far_from_zero(module: nn.Module) -> nn.Module:
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    return module


def q_k_v() -> list[torch.Tensor]:
    return [torch.randn(BATCH, HEADS, N, HEAD_DIM) for _ in range(3)]


def attention_of(positions: str, **options) -> PositionalAttention:
    return far_from_zero(PositionalAttention(positions, HEADS, HEAD_DIM, max_positions=N, **options)).eval()


@pytest.mark.parametrize("positions", ["cable+relative_logits(input=hidden)", "cable(gates=2)", "selective_rope"])
def test_the_last_queries_of_schemes_that_read_the_past(positions):
    for causal in (False,) if "gates" in positions else (False, True):
        attention, (q, k, v), x = attention_of(positions, causal=causal), q_k_v(), torch.randn(BATCH, N, HEADS * HEAD_DIM)
        torch.testing.assert_close(attention(q[:, :, -2:], k, v, x=x), attention(q, k, v, x=x)[:, :, -2:])


@pytest.mark.parametrize("positions", ["selective_rope+shaw", "selective_rope+m4m"])
def test_the_input_at_padding_on_the_left_is_not_read(positions):
    attention, (q, k, v), x = attention_of(positions), q_k_v(), torch.randn(BATCH, N, HEADS * HEAD_DIM)
    padding = torch.arange(N).expand(BATCH, N) < 2
    position_ids = (torch.arange(N) - 2).clamp(0)[None]
    found = attention(q, k, v, padding=padding, position_ids=position_ids, x=x)[:, :, 2:]
    alone = attention(*(tensor[:, :, 2:] for tensor in (q, k, v)), x=x[:, 2:])
    torch.testing.assert_close(found, alone)


@pytest.mark.parametrize("positions", [*ATTENTION, "rope | none", "tisa(kernels=2)+shaw"])
def test_attention_is_that_of_the_encoder(positions):
    """The parameters of an encoder, and what its projections make of its layers' inputs, padding included."""
    encoder = Encoder(positions, vocab_size=20, layers=LAYERS, heads=HEADS, dim=HEADS * HEAD_DIM, ffn_dim=8, max_positions=N)
    far_from_zero(encoder).eval()
    seen = []
    for layer in encoder.layers:
        layer.self_attn.register_forward_hook(lambda attention, args, output: seen.append((attention, args[0], output[0])))
    tokens = torch.randint(4, 20, (BATCH, N))
    tokens[0, 5:] = 1
    encoder(tokens)
    attention = attention_of(positions, layers=LAYERS)
    attention.load_state_dict({name: value for name, value in encoder.state_dict().items() if name.startswith("positions.")})
    for number, (projections, x, expected) in enumerate(seen):
        q, k, v = (
            projection(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for projection in (projections.q_proj, projections.k_proj, projections.v_proj)
        )
        z = attention(q, k, v, padding=tokens.eq(1), layer=number, x=x)
        assert torch.allclose(projections.out_proj(z.transpose(1, 2).flatten(2)), expected, atol=1e-5)
    assert len(seen) == LAYERS


@pytest.mark.parametrize("positions", sorted(BIASES))
def test_a_bias_is_what_pytorchs_attention_adds(positions):
    attention = attention_of(positions)
    bias = PositionBias(positions, HEADS, head_dim=HEAD_DIM, max_positions=N)
    bias.load_state_dict(attention.state_dict())
    q, k, v = q_k_v()
    assert bias(N).shape == (HEADS, N, N)
    z = F.scaled_dot_product_attention(q, k, v, attn_mask=bias(N))
    assert torch.allclose(z, attention(q, k, v), atol=1e-6)


def test_an_option_that_does_not_exist_is_named():
    with pytest.raises(FieldError, match="'position_option': did you mean position_options"):
        position_bias("t5", heads=2, position_option={})


def test_a_causal_bias_and_its_last_queries():
    bias = position_bias("alibi", heads=HEADS, causal=True)
    whole = bias(N)
    assert torch.equal(whole.isinf(), torch.ones(N, N).triu(1).bool().expand(HEADS, N, N))
    assert torch.equal(bias(N, queries=2), whole[:, -2:])
    assert torch.equal(position_bias("kerple(window=1)", heads=HEADS)(N).isinf()[0], ~torch.ones(N, N).triu(-1).tril(1).bool())


def test_a_bias_has_layers_gradients_and_the_type_of_its_module():
    bias = far_from_zero(position_bias("t5", heads=HEADS, layers=LAYERS, position_options={"position_share_layers": False}))
    first, second = (bias(N, layer=layer) for layer in range(LAYERS))
    assert not torch.equal(first, second)
    second.sum().backward()
    gradient = bias.positions.t5.weight.grad
    assert gradient[1].any()
    assert not gradient[0].any()
    half, whole = (position_bias("alibi", heads=HEADS).to(dtype)(N) for dtype in (torch.bfloat16, torch.float32))
    assert half.dtype is torch.bfloat16
    assert half.equal(whole.bfloat16())  # whose greatest values are 0


def test_attention_has_gradients_and_a_state_dict_of_parameters():
    attention = attention_of("m4+reset")
    q, k, v = (tensor.requires_grad_() for tensor in q_k_v())
    attention(q, k, v).square().sum().backward()
    assert all(tensor.grad.any() for tensor in (q, k, v, *attention.parameters()))
    assert attention.state_dict().keys() == dict(attention.named_parameters()).keys()


@pytest.mark.parametrize("positions", ["rope", "shaw", "tisa"])
def test_positions_count_from_anywhere_in_any_order(positions):
    attention, (q, k, v) = attention_of(positions), q_k_v()
    expected = attention(q, k, v)
    order = torch.randperm(N)
    z = attention(*(tensor[:, :, order] for tensor in (q, k, v)), position_ids=order[None])
    assert torch.allclose(z, expected[:, :, order], atol=1e-5)
    if positions == "rope":
        moved = attention(q, k, v, position_ids=torch.arange(N)[None] + 0.5)
        assert torch.allclose(moved, expected, atol=1e-5)


@pytest.mark.parametrize(
    "positions", ["m4+reset", "untied+t5+reset", "rope", "rope(fraction=0.5)+key_offset", "key_convolution+log_n"]
)
def test_padding_may_be_on_the_left(positions):
    """[CLS] is then the first key that is not padding."""
    attention, tensors = attention_of(positions), q_k_v()
    expected = attention(*tensors)
    padded = (torch.cat([torch.randn_like(tensor[:, :, :3]), tensor], 2) for tensor in tensors)
    padding = torch.arange(N + 3).expand(len(tensors[0]), -1) < 3
    z = attention(*padded, padding=padding, position_ids=(torch.arange(N + 3)[None] - 3).clamp(min=0))
    assert torch.allclose(z[:, :, 3:], expected, atol=1e-5)


@pytest.mark.parametrize("positions", ["m4+reset", "t5+reset", "shaw+reset"])
def test_reset_finds_the_first_token_after_padding(positions):
    """Without positions, which count padding too."""
    attention = far_from_zero(PositionalAttention(positions, HEADS, HEAD_DIM, max_positions=2 * N)).eval()
    tensors = q_k_v()
    padded = (torch.cat([torch.randn_like(tensor[:, :, :3]), tensor], 2) for tensor in tensors)
    padding = torch.arange(N + 3).expand(len(tensors[0]), -1) < 3
    assert torch.allclose(attention(*padded, padding=padding)[:, :, 3:], attention(*tensors), atol=1e-5)


@pytest.mark.parametrize("positions", ATTENTION)
def test_documents_of_a_row_are_rows_of_their_own(positions):
    attention, tensors, x = attention_of(positions), q_k_v(), torch.randn(BATCH, N, HEADS * HEAD_DIM)
    packed = attention(*tensors, documents=torch.tensor([[0, 0, 0, 3, 3, 3, 3]]), x=x)
    for part in (slice(0, 3), slice(3, 7)):
        alone = attention(*(tensor[:, :, part] for tensor in tensors), x=x[:, part])
        assert torch.allclose(packed[:, :, part], alone, atol=1e-5)


def test_a_step_of_decoding_is_the_last_row_of_causal_attention():
    attention, (q, k, v) = attention_of("shaw+t5", causal=True), q_k_v()
    assert torch.allclose(attention(q[:, :, -1:], k, v), attention(q, k, v)[:, :, -1:], atol=1e-6)


@pytest.mark.parametrize("positions", [e for e in ATTENTION if all(scheme.reads_input for scheme in parse(e))])
def test_parameters_may_be_more_precise_than_the_inputs(positions):
    attention, (q, k, v), x = attention_of(positions), q_k_v(), torch.randn(BATCH, N, HEADS * HEAD_DIM)
    z = attention(*(tensor.bfloat16() for tensor in (q, k, v)), x=x.bfloat16())
    torch.testing.assert_close(z.float(), attention(q, k, v, x=x), rtol=0.1, atol=0.1)


def test_dropout_in_training_only():
    attention, (q, k, v) = attention_of("tisa", dropout=0.5), q_k_v()
    assert torch.equal(attention(q, k, v), attention(q, k, v))
    assert not torch.equal(attention.train()(q, k, v), attention(q, k, v))


def test_both_can_be_exported_with_a_dynamic_length():
    attention, (q, k, v) = attention_of("rope+t5"), q_k_v()
    shapes = tuple({2: Dim("n", min=2, max=64)} for _ in range(3))
    program = export(attention, (q, k, v), dynamic_shapes=shapes).module()
    longer = [torch.randn(BATCH, HEADS, N + 5, HEAD_DIM) for _ in range(3)]
    assert torch.allclose(program(*longer), attention(*longer), atol=1e-5)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: PositionBias("rope", HEADS), "rope: .*PositionalAttention"),
        (lambda: PositionBias("shaw", HEADS), "shaw: .*PositionalAttention"),
        (lambda: PositionBias("untied", HEADS), "√d.*PositionalAttention"),
        (lambda: PositionBias("cable", HEADS), "all inputs; .*PositionalAttention"),
        (lambda: PositionBias("synthesizer_random", HEADS), "q·k.*PositionalAttention"),
        (lambda: PositionBias("absolute+tisa", HEADS), "are added .*Encoder"),
        (lambda: PositionBias("floater", HEADS), "floater: .*Encoder"),
        (lambda: PositionalAttention("deberta", HEADS, 4, position_options={"deberta_projections": "content"}), "Encoder"),
        (lambda: PositionalAttention("cable(gates=2)", HEADS, 4, causal=True), "cable .*causal"),
        (lambda: PositionalAttention("tisa", HEADS, 4, dropout=2), "dropout"),
        (lambda: PositionalAttention("tisa", 0, 4), "heads"),
        (lambda: PositionalAttention("m4", HEADS, 4, backend="sdpa"), "attention_backend"),
        (lambda: attention_of("cable")(*q_k_v()), "cable .*give x"),
        (lambda: attention_of("cable")(*q_k_v(), x=torch.zeros(1, 1, 1)), "x must be"),
        (lambda: attention_of("rope")(*q_k_v(), padding=torch.zeros(1, 1)), "padding must be bool"),
        (lambda: attention_of("tisa")(*q_k_v(), layer=1), "layer 1"),
        (lambda: attention_of("tisa")(*(tensor[:, :1] for tensor in q_k_v())), "heads"),
        (lambda: attention_of("tisa")(q_k_v()[0], *(tensor[:, :1] for tensor in q_k_v()[1:])), "heads"),
        (lambda: attention_of("tisa")(q_k_v()[0], *(tensor[:1] for tensor in q_k_v()[1:])), "batch"),
        (lambda: attention_of("tisa")(*(tensor[:, :, :0] for tensor in q_k_v())), "0 queries and 0 keys"),
        (lambda: PositionBias("t5", HEADS)(3, 4), "4 queries and 3 keys"),
        (lambda: attention_of("raffel")(*(tensor.repeat(1, 1, 2, 1) for tensor in q_k_v())), "max_positions"),
        (lambda: attention_of("tisa")(*q_k_v(), position_ids=torch.zeros(1, 2)), "position_ids"),
        (lambda: Encoder("tisa", vocab_size=20, layrs=2), "layrs.*layers"),
        (lambda: Encoder("tisa", layers=2), "vocab_size"),
        (lambda: Encoder(Encoder("tisa", vocab_size=20, layers=1, dim=12, ffn_dim=4).config, layers=2), "layers"),
    ],
)
def test_what_cannot_be_made(make, named):
    with pytest.raises(FieldError) as error:
        make()
    assert re.search(named, str(error.value)), error.value
