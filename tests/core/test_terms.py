"""The geometry of relative tables and the algebra of terms."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from attending import matrix_call
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fairseq_posenc.core.attention.bias import additive_bias
from fairseq_posenc.core.attention.relative import dense, skew, times_keys, times_queries, toeplitz, unskew, weighted_sum
from fairseq_posenc.core.terms import Relative, RelativeIndex, Terms, Window

quick = settings(max_examples=40, deadline=None, derandomize=True, database=None)
BATCH, HEADS, DIM, ROWS = 2, 3, 4, 5


@st.composite
def windows(draw: st.DrawFn) -> Window:
    """Any number of queries over any number of keys, up to 9."""
    keys = draw(st.integers(1, 9))
    return Window(keys, draw(st.integers(1, keys)))


@st.composite
def windows_anywhere(draw: st.DrawFn) -> Window:
    """A contiguous window, or tokens at any whole positions, some of them the first of a document."""
    window = draw(windows())
    if draw(st.booleans()):
        return window
    batch, span = draw(st.sampled_from([1, BATCH])), draw(st.integers(1, 7))
    positions = torch.tensor(draw(st.lists(st.integers(0, span - 1), min_size=batch * window.keys, max_size=batch * window.keys)))
    positions = positions.view(batch, window.keys)
    first = draw(st.sampled_from([None, positions % 3 == 0]))
    return Window(window.keys, window.queries, positions=positions, span=span, first=first)


@st.composite
def indices(draw: st.DrawFn) -> RelativeIndex:
    """Every offset has some row of a table of ROWS, or exactly its own; [CLS] has two rows, or none."""
    window = draw(windows_anywhere())
    count = len(window.offsets)
    rows = draw(st.none() | st.lists(st.integers(0, ROWS - 1), min_size=count, max_size=count).map(torch.tensor))
    last = (count if rows is None else ROWS) - 1
    return RelativeIndex(window, rows, draw(st.none() | st.tuples(st.integers(0, last), st.integers(0, last))))


def table_for(index: RelativeIndex, heads: int, *width: int) -> Tensor:
    rows = len(index.window.offsets) if index.rows is None else ROWS
    return random(heads, rows, *width)


def random(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def test_offsets_are_key_minus_query() -> None:
    assert Window(3).offsets.tolist() == [-2, -1, 0, 1, 2]
    assert Window(4, 2).start == 2
    assert Window(4, 2).offsets.tolist() == [-3, -2, -1, 0, 1]


def test_matrix_of_a_square_window() -> None:
    index = RelativeIndex(Window(3))
    assert index.matrix().tolist() == [[[2, 3, 4], [1, 2, 3], [0, 1, 2]]]
    clipped = RelativeIndex(Window(3), Window(3).offsets.clamp(-1, 1) + 1)
    assert clipped.matrix().tolist() == [[[1, 2, 2], [0, 1, 2], [0, 0, 1]]]


def test_matrix_with_rows_for_cls() -> None:
    assert RelativeIndex(Window(3), None, (5, 6)).matrix().tolist() == [[[5, 5, 5], [6, 2, 3], [6, 1, 2]]]


def test_matrix_of_a_window_behind_cached_keys() -> None:
    assert RelativeIndex(Window(4, 2), None, (5, 6)).matrix().tolist() == [[[6, 2, 3, 4], [6, 1, 2, 3]]]


def test_positions_are_values() -> None:
    window = Window(3, positions=torch.tensor([[0, 4, 1], [2, 0, 3]]), span=5, first=torch.tensor([[1, 0, 0], [0, 1, 0]]).bool())
    assert window.offsets.tolist() == list(range(-4, 5))
    assert window.offsets[window.pairs].tolist() == [[[0, 4, 1], [-4, 0, -3], [-1, 3, 0]], [[0, -2, 1], [2, 0, 3], [-1, -3, 0]]]
    index = RelativeIndex(window, window.offsets.clamp(-1, 1) + 1, (5, 6))
    assert index.matrix().tolist() == [[[5, 5, 5], [6, 1, 0], [6, 2, 1]], [[1, 6, 2], [5, 5, 5], [0, 6, 1]]]
    real = Window(2, positions=torch.tensor([[0.0, 1.5]]))
    assert real.offsets[real.pairs].tolist() == [[[0.0, 1.5], [-1.5, 0.0]]]


@pytest.mark.parametrize(("keys", "queries"), [(0, None), (3, 0), (3, 4)])
def test_a_window_without_meaning_is_refused(keys: int, queries: int | None) -> None:
    with pytest.raises(ValueError, match="1 <= queries <= keys"):
        Window(keys, queries)


@quick
@given(windows())
def test_toeplitz_and_skew_put_offsets_into_place(window: Window) -> None:
    keys, queries = window.keys, window.queries
    vector, scores = random(len(window.offsets)), random(2, queries, len(window.offsets))
    for i in range(queries):
        for j in range(keys):
            at = window.offsets.tolist().index(j - (window.start + i))
            assert toeplitz(vector, keys)[i, j] == vector[at]
            assert torch.equal(skew(scores, keys)[:, i, j], scores[:, i, at])


@quick
@given(windows())
def test_unskew_is_the_adjoint_of_skew(window: Window) -> None:
    scores, weights = random(2, window.queries, len(window.offsets)), random(2, window.queries, window.keys)
    left, right = (skew(scores, window.keys) * weights).sum(), (scores * unskew(weights)).sum()
    torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(skew(unskew(weights), window.keys), weights, rtol=0, atol=0)


@quick
@given(indices(), st.sampled_from([1, HEADS]))
def test_products_are_those_of_the_gathered_table(index: RelativeIndex, heads: int) -> None:
    """Every product with a table against its definition by RelativeIndex.matrix()."""
    matrix, keys, queries = index.matrix(), index.window.keys, index.window.queries
    scalars, vectors = table_for(index, heads), table_for(index, heads, DIM)
    gathered = vectors[:, matrix].transpose(0, 1).expand(BATCH, HEADS, -1, -1, -1)  # (B, H, Q, K, d)
    q, k = random(BATCH, HEADS, queries, DIM), random(BATCH, HEADS, keys, DIM)
    p = random(BATCH, HEADS, queries, keys)
    expected = {
        "dense": scalars[:, matrix].transpose(0, 1),
        "times_queries": torch.einsum("bhid,bhijd->bhij", q, gathered),
        "times_keys": torch.einsum("bhjd,bhijd->bhij", k, gathered),
        "weighted_sum": torch.einsum("bhij,bhijd->bhid", p, gathered),
    }
    relative = Relative(vectors, index)
    found = {
        "dense": dense(Relative(scalars, index)),
        "times_queries": times_queries(q, relative),
        "times_keys": times_keys(k, relative),
        "weighted_sum": weighted_sum(p, relative),
    }
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-12, atol=1e-12, msg=lambda text, name=name: f"{name}: {text}")


@quick
@given(indices())
def test_gradients_of_products_are_those_of_the_gathered_table(index: RelativeIndex) -> None:
    inputs = (
        table_for(index, 1, DIM),
        random(BATCH, HEADS, index.window.queries, DIM),
        random(BATCH, HEADS, index.window.keys, DIM),
        random(BATCH, HEADS, index.window.queries, index.window.keys),
    )

    def products(table: Tensor, q: Tensor, k: Tensor, p: Tensor) -> tuple[Tensor, ...]:
        relative = Relative(table, index)
        return times_queries(q, relative), times_keys(k, relative), weighted_sum(p, relative)

    def by_gathering(table: Tensor, q: Tensor, k: Tensor, p: Tensor) -> tuple[Tensor, ...]:
        a = table[0, index.matrix()].expand(BATCH, -1, -1, -1)
        rules = [("bhid,bijd->bhij", q), ("bhjd,bijd->bhij", k), ("bhij,bijd->bhid", p)]
        return tuple(torch.einsum(rule, x, a) for rule, x in rules)

    leaves = [tensor.requires_grad_() for tensor in inputs]
    found, expected = (sum(value.square().sum() for value in run(*leaves)) for run in (products, by_gathering))
    for ours, theirs in zip(torch.autograd.grad(found, leaves), torch.autograd.grad(expected, leaves), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def vectors(rows: int = 3) -> tuple[Relative, ...]:
    return (Relative(random(1, rows, DIM), RelativeIndex(Window(2))),)


def scalars() -> Relative:
    return Relative(random(1, 3), RelativeIndex(Window(2), None, (0, 1)))


def bias(terms: Terms) -> Tensor | None:
    """Of two queries and two keys."""
    return additive_bias(terms, matrix_call(2, 2, random(1)))


def test_terms_of_one_kind_add_up() -> None:
    matrix = random(1, HEADS, 2, 2)
    relative = scalars()
    parts = [Terms(biases=(relative,)), Terms(query_tables=vectors()), Terms(biases=(matrix,))]
    total = Terms.sum(parts, factor=2.0)
    assert total.factor == 2.0
    assert total.query_tables == parts[1].query_tables
    torch.testing.assert_close(bias(total), dense(relative) + matrix)


def test_sum_carries_every_kind_of_term() -> None:
    """A field that is added to Terms and forgotten in the sum would vanish silently."""
    collections = [field.name for field in dataclasses.fields(Terms) if field.default == ()]
    part = Terms(**{name: (object(),) for name in collections})
    total = Terms.sum([part, Terms(), part], factor=1.0)
    for name in collections:
        assert getattr(total, name) == 2 * getattr(part, name)


def test_sum_of_one_part_is_that_part() -> None:
    part = Terms(combine="multiply", query_tables=vectors(), gains=(scalars(),), cls_bias=random(1, 2))
    total = Terms.sum([part], factor=part.factor)
    for field in dataclasses.fields(Terms):
        ours, given = getattr(total, field.name), getattr(part, field.name)
        assert ours is given or ours == given, field.name


@pytest.mark.parametrize("kind", ["query_tables", "key_tables", "hidden_query_tables", "hidden_key_tables"])
def test_a_product_with_another_scheme_s_vectors_is_refused(kind: str) -> None:
    product = Terms(combine="multiply", query_tables=vectors(), key_tables=vectors())
    with pytest.raises(ValueError, match=r"product of q·k.* vector terms of another scheme"):
        Terms.sum([product, Terms(**{kind: vectors()})], factor=1.0)


def test_a_product_without_content_is_refused() -> None:
    product = Terms(combine="multiply", query_tables=vectors(), key_tables=vectors())
    with pytest.raises(ValueError, match="removes q·k"):
        Terms.sum([product, Terms(content=False, biases=(random(1, 1, 2, 2),))], factor=1.0)


def test_cls_is_reset_once() -> None:
    with pytest.raises(ValueError, match="only once"):
        Terms.sum([Terms(cls_bias=random(1, 2)), Terms(cls_bias=random(1, 2))], factor=1.0)


def test_a_product_and_value_vectors_have_a_meaning() -> None:
    product = Terms(combine="multiply", query_tables=vectors(), key_tables=vectors())
    total = Terms.sum([product, Terms(value_tables=vectors())], factor=1.0)
    assert total.combine == "multiply"
    assert total.value_tables


def test_bias_of_no_terms_is_none() -> None:
    assert bias(Terms()) is None


def test_bias_of_cls_alone() -> None:
    thetas = torch.tensor([[3.0, 4.0], [5.0, 6.0]])
    expected = [[[[3.0, 3.0], [4.0, 0.0]], [[5.0, 5.0], [6.0, 0.0]]]]
    assert bias(Terms(cls_bias=thetas)).tolist() == expected


def test_projected_tables_take_their_places() -> None:
    hidden = Relative(random(1, 3, 6), RelativeIndex(Window(2)))
    terms = Terms(query_tables=vectors(), hidden_query_tables=(hidden,), hidden_key_tables=(hidden,))
    projected = terms.project(lambda table: table + 1, lambda table: table + 2)
    assert projected.hidden_query_tables == projected.hidden_key_tables == ()
    torch.testing.assert_close(projected.query_tables[1].table, hidden.table + 1)
    torch.testing.assert_close(projected.key_tables[0].table, hidden.table + 2)
    plain = Terms(query_tables=vectors())
    assert plain.project(lambda table: table, lambda table: table) is plain
