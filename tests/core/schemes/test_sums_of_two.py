"""Sums of any two schemes: documents, padding, positions, caches, backends and the order change what they say they change."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor

from fairseq_posenc.base.errors import FieldError
from fairseq_posenc.core.attention import Mask
from fairseq_posenc.core.schemes import REGISTRY, Positions, Settings
from fairseq_posenc.core.terms import TUPLES, Window
from fairseq_posenc.core.transformer import Cache, Decoder, DecoderConfig, Encoder, EncoderConfig

NAMES = [name for name in REGISTRY if name != "none"]
SIZES: dict[str, Any] = {"vocab_size": 20, "layers": 2, "dim": 16, "heads": 2, "ffn_dim": 8, "max_positions": 16}
DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}
SEPARATOR, PADDING = 2, 1


@pytest.fixture(autouse=True)
def in_float64() -> Any:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def made(model: Any, config: Any, expression: str, **options: Any) -> Any:
    """A model whose parameters, those of its positions too, are all moved at random; None where the sum has no meaning."""
    try:
        found = model(config(**SIZES, **DROPOUT, positions=expression, **options)).eval()
    except FieldError:
        return None
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in sorted(found.named_parameters()):
            parameter.copy_(0.7 * torch.randn(parameter.shape, generator=generator) + ("norm.weight" in name))
    return found


def test_few_sums_have_no_meaning() -> None:
    """And the others are tested below."""
    sums = [f"{first}+{second}" for first, second in combinations(NAMES, 2)]
    refused = [expression for expression in sums if made(Encoder, EncoderConfig, expression) is None]
    assert len(refused) == 83, refused


def rows(*lengths: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(2)
    return [torch.randint(4, 20, (1, n), generator=generator).index_fill(1, torch.tensor([0]), 0) for n in lengths]


@pytest.mark.parametrize("first", NAMES)
def test_a_document_has_the_states_that_it_has_alone(first: str) -> None:
    """After another one in a row, after padding, with its own positions given, in the eager backend, and in the other order."""
    before, own = rows(5, 6)
    row, documents = torch.cat([before, own], 1), torch.tensor([[0] * 5 + [5] * 6])
    padded = torch.cat([torch.full((1, 3), PADDING), own], 1)
    with torch.no_grad():
        for second in NAMES[NAMES.index(first) + 1 :]:
            if (encoder := made(Encoder, EncoderConfig, f"{first}+{second}")) is None:
                continue
            alone = encoder(own).last_hidden_state
            found = {
                "packed": encoder(row, mask=Mask(documents=documents)).last_hidden_state[:, 5:],
                "padded": encoder(padded).last_hidden_state[:, 3:],
                "positions": encoder(own, position_ids=torch.arange(6)[None]).last_hidden_state,
                "turned": made(Encoder, EncoderConfig, f"{second}+{first}")(own).last_hidden_state,
            }
            with contextlib.suppress(FieldError):  # tables have no rows between whole numbers
                found["real positions"] = encoder(own, position_ids=torch.arange(6.0)[None]).last_hidden_state
            encoder.attention_backend = "eager"
            found["eager"] = encoder(own).last_hidden_state
            for name, states in found.items():
                assert (states - alone).abs().max() < 1e-6, (second, name)


@pytest.mark.parametrize("first", NAMES)
def test_decoders_have_the_same_states_with_a_cache(first: str) -> None:
    own = rows(6)[0]
    padded = torch.cat([torch.full((1, 3), PADDING), own], 1)
    with torch.no_grad():
        for second in NAMES[NAMES.index(first) + 1 :]:
            if (decoder := made(Decoder, DecoderConfig, f"{first}+{second}", cross_attention=False)) is None:
                continue
            cache, whole = Cache(), decoder(own)
            parts = torch.cat([decoder(own[:, :end], cache=cache) for end in (2, 3, 6)], 1)
            for name, states in (("cache", parts), ("padded", decoder(padded)[:, 3:])):
                assert (states - whole).abs().max() < 1e-6, (second, name)


@pytest.mark.parametrize("first", NAMES)
def test_every_parameter_of_the_positions_has_a_gradient_in_every_backend(first: str) -> None:
    tokens = torch.cat([*rows(7), torch.cat([*rows(5), torch.full((1, 2), PADDING)], 1)])
    for second in NAMES[NAMES.index(first) + 1 :]:
        if (encoder := made(Encoder, EncoderConfig, f"{first}+{second}")) is None:
            continue
        gradients = []
        for backend in ("eager", "auto"):
            encoder.attention_backend = backend
            encoder.zero_grad()
            states = encoder.train()(tokens).last_hidden_state[tokens != PADDING]
            (states * torch.linspace(-1, 1, states.numel()).view_as(states)).sum().backward()
            gradients.append({name: parameter.grad for name, parameter in encoder.positions.named_parameters()})
        assert not [name for name, gradient in gradients[0].items() if gradient is None], second
        for name, gradient in gradients[0].items():
            torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-6, atol=1e-6)


def tensors_of(part: Any) -> Iterator[Tensor]:
    """All tensors of nested terms."""
    if isinstance(part, Tensor):
        yield part
    elif isinstance(part, (list, tuple)) or dataclasses.is_dataclass(part):
        for item in part if isinstance(part, (list, tuple)) else vars(part).values():
            yield from tensors_of(item)


@pytest.mark.parametrize("name", NAMES)
def test_autocast_rounds_no_terms(name: str) -> None:
    """A sum of steps in bfloat16 would end at 256."""
    partner = "absolute+" if name == "reset" else ""
    settings = Settings(layers=1, heads=2, dim=16, max_positions=300, separator=SEPARATOR, embed_dim=16)
    try:
        positions = Positions(f"{partner}{name}", settings).float()
    except FieldError:  # alone, it has no meaning
        positions = Positions(f"t5+{name}", settings).float()
    window, x = Window(300, dtype=torch.float32), torch.randn(1, 300, 16, dtype=torch.float32)
    found = []
    for enabled in (False, True):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            terms = positions.terms(window).of(0, x)
            embedded = positions.embed(window, torch.full((1, 300), 5))
            found.append([*tensors_of([embedded, *(getattr(terms, name) for name in TUPLES)])])
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)
