"""Positions that are values: tokens anywhere in a longer sequence, in documents, and between whole numbers."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from fairseq_posenc.base.errors import FieldError
from fairseq_posenc.core.attention import BACKENDS
from fairseq_posenc.core.terms import Window

from .layers import (
    Results,
    assert_same,
    by_package,
    by_reference,
    make_layer,
    make_positions,
    terms_of,
    window_of,
    with_gradients,
)
from .references.reading import Layer
from .table import ROWS, Row

N = 15
PLACES = torch.tensor([[0, 2, 3, 7, 8, 14], [0, 1, 5, 9, 11, 12]])
BACKENDS_ANYWHERE = ("eager", "sdpa", "chunked")
BY_TOKENS = {"sentence_absolute", "cable", "selective_rope", "key_offset", "key_convolution"}  # some of which are missing
COUNTED = [row for row in ROWS if not BY_TOKENS & {*row.expression.split("+")}]
rows = pytest.mark.parametrize("row", COUNTED, ids=lambda row: row.id)


def picked(x: Tensor, dim: int) -> Tensor:
    """The entries at :data:`PLACES`, (B or 1, …, N, …) -> (B, …, n, …)."""
    shape = [1] * x.dim()
    shape[0], shape[dim] = PLACES.shape
    x = x.expand(len(PLACES), *x.shape[1:])
    return x.gather(dim, PLACES.view(shape).expand(*x.shape[:dim], PLACES.shape[1], *x.shape[dim + 1 :]))


def compact(layer: Layer) -> Layer:
    """The tokens at :data:`PLACES` alone."""
    return dataclasses.replace(
        layer,
        **{name: picked(getattr(layer, name), 2) for name in "qkv"},
        **{name: picked(getattr(layer, name), 1) for name in ("x", "tokens", "padding")},
    )


def anywhere(backend: str):
    def run(positions, layer: Layer) -> Results:
        layer = compact(layer)
        return by_package(positions, layer, BACKENDS[backend], window_of(layer, positions=PLACES, span=N))

    return run


def gaps(row: Row):
    """The whole sequence, in which the tokens that are not at :data:`PLACES` are masked."""

    def run(positions, layer: Layer) -> Results:
        found = by_reference(row, positions, layer)
        return {name: picked(x, 2 if name == "z" else 1) for name, x in found.items()}

    return run


@rows
def test_tokens_anywhere_are_those_of_a_sequence_with_gaps(row: Row) -> None:
    positions = make_positions(row, max_positions=N + 1)
    layer = make_layer(row, positions, N)
    layer = dataclasses.replace(layer, padding=torch.ones(2, N, dtype=torch.bool).scatter(1, PLACES, False))
    layer.padding[1, PLACES[1, -1]] = True
    expected = with_gradients(gaps(row), positions, layer)
    terms = terms_of(positions, compact(layer), Window(PLACES.shape[1], positions=PLACES, span=N))
    for name in BACKENDS_ANYWHERE:
        if not BACKENDS[name].objection(terms):
            assert_same(with_gradients(anywhere(name), positions, layer), expected, row.tolerance)


FUNCTIONS = ("sinusoidal", "tisa", "alibi", "kerple", "fire", "rope", "liere", "pope", "log_cpb", "transformer_xl", "floater")


@pytest.mark.parametrize("row", [row for row in COUNTED if row.expression in FUNCTIONS], ids=lambda row: row.id)
def test_functions_of_positions_take_real_numbers(row: Row) -> None:
    positions = make_positions(row)
    layer = make_layer(row, positions, 7)
    real = Window(7, positions=torch.arange(7.0)[None])
    for name in BACKENDS_ANYWHERE:
        if not BACKENDS[name].objection(terms_of(positions, layer, real)):
            assert_same(by_package(positions, layer, BACKENDS[name], real), by_package(positions, layer), 1e-9)
    moved = by_package(positions, layer, window=Window(7, positions=torch.arange(7.0)[None] + 1000.25))
    assert all(torch.allclose(x, by_package(positions, layer)[name]) for name, x in moved.items()) == row.translation_invariant


SLOWER = {  # what makes the equation half as fast
    "tisa": lambda tisa: [tisa.sharpness.div_(4), tisa.offset.mul_(2)],
    "kerple": lambda kerple: [kerple.r2.div_(2)],
    "fire": lambda fire: [fire.c.div_(2), fire.threshold.mul_(2)],
}


@pytest.mark.parametrize("expression", SLOWER)
def test_half_positions_are_those_of_an_equation_that_is_half_as_fast(expression: str) -> None:
    row = next(row for row in ROWS if row.expression == expression)
    positions = make_positions(row)
    layer = make_layer(row, positions, 7)
    with torch.no_grad():
        for parameter in positions.parameters():
            parameter.abs_().add_(0.1)  # beyond the least value that kerple's have
        found = by_package(positions, layer, window=Window(7, positions=torch.arange(7)[None] / 2))
        SLOWER[expression](positions.get_submodule(expression))
        assert_same(found, by_package(positions, layer), 1e-9)


def test_half_positions_are_those_of_rotations_half_as_fast() -> None:
    slow = Row("rope", ROWS[0].reference, {"rope_type": "linear", "rope_factor": 2.0})
    plain = make_positions(Row("rope", ROWS[0].reference))
    layer = make_layer(slow, plain, 7)
    found = by_package(plain, layer, window=Window(7, positions=torch.arange(7)[None] / 2))
    assert_same(found, by_package(make_positions(slow), layer), 1e-9)


@pytest.mark.parametrize("expression", ["absolute", "shaw", "untied", "deberta", "synthesizer_random"])
def test_tables_take_whole_numbers_only(expression: str) -> None:
    row = next(row for row in ROWS if row.expression == expression)
    positions = make_positions(row)
    with pytest.raises(FieldError, match=rf"the scheme '{expression}' has tables"):
        by_package(positions, make_layer(row, positions, 5), window=Window(5, positions=torch.arange(5.0)[None]))
