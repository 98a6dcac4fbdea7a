"""Running one attention layer twice, by the package and by a reference, on the same inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from attending import attend as attend_by
from torch import Tensor
from torch.nn import functional as F

from fairseq_posenc.core.attention import BACKENDS, Backend, Mask
from fairseq_posenc.core.schemes import Positions, Settings
from fairseq_posenc.core.terms import Terms, Window

from .references.reading import Layer, attend
from .table import Row

LAYERS, HEAD_DIM, SEPARATOR = 3, 8, 2
NUMBER = 1  # of the layer looked at: neither the first nor the last

Results = dict[str, Tensor]


def make_positions(
    row: Row,
    heads: int = 4,
    max_positions: int = 16,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
    head_dim: int = HEAD_DIM,
) -> Positions:
    """The row's scheme in float64, every parameter moved away from its initial value, so that no term is left unseen."""
    settings = Settings(LAYERS, heads, heads * head_dim, max_positions, SEPARATOR)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        positions = Positions(row.expression, settings, {**row.options, **(options or {})}).double()
        with torch.no_grad():
            for parameter in positions.parameters():
                parameter += row.spread * torch.randn_like(parameter)
    return positions


def make_layer(row: Row, positions: Positions, n: int, lengths: tuple[int, ...] | None = None, seed: int = 0) -> Layer:
    """Random inputs of one layer, in float64. ``lengths`` are of the sequences before padding on the right."""
    settings = positions.settings
    lengths = lengths or (n, n)
    generator = torch.Generator().manual_seed(seed)
    dim = settings.dim

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    by_head = (len(lengths), settings.heads, n, settings.head_dim)
    weights = {f"{name}_weight": random(dim, dim) / dim**0.5 for name in "qk"}
    biases = {f"{name}_bias": random(dim) for name in "qk"}
    return Layer(
        q=random(*by_head),
        k=random(*by_head),
        v=random(*by_head),
        x=random(len(lengths), n, dim),
        projections=weights | biases,
        tokens=torch.randint(SEPARATOR, SEPARATOR + 6, (len(lengths), n), generator=generator),
        padding=torch.arange(n) >= torch.tensor(lengths)[:, None],
        number=NUMBER,
        max_positions=settings.max_positions,
        separator=SEPARATOR,
        options=row.options,
    )


def to(layer: Layer, dtype: torch.dtype) -> Layer:
    """The same layer with its inputs rounded to ``dtype``."""
    return with_tensors(layer, lambda tensor: tensor.to(dtype))


def with_tensors(layer: Layer, change: Callable[[Tensor], Tensor]) -> Layer:
    """The same layer with every tensor that a gradient is taken in changed."""
    return dataclasses.replace(
        layer,
        **{name: change(getattr(layer, name)) for name in ("q", "k", "v", "x")},
        projections={name: change(tensor) for name, tensor in layer.projections.items()},
    )


def tensors(layer: Layer) -> Results:
    """Every tensor that a gradient is taken in, by name."""
    return {name: getattr(layer, name) for name in ("q", "k", "v", "x")} | dict(layer.projections)


def window_of(layer: Layer, **options: Any) -> Window:
    return Window(layer.n, padding=layer.padding, causal=layer.causal, **options)


def terms_of(positions: Positions, layer: Layer, window: Window | None = None) -> Terms:
    """The terms of this layer, computed as an encoder does: the layers before it come first."""
    terms = positions.terms(window or window_of(layer))
    return [terms.of(number, layer.x) for number in range(layer.number + 1)][-1]


def project(terms: Terms, layer: Layer) -> Terms:
    """What attention does for terms that want the layer's own projections."""
    own = layer.projections
    return terms.project(
        lambda table: layer.split(F.linear(table[0], own["k_weight"], own["k_bias"])),
        lambda table: layer.split(F.linear(table[0], own["q_weight"], own["q_bias"])),
    )


def by_package(
    positions: Positions,
    layer: Layer,
    backend: Backend = BACKENDS["eager"],
    window: Window | None = None,
    documents: Tensor | None = None,
) -> Results:
    """z, and whatever is added to embeddings and layer inputs where there is a token."""
    window = window or window_of(layer)
    terms = terms_of(positions, layer, window)
    z, _ = attend_by(backend, project(terms, layer), layer.q, layer.k, layer.v, Mask(layer.padding, layer.causal, documents))
    embedding = positions.embed(window, layer.tokens)
    layer_input = sum(terms.inputs[1:], start=terms.inputs[0]) if terms.inputs else None
    return _results(z, embedding, layer_input, layer)


def by_reference(row: Row, positions: Positions, layer: Layer) -> Results:
    """The same from the row's equation."""
    reading = row.reference(dict(positions.named_parameters()), layer)
    z, _ = attend(reading, layer)
    return _results(z, reading.embedding, reading.layer_input, layer)


def _results(z: Tensor, embedding: Tensor | None, layer_input: Tensor | None, layer: Layer) -> Results:
    found = {"z": z}
    for name, addition in (("embedding", embedding), ("layer input", layer_input)):
        if addition is not None:
            found[name] = addition.expand_as(layer.x).masked_fill(layer.padding[..., None], 0.0)
    return found


def with_gradients(run, positions: Positions, layer: Layer) -> Results:
    """What ``run(positions, layer)`` gives, and the gradient of a random linear function of it in every input."""
    layer = with_tensors(layer, lambda tensor: tensor.detach().requires_grad_())
    results = run(positions, layer)
    generator = torch.Generator().manual_seed(1)
    cotangents = {
        name: torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value.dtype)
        for name, value in sorted(results.items())
    }
    leaves = tensors(layer) | dict(positions.named_parameters())
    loss = sum((value * cotangents[name]).sum() for name, value in results.items())
    gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
    results = {name: value.detach() for name, value in results.items()}
    return results | {f"gradient of {name}": g for name, g in zip(leaves, gradients, strict=True)}


def assert_same(found: Results, expected: Results, tolerance: float) -> None:
    """Equality up to ``tolerance`` times the size of what is expected."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].isfinite().all(), f"{name} is not finite"
        size = max(1.0, value.abs().max().item()) if value.numel() else 1.0
        torch.testing.assert_close(
            found[name], value, rtol=0, atol=tolerance * size, msg=lambda text, name=name: f"{name}: {text}"
        )
