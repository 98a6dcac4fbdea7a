"""Tables that are computed rather than learned: exact, whatever the default dtype, and without float64 on the device."""

import copy
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.core.families import expressions
from fairseq_posenc.core.schemes import Scheme, Settings
from fairseq_posenc.core.schemes.base import TABLES
from fairseq_posenc.core.schemes.t5 import bucket
from fairseq_posenc.core.terms import Window
from fairseq_posenc.core.transformer import Encoder, EncoderConfig, Mask

SIZES = dict(vocab_size=20, layers=2, dim=16, ffn_dim=16, heads=2, max_positions=32)
VARIANTS = {
    "deberta in buckets": ("deberta", {"deberta_buckets": 4, "max_relative_position": 16}),
    "yarn": ("rope", {"rope_type": "yarn", "rope_factor": 4.0, "rope_original_positions": 16}),
    "fairseq's sinusoids": ("sinusoidal", {"sinusoidal_layout": "fairseq"}),
}
MODELS = {**{name: (expression, {}) for name, expression in expressions().items()}, **VARIANTS}


class NoFloat64(TorchDispatchMode):
    """Refuses float64 on the meta device, as Apple GPUs do."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if any(isinstance(x, torch.Tensor) and x.is_meta and x.dtype == torch.float64 for x in tree_leaves(result)):
            raise TypeError(f"float64 on the device: {func}")
        return result


def encoder(name, device):
    expression, options = MODELS[name]
    torch.manual_seed(0)
    with torch.device(device):
        return Encoder(EncoderConfig(**SIZES, positions=expression, position_options=options)).eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", MODELS)
def test_no_float64_reaches_the_device(name, dtype, monkeypatch):
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _: False)  # autocast does not support the meta device
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    with NoFloat64():
        encoder(name, "meta").to(dtype)(torch.zeros(2, 24, dtype=torch.long, device="meta"), mask=Mask())


@pytest.mark.parametrize("name", MODELS)
def test_the_default_dtype_changes_nothing(name):
    tokens, model = torch.randint(4, 20, (1, 24)), encoder(name, "cpu")
    again = encoder(name, "cpu")
    expected = model(tokens, mask=Mask()).last_hidden_state
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        found = again(tokens, mask=Mask()).last_hidden_state
    finally:
        torch.set_default_dtype(before)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_t5s_buckets_are_those_of_float32():
    offsets = torch.arange(-200, 201)
    expected = bucket(offsets, 32, 128, causal=False)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert torch.equal(bucket(offsets, 32, 128, causal=False), expected)
    finally:
        torch.set_default_dtype(before)


def test_what_is_computed_in_parts_is_computed_at_once():
    """The window grows beyond what was kept, and in inference mode, which must not spoil a later training."""
    scheme = encoder("rope", "cpu").positions.rope
    with torch.inference_mode():
        scheme.layer_terms(Window(8, dtype=torch.float32))
    grown = scheme.layer_terms(Window(700, dtype=torch.float32))[0].transforms[0]
    whole = encoder("rope", "cpu").positions.rope.layer_terms(Window(700))[0].transforms[0]
    assert not grown.cos.is_inference()
    torch.testing.assert_close(grown.cos, whole.cos.float(), rtol=0, atol=0)
    assert len(grown.sin) == 700


class Tabular(Scheme):
    """What a user may write."""

    name = "tabular"

    def __init__(self, factor=2.0):
        super().__init__(Settings(layers=1, heads=1, dim=2, max_positions=8), None)
        self.factor = nn.Parameter(torch.tensor(factor))

    def double(self, x):
        return 2 * x

    def square(self, x):
        return x.double() ** 2

    def scaled(self, x):
        return self.factor * x


@pytest.mark.parametrize("window", [Window(5), Window(6, 3), Window(3, positions=torch.tensor([[0, 700, 2]]), span=701)])
def test_each_function_of_positions_and_offsets_has_a_table_of_its_own(window):
    scheme, other = Tabular(), Tabular(3.0)
    x, r = window.positions if window.span == 701 else window.positions[0], window.offsets
    for _ in range(2):
        assert scheme.of_positions(scheme.double, window).tolist() == (2 * x).tolist()
        assert scheme.of_positions(scheme.square, window).tolist() == (x**2).tolist()
        assert scheme.of_offsets(scheme.double, window).tolist() == (2 * r).tolist()
        assert scheme.of_offsets(torch.abs, window).tolist() == r.abs().tolist()
        with torch.no_grad():  # as while the other scheme's are frozen
            other.factor.requires_grad_(False)
            assert scheme.of_offsets(other.scaled, window).tolist() == (3 * r).tolist()
        for shift in (0, 1):
            assert scheme.of_offsets(lambda r, shift=shift: r + shift, window).tolist() == (r + shift).tolist()


@pytest.mark.parametrize("read", [Scheme.of_positions, Scheme.of_offsets])
def test_a_function_of_parameters_is_refused_rather_than_kept(read):
    scheme = Tabular()
    for context in (nullcontext(), torch.no_grad(), torch.inference_mode()):
        with context, pytest.raises(InputError, match=r"'tabular' gives .* a function of its parameters"):
            read(scheme, scheme.scaled, Window(5))


def test_kept_tables_are_few_and_do_not_travel():
    scheme = Tabular()
    for shift in range(2 * TABLES):
        scheme.of_offsets(lambda r, shift=shift: r + shift, Window(5))
    assert len(scheme._kept_tables) == TABLES
    for again in (copy.deepcopy(scheme), copy.copy(scheme)):  # of the state that pickle writes, too
        assert not again._kept_tables
        assert again.factor == 2


CASTS = (
    nn.Module.bfloat16,
    nn.Module.half,
    lambda model: model.to(torch.bfloat16),
    lambda model: model.to("cpu", torch.float16),
    lambda model: model.type(torch.bfloat16),
)


@pytest.mark.parametrize("name", sorted({*MODELS, "kerple(form=power)", "log_cpb(bound=0)", "fire(sided=true)", "rope+floater"}))
def test_casting_parameters_to_half_precision_changes_little_at_512_tokens(name):
    """Those that a cast rounds are moved by one unit in the last place of bfloat16, up or down."""
    expression, options = MODELS.get(name, (name, {}))
    torch.manual_seed(0)
    sizes = {**SIZES, "dim": 64, "max_positions": 512}
    model, tokens = Encoder(EncoderConfig(**sizes, positions=expression, position_options=options)).eval(), torch.arange(512) % 20
    with torch.no_grad():
        for layer in model.layers:  # so that attention is far from uniform
            layer.self_attn.q_proj.weight *= 8
            layer.self_attn.k_proj.weight *= 8
        for parameter in model.positions.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
        before = model(tokens[None], mask=Mask(), output_attentions=True)
        for parameter, cast in zip(
            model.positions.parameters(), copy.deepcopy(model.positions).bfloat16().parameters(), strict=True
        ):
            if cast.dtype == torch.bfloat16:
                unit = (cast.view(torch.int16) + 1).view(torch.bfloat16).float() - cast.float()
                parameter.copy_(cast + unit * torch.randn_like(parameter).sign())
        after = model(tokens[None], mask=Mask(), output_attentions=True)
    states = before.last_hidden_state
    assert (after.last_hidden_state - states).norm() < 0.01 * (states - states.mean(1, keepdim=True)).norm()
    for p, q in zip(after.attentions, before.attentions, strict=True):
        assert (p - q).abs().sum(-1).mean() / 2 < 0.01  # the share of the weight that is elsewhere


@pytest.mark.parametrize("name", ["liere", "floater", "none | liere+floater+cable"])
@pytest.mark.parametrize("cast", CASTS)
def test_what_positions_are_multiplied_by_stays_in_float32(name, cast):
    expected = encoder("liere", "cpu") if name == "liere" else Encoder(EncoderConfig(**SIZES, positions=name)).eval()
    model, tokens = cast(copy.deepcopy(expected)), torch.randint(4, 20, (2, 24))
    assert model.layers[0].fc1.weight.dtype.itemsize == 2
    kept = [p for key, p in model.positions.named_parameters() if "liere" in key or "floater" in key]
    of_float32 = [p for key, p in expected.positions.named_parameters() if "liere" in key or "floater" in key]
    assert all(torch.equal(p, q) and p.dtype == torch.float32 for p, q in zip(kept, of_float32, strict=True))
    model.train()(tokens, mask=Mask()).last_hidden_state.sum().backward()
    assert all(p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in kept)
    assert model.double().layers[0].fc1.weight.dtype == kept[0].dtype == torch.float64


def test_a_model_that_is_made_in_half_precision_keeps_float32_too():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        model = encoder("liere", "cpu")
    finally:
        torch.set_default_dtype(before)
    assert (model.positions.liere.theta.dtype, model.layers[0].fc1.weight.dtype) == (torch.float32, torch.bfloat16)


@pytest.mark.parametrize(
    ("positions", "options"),
    [("t5", {}), ("t5", {"position_sampling": "random:2048"}), ("raffel", {}), ("m2", {"position_sampling": "shift:64"}),
     ("shaw", {"position_options": {"max_relative_position": 16}})],
)  # fmt: skip
def test_gradients_of_tables_are_summed_in_float32(positions, options):
    """The row of an offset gets as many gradients as there are pairs with it, which half precision would round away."""
    gradients = {}
    torch.manual_seed(0)
    sizes = dict(vocab_size=50, layers=1, dim=32, heads=2, ffn_dim=32, max_positions=512, dropout=0.0, attention_dropout=0.0)
    state = Encoder(positions, **sizes, **options).bfloat16().state_dict()
    tokens, weights = torch.randint(4, 50, (1, 512)), torch.randn(1, 512, 32) + 0.5
    for dtype in (torch.float64, torch.bfloat16):
        encoder = Encoder(positions, **sizes, **options).to(dtype)
        encoder.load_state_dict(state)
        encoder.set_num_updates(1)  # the same draws
        (encoder(tokens).last_hidden_state * weights.to(dtype)).sum().backward()
        gradients[dtype] = torch.cat([parameter.grad.double().flatten() for parameter in encoder.positions.parameters()])
    wrong = gradients[torch.bfloat16] - gradients[torch.float64]
    assert wrong.norm() < 0.015 * gradients[torch.float64].norm()
