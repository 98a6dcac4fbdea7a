"""Every scheme against its equation: forward and every gradient, in every precision, by every backend."""

from __future__ import annotations

import copy
import dataclasses
import re

import pytest
import torch
from attending import parameters
from torch import Tensor

from fairseq_posenc.core.attention import BACKENDS, Backend, choose, chunked, shifted
from fairseq_posenc.core.families import expressions
from fairseq_posenc.core.schemes import REGISTRY
from fairseq_posenc.core.terms import Window

from .layers import assert_same, by_package, by_reference, make_layer, make_positions, terms_of, to, with_gradients
from .table import ROWS, Row, thoroughly

rows = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
BAND, SDPA, CHUNKED = parameters("band", "sdpa", "chunked")

# A sum, and one that the kernels reject; tests/core/attention/test_band.py runs them on each kind of term.
INTERPRETED = ("untied+t5+reset", "shaw+reset")
SHAPES = {  # n, heads, lengths
    "n1": (1, 2, (1, 1)),
    "n2,padded": (2, 1, (2, 1)),
    "n63,padded,empty": (63, 1, (63, 40, 0)),
    "n111": (111, 3, (111,)),
}


def run_reference(row: Row):
    return lambda positions, layer: by_reference(row, positions, layer)


def run_package(backend: str = "eager"):
    return lambda positions, layer: by_package(positions, layer, BACKENDS[backend])


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_scheme_has_a_row(name: str) -> None:
    assert any(name in row.expression.split("+") for row in ROWS), (
        f"the scheme {name!r} has no row in tests/core/conformance/table.py, so nothing holds it to its equation"
    )


@pytest.mark.parametrize("expression", sorted(set(expressions().values())))
def test_every_architecture_has_a_row(expression: str) -> None:
    assert expression in [row.expression for row in ROWS], f"{expression!r} has no row in tests/core/conformance/table.py"


def test_rows_differ() -> None:
    assert len({row.id for row in ROWS}) == len(ROWS)


@rows
@pytest.mark.parametrize(("n", "heads", "lengths"), SHAPES.values(), ids=SHAPES.keys())
def test_equation(row: Row, n: int, heads: int, lengths: tuple[int, ...]) -> None:
    positions = make_positions(row, heads, max_positions=n + 2)
    layer = make_layer(row, positions, n, lengths)
    expected = with_gradients(run_reference(row), positions, layer)
    assert_same(with_gradients(run_package(), positions, layer), expected, row.tolerance)


@pytest.mark.parametrize("row", [row for row in ROWS if row.own], ids=lambda row: row.id)
@pytest.mark.parametrize("share_layers", [False, True], ids=["layers", "one layer"])
@pytest.mark.parametrize("share_heads", [False, True], ids=["heads", "one head"])
def test_equation_with_sharing(row: Row, share_layers: bool, share_heads: bool) -> None:
    options = {"position_share_layers": share_layers, "position_share_heads": share_heads}
    options = {name: value for name, value in options.items() if name in row.general_options}
    positions = make_positions(row, options=options)
    layer = make_layer(row, positions, 9)
    expected = with_gradients(run_reference(row), positions, layer)
    assert_same(with_gradients(run_package(), positions, layer), expected, row.tolerance)


@pytest.mark.parametrize("row", [row for row in ROWS if row.content], ids=lambda row: row.id)
def test_scale_factor(row: Row) -> None:
    for factor in (1, 2, 3, 4, 6, 9):
        options = {"position_scale_factor": factor}
        positions = make_positions(row, options=options)
        layer = make_layer(row, positions, 5)
        layer = dataclasses.replace(layer, options={**layer.options, **options})
        assert_same(by_package(positions, layer), by_reference(row, positions, layer), row.tolerance)


@pytest.mark.parametrize("row", thoroughly(ROWS, INTERPRETED))
@pytest.mark.parametrize("backend", [BAND])
def test_interpreted_kernels_agree_with_eager(row: Row, backend: Backend) -> None:
    compare_with_eager(row, backend, heads=2, lengths=(17, 9))


@rows
@pytest.mark.parametrize("backend", [SDPA, CHUNKED])
def test_backend_agrees_with_eager(row: Row, backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "SCORES", 1)  # each head by itself
    monkeypatch.setattr(shifted, "BLOCK", 5)
    compare_with_eager(row, backend, heads=4, lengths=(17, 9, 0))


PACKED = torch.tensor([[0] * 9 + [9] * 8])
"""The start of each place's document."""
IN_DOCUMENTS = Window(17, positions=torch.arange(17)[None] - PACKED, span=17, first=torch.arange(17) == PACKED)


@rows
@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
def test_flex_attention_agrees_with_eager(row: Row, packed: bool) -> None:
    """Its values, of padded sequences, of which one is empty, and of rows of two documents; it has no gradients on a CPU."""
    positions = make_positions(row, max_positions=20)
    layer = make_layer(row, positions, 17, (17, 9, 0))
    where = {"window": IN_DOCUMENTS, "documents": PACKED} if packed else {}
    with torch.no_grad():
        terms = terms_of(positions, layer, where.get("window"))
        if reason := BACKENDS["flex"].objection(terms):
            with pytest.raises(ValueError, match=re.escape(reason)):
                choose("flex", terms)
            return
        expected = by_package(positions, layer, **where)
        assert_same(by_package(positions, layer, BACKENDS["flex"], **where), expected, 1e-9)


def compare_with_eager(row: Row, backend: Backend, heads: int, lengths: tuple[int, ...]) -> None:
    positions = make_positions(row, heads, max_positions=20)
    layer = make_layer(row, positions, 17, lengths)
    terms = terms_of(positions, layer)
    if reason := backend.objection(terms):
        with pytest.raises(ValueError, match=re.escape(reason)):
            choose(backend.name, terms)
        return
    expected = with_gradients(run_package(), positions, layer)
    assert_same(with_gradients(run_package(backend.name), positions, layer), expected, 1e-9)


@rows
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_precision(row: Row, dtype: torch.dtype) -> None:
    """Every backend is about as close to the exact result as the naive equation is in the same precision, or closer."""
    positions = make_positions(row, max_positions=33).to(dtype)
    layer = to(make_layer(row, positions, 31, (31, 20, 0)), dtype)
    exact = with_gradients(run_reference(row), copy.deepcopy(positions).double(), to(layer, torch.float64))
    naive = with_gradients(run_reference(row), positions, layer)
    budget = {name: 2 * error(naive[name], value) for name, value in exact.items()}
    # The error of one gradient can be small by luck, above all a scalar's; the worst of all gradients is not.
    worst = 2 * max(value for name, value in budget.items() if name.startswith("gradient"))
    for backend in BACKENDS.values():
        # Kernels that are interpreted take long; tests/core/attention/test_band.py asks the same of each kind of term.
        # FlexAttention has no gradients on a CPU; tests/gpu/test_flex_on_gpu.py asks the same.
        if backend.name in ("band", "flex") or backend.objection(terms_of(positions, layer)):
            continue
        found = with_gradients(run_package(backend.name), positions, layer)
        assert found.keys() == exact.keys()
        for name, value in exact.items():
            allowed = (worst if name.startswith("gradient") else budget[name]) + torch.finfo(dtype).eps + row.tolerance
            assert error(found[name], value) <= allowed, f"{name} by {backend.name}"


def error(found: Tensor, exact: Tensor) -> float:
    """Distance in the Euclidean norm, relative to the size of the exact tensor; NaN counts as infinitely far."""
    distance = (found.double() - exact).norm() / exact.norm().clamp(min=1e-30)
    return distance.nan_to_num(nan=torch.inf).item()
