"""Encoders on fake CUDA tensors, which need PyTorch's build for CUDA and no GPU: devices do not mix, and no value is read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import flex_attention

from fairseq_posenc.base.errors import FieldError
from fairseq_posenc.core.attention import BACKENDS, Mask, flex
from fairseq_posenc.core.attention.band import function
from fairseq_posenc.core.families import expressions
from fairseq_posenc.core.schemes import REGISTRY
from fairseq_posenc.core.schemes.positions import PATTERNS
from fairseq_posenc.core.transformer import Encoder, EncoderConfig

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.backends.cuda.is_built(), reason="PyTorch is built without CUDA"),
]
B, N = 3, 700  # long enough for two tiles of a window
SIZES = dict(vocab_size=20, layers=2, dim=32, ffn_dim=32, heads=2, max_positions=N, attention_dropout=0.0)


def instead_of_kernels(q: Tensor, k: Tensor, v: Tensor, setup: function.Setup, *tables: Tensor | None) -> Tensor:
    for tensor in (q, k, v, setup.padding, setup.documents, *tables):
        assert tensor is None or tensor.device.type == "cuda"
    return torch.empty_like(v)


@pytest.fixture
def fake_cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Triton's kernels are left out, as there is nothing to compile them for."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)  # with which they would run on a CPU alone
    monkeypatch.setattr(function.BandAttention, "apply", instead_of_kernels)
    monkeypatch.setattr(flex, "_compiled", lambda: flex_attention.flex_attention)
    monkeypatch.setattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    with FakeTensorMode(), torch.device("cuda"):
        yield


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=str)
def dtype(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.dtype]:
    """Of models that are made, of all their parameters, since fake ones cannot be converted."""
    for scheme in REGISTRY.values():
        monkeypatch.setattr(scheme, "keeps_float32", False)
    before = torch.get_default_dtype()
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(before)


def test_it_finds_a_read_and_two_devices(fake_cuda: None) -> None:
    with pytest.raises(RuntimeError):
        torch.ones(3).sum().item()
    with pytest.raises(RuntimeError, match=r"devices,? cuda:0(,| and) cpu"):
        torch.ones(3) + torch.ones(3, device="cpu")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("positions", sorted({*expressions().values(), *PATTERNS}))
def test_a_forward_pass_stays_on_the_device(dtype: torch.dtype, fake_cuda: None, positions: str, backend: str) -> None:
    """Initialisation, too. FlexAttention's backward pass, which PyTorch traces with the forward pass, needs a device."""
    if BACKENDS[backend].missing:
        pytest.skip(BACKENDS[backend].missing)
    tokens, padding = torch.ones(B, N, dtype=torch.long), torch.zeros(B, N, dtype=torch.bool)
    masks = [Mask(padding), Mask(padding, documents=torch.zeros(B, N, dtype=torch.long)), Mask(causal=True)]
    try:
        encoder = Encoder(EncoderConfig(**SIZES, positions=positions, attention_backend=backend))
        with torch.set_grad_enabled(backend != "flex"):
            states = [encoder(tokens, mask=mask).last_hidden_state for mask in masks]
    except FieldError as refused:
        pytest.skip(str(refused))
    assert {(x.device.type, x.dtype, x.shape) for x in states} == {("cuda", dtype, (B, N, SIZES["dim"]))}
