"""What schemes claim to be, held against how they behave."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from attending import attend, call_of
from cases import drawn
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fairseq_posenc.core.attention import BACKENDS
from fairseq_posenc.core.attention.bias import additive_bias
from fairseq_posenc.core.schemes import Positions

from .layers import HEAD_DIM, Results, by_package, make_layer, make_positions, project, terms_of, with_gradients
from .references.reading import Layer
from .references.untied import thetas
from .table import ROWS, Row


def rows(*chosen: Row) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", chosen or ROWS, ids=lambda row: row.id)


SHORT, SEEDS = range(1, 7), range(10)


@rows()
def test_claims_are_those_of_the_table(row: Row) -> None:
    positions = make_positions(row)
    assert positions.inductive == row.inductive
    assert all(scheme.translation_invariant for scheme in positions.schemes) == row.translation_invariant
    assert all(scheme.has_causal_form for scheme in positions.schemes) == row.decoder


@rows()
def test_general_options_that_mean_nothing_are_refused(row: Row) -> None:
    values = {
        "position_share_heads": True,
        "position_share_layers": True,
        "max_relative_position": 10,
        "position_scale_factor": 2.0,
    }
    for name, value in values.items():
        if name in row.general_options:
            assert make_positions(row, options={name: value}).effective_options[name] == value
        else:
            with pytest.raises(ValueError, match=f"{name} {value} means nothing"):
                make_positions(row, options={name: value})


def part(layer: Layer, first: int, end: int) -> Layer:
    """The layer over the tokens first … end-1 alone."""
    of_heads = {name: getattr(layer, name)[:, :, first:end] for name in ("q", "k", "v")}
    return dataclasses.replace(
        layer,
        **of_heads,
        x=layer.x[:, first:end],
        tokens=layer.tokens[:, first:end],
        padding=layer.padding[:, first:end],
    )


def hide(layer: Layer, first: int, end: int) -> Layer:
    """The same layer with the tokens first … end-1 visible to none."""
    padding = layer.padding.clone()
    padding[:, first:end] = True
    return dataclasses.replace(layer, padding=padding)


def cut(results: Results, first: int, end: int) -> Results:
    return {name: value[..., first:end, :] for name, value in results.items()}


def moved(row: Row, n: int, shift: int, seed: int = 0) -> tuple[Results, Results]:
    """Results over n tokens at positions 0 … n-1, and over the same tokens ``shift`` further, behind hidden ones."""
    positions = make_positions(row, max_positions=16, seed=seed)
    layer = make_layer(row, positions, shift + n, seed=seed)
    at_start = by_package(positions, part(layer, shift, shift + n))
    return at_start, cut(by_package(positions, hide(layer, 0, shift)), shift, shift + n)


@pytest.mark.parametrize("expression", sorted({row.expression for row in ROWS if not row.translation_invariant}))
def test_moving_a_window_changes_what_is_not_translation_invariant(expression: str) -> None:
    differences = []
    for row in ROWS:
        if row.expression == expression:
            at_start, further = moved(row, n=7, shift=3)
            differences += [(further[name] - value).abs().max() for name, value in at_start.items()]
    assert max(differences) > 1e-3


@rows(*[row for row in ROWS if not row.inductive])
def test_length_beyond_what_was_learned_is_refused(row: Row) -> None:
    positions = make_positions(row, max_positions=5)
    by_package(positions, make_layer(row, positions, 5))
    with pytest.raises(ValueError, match=r"6 tokens.* 5 positions.*max_positions"):
        by_package(positions, make_layer(row, positions, 6))


@rows(*[row for row in ROWS if row.clips])
@drawn(clip=range(1, 5), seed=SEEDS)
def test_offsets_beyond_the_clip_are_one(row: Row, clip: int, seed: int) -> None:
    """Where all keys are equal, a query's weights are equal at and beyond the clip, on each side."""
    n = 12
    clip += 1 + row.options.get("deberta_buckets", -2) // 2  # up to half of the buckets, each offset has its own
    positions = make_positions(row, options={"max_relative_position": clip}, seed=seed)
    layer = make_layer(row, positions, n, seed=seed)
    layer = dataclasses.replace(layer, k=layer.k[:, :, :1].expand_as(layer.k))
    p = weights(positions, layer)
    first = 1 if "reset" in row.expression else 0
    for i in range(first, n):
        for side in (p[..., i, i + clip :], p[..., i, first : max(first, i - clip + 1)]):
            torch.testing.assert_close(side, side[..., :1].expand_as(side), rtol=1e-9, atol=1e-12)


def bias_of(positions: Positions, layer: Layer) -> Tensor:
    """(1, H, n, n)"""
    bias = additive_bias(terms_of(positions, layer), call_of(layer.q, layer.k))
    assert bias is not None
    return bias


def weights(positions: Positions, layer: Layer) -> Tensor:
    """(B, H, n, n)"""
    terms = project(terms_of(positions, layer), layer)
    _, p = attend(BACKENDS["eager"], terms, layer.q, layer.k, layer.v, weights=True)
    return p


@rows(*[row for row in ROWS if "reset" in row.expression and "untied" in row.expression])
def test_reset_replaces_the_row_and_the_column_of_cls(row: Row) -> None:
    positions = make_positions(row)
    bias = bias_of(positions, make_layer(row, positions, 7))
    theta = thetas(dict(positions.named_parameters()), make_layer(row, positions, 7))  # (H, 2)
    torch.testing.assert_close(bias[0, :, 0], theta[:, :1].expand(-1, 7))
    torch.testing.assert_close(bias[0, :, 1:, 0], theta[:, 1:].expand(-1, 6))
    without = dataclasses.replace(row, expression=row.expression.removesuffix("+reset"), options={})
    ordinary = make_positions(without)
    ordinary.load_state_dict({name: p for name, p in positions.state_dict().items() if not name.endswith(".cls")})
    expected = bias_of(ordinary, make_layer(without, ordinary, 7))
    torch.testing.assert_close(bias[..., 1:, 1:], expected[..., 1:, 1:])


@pytest.mark.parametrize(
    ("row", "kind"),
    [pytest.param(row, kind, id=f"{row.id}-{kind}") for row in ROWS if "+" not in row.expression for kind in row.own],
)
def test_shared_parameters_are_one(row: Row, kind: str) -> None:
    """Equal inputs give equal results in every head (layer) if and only if it has no parameters of its own."""
    flag = f"position_share_{kind}"
    shared, own = (make_positions(row, options={flag: value}) for value in (True, False))
    for positions, same in ((shared, True), (own, False)):
        layer = make_layer(row, positions, 7)
        alike = {name: getattr(layer, name)[:, :1].expand_as(getattr(layer, name)) for name in ("q", "k", "v")}
        layer = dataclasses.replace(layer, **alike, x=layer.x[..., :HEAD_DIM].repeat(1, 1, layer.heads))
        if kind == "heads":
            z = by_package(positions, layer)["z"]
            first, others = z[:, 0], z[:, 1]
        else:
            next_layer = dataclasses.replace(layer, number=layer.number + 1)
            first, others = (torch.cat([*map(Tensor.flatten, by_package(positions, at).values())]) for at in (layer, next_layer))
        assert torch.allclose(first, others, rtol=1e-9, atol=1e-9) == same


class LargestTensor(TorchDispatchMode):
    """Notes the number of elements of the largest tensor that comes into being."""

    size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self.size = max(self.size, tensor.untyped_storage().nbytes() // tensor.element_size())
        return result


@rows(*[row for row in ROWS if "rope_factors" not in row.options])  # whose number is that of another width
def test_no_tensor_is_as_large_as_a_vector_for_every_pair(row: Row) -> None:
    n, d = 192, 64
    positions = make_positions(row, heads=1, max_positions=n, head_dim=d)
    layer = make_layer(row, positions, n, (n,))
    with LargestTensor() as largest:
        with_gradients(by_package, positions, layer)
    assert n * n <= largest.size < n * n * d / 4
