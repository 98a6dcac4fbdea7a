"""What is special to attention in chunks; tests/core/conformance compares it with the reference for each scheme."""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch
from attending import attend, call_of
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from fairseq_posenc.core.attention import BACKENDS, Call, Mask, call, choose, chunked, shifted
from fairseq_posenc.core.terms import LowRank, Relative, RelativeIndex, Terms, Window

CHUNKED, EAGER = BACKENDS["chunked"], BACKENDS["eager"]
B, H, N, DIM = 3, 4, 9, 4
CALL = Call(torch.device("cpu"), torch.float32, DIM, N, N)


def random(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64).requires_grad_()


def table(window: Window, *width: int, heads: int = H) -> tuple[Relative]:
    return (Relative(random(heads, len(window.offsets), *width), RelativeIndex(window)),)


def vectors(window: Window, heads: int = H, **others: object) -> Terms:
    kinds = ("query_tables", "key_tables", "value_tables")
    return Terms(**{kind: table(window, DIM, heads=heads) for kind in kinds}, **others)


def slope(function, inputs: list[Tensor], directions: list[Tensor], step: float = 1e-6) -> Tensor:
    """Of the function along a direction, by differences."""
    with torch.no_grad():
        ends = [function([x + sign * step * d for x, d in zip(inputs, directions, strict=True)]) for sign in (1, -1)]
    return (ends[0] - ends[1]) / (2 * step)


SCATTERED = Window(N, positions=torch.arange(N)[None] * 2, span=2 * N)
SQUARE, LOW_RANK = Window(N), (LowRank(random(1, H, N, 2), random(1, 1, N, 2)),)
WITH_CLS = (Relative(random(H, 2 * N + 1, DIM), RelativeIndex(SQUARE, torch.arange(2 * N - 1), (2 * N - 1, 2 * N))),)


@pytest.mark.parametrize(
    ("terms", "change", "expected"),
    [
        (vectors(SQUARE), {}, "chunked"),
        (vectors(SQUARE), {"device": torch.device("cuda")}, "eager"),
        (vectors(SQUARE), {"weights": True}, "eager"),
        (vectors(SQUARE), {"queries": 1}, "eager"),
        (Terms(biases=table(SQUARE)), {"dropout": 0.1}, "chunked"),
        (Terms(biases=table(SQUARE)), {"dropout": 0.1, "device": torch.device("cuda")}, "sdpa"),
        (Terms(biases=table(SQUARE)), {}, "sdpa"),
        (Terms(content=False, biases=table(SQUARE)), {}, "eager"),
    ],
)
def test_auto_takes_it_on_a_cpu_where_nothing_is_fused(terms: Terms, change: dict[str, object], expected: str) -> None:
    assert choose("auto", terms, dataclasses.replace(CALL, **change)).name == expected


@pytest.mark.parametrize(
    ("terms", "reason"),
    [
        (Terms(content=False, biases=table(SQUARE)), "scores without q·k"),
        (Terms(content=False, biases=(*LOW_RANK, *table(SCATTERED))), "scores without q·k"),
        (Terms(query_tables=table(SQUARE, DIM), key_tables=WITH_CLS), "only some have rows for [CLS]"),
        (Terms(combine="multiply", query_tables=table(SQUARE, DIM)), "a product of two"),
        (Terms(content=False, biases=LOW_RANK, gains=table(SQUARE)), "low rank alone"),
    ],
)
def test_it_says_what_it_does_not_run(terms: Terms, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        choose("chunked", terms)


@pytest.mark.parametrize("scores", [1, 3 * 81, 8 * 81, 100 * 81])
@pytest.mark.parametrize("block", [1, 4, 64])
@pytest.mark.parametrize("heads", [1, H])
def test_any_chunks_and_blocks_give_the_same(scores: int, block: int, heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where queries are the last of more keys, and where a sequence is all padding."""
    torch.manual_seed(0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(chunked, "SCORES", scores)
    monkeypatch.setattr(shifted, "BLOCK", block)
    mask = Mask(torch.arange(N) >= torch.tensor([[N], [5], [0]]), causal=True)
    cases = (
        vectors(SQUARE, heads, gains=table(SQUARE, heads=heads)),
        vectors(Window(N, 7), heads, biases=(random(B, 1, 7, N),)),
        Terms(query_tables=WITH_CLS, key_tables=WITH_CLS, value_tables=WITH_CLS, gains=table(SQUARE), biases=LOW_RANK),
    )
    for terms, queries in zip(cases, (N, 7, N), strict=True):
        inputs = [random(B, H, queries, DIM), random(B, H, N, DIM), random(B, H, N, DIM)]
        tables = [table.table for table in terms.vectors + terms.value_tables + terms.gains]
        tables += [getattr(bias, "left", bias) for bias in terms.biases]
        results = []
        for backend in (CHUNKED, EAGER):
            z, _ = attend(backend, terms, *inputs, mask)
            results.append([z, *torch.autograd.grad(z.sin().sum(), [*inputs, *tables])])
        for found, expected in zip(*results, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("window", [0, 3, 5])
@pytest.mark.parametrize("queries", [23, 18])
@pytest.mark.parametrize("positions", [None, torch.tensor([[*range(14), *range(9)]])], ids=["contiguous", "documents"])
def test_tiles_of_a_window_give_the_same(
    window: int, queries: int, positions: Tensor | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of sdpa; with padding, with queries that see no key, and with every kind of table."""
    torch.manual_seed(0)
    monkeypatch.setattr(call, "MIN_TILE", 4)
    n = 23
    places = Window(n, queries, positions=positions, span=None if positions is None else 14)
    mask = Mask(
        torch.arange(n) >= torch.tensor([[n], [12]]), documents=None if positions is None else torch.arange(n)[None] // 14
    )
    inputs = [random(2, H, queries, DIM), random(2, H, n, DIM), random(2, H, n, DIM)]
    biases = (*table(places), random(2, 1, queries, n))
    for backend, terms in (
        ("chunked", dataclasses.replace(vectors(places, biases=biases), window=window)),
        ("sdpa", Terms(biases=biases, window=window)),
    ):
        assert len(call_of(*inputs[:2]).tiles(window)) > 3
        tables = [x.table for x in terms.vectors + terms.value_tables] + [biases[0].table, biases[1]]
        results = []
        for runs in (BACKENDS[backend], EAGER):
            z, _ = attend(runs, terms, *inputs, mask)
            results.append([z, *torch.autograd.grad(z.sin().sum(), [*inputs, *tables])])
        for found, expected in zip(*results, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_backward_drops_what_forward_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slope along a random direction is that of differences under the same seed; a recomputation drops the same again."""
    torch.manual_seed(0)
    monkeypatch.setattr(chunked, "SCORES", 1)
    terms = vectors(SQUARE)
    inputs = [random(B, H, N, DIM) for _ in range(3)]

    def loss(tensors: list[Tensor], checkpointed: bool = False) -> Tensor:
        torch.manual_seed(3)
        attend_to = CHUNKED.bind(terms, Mask(causal=True), call_of(*tensors[:2], dropout=0.3))
        z, _ = checkpoint(attend_to, *tensors, use_reentrant=False) if checkpointed else attend_to(*tensors)
        return z.sin().sum()

    gradients = torch.autograd.grad(loss(inputs), inputs)
    for found, expected in zip(torch.autograd.grad(loss(inputs, True), inputs), gradients, strict=True):
        assert found.equal(expected)
    directions = [torch.randn_like(tensor) for tensor in inputs]
    expected = sum((gradient * direction).sum() for gradient, direction in zip(gradients, directions, strict=True))
    torch.testing.assert_close(slope(loss, inputs, directions), expected, rtol=1e-6, atol=1e-6)


def test_it_keeps_the_weights_and_a_byte_each_of_dropout() -> None:
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        attend(CHUNKED, vectors(SQUARE), *(random(B, H, N, DIM) for _ in range(3)), dropout=0.1)
    pairs = [tensor for tensor in kept if tensor.shape[-2:] == (N, N)]
    assert sorted(tensor.dtype.itemsize for tensor in pairs) == [1, 8]


def test_without_gradients_it_makes_nothing_of_all_pairs_and_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "SCORES", 1)
    terms, inputs, made = vectors(SQUARE), [random(B, H, N, DIM) for _ in range(3)], []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            result = function(*arguments, **(options or {}))
            made.append(result.numel() if isinstance(result, Tensor) else 0)
            return result

    with torch.no_grad(), Sizes():
        attend(CHUNKED, terms, *inputs, dropout=0.1)
    assert N * N <= max(made) < B * H * N * N
