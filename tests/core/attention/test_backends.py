"""Backends: how one is chosen, and what all of them do with masks, precisions and dropout."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest
import torch
from attending import attend, call_of, on_the_cpu, parameters
from torch import Tensor

from fairseq_posenc.core.attention import BACKENDS, Backend, Call, Mask, choose
from fairseq_posenc.core.attention.bias import additive_bias, low_rank_bias
from fairseq_posenc.core.attention.transform import transform
from fairseq_posenc.core.terms import LowRank, Relative, RelativeIndex, Rotation, Shift, Terms, Window
from fairseq_posenc.core.transformer.layers import Attention

N, DIM = 7, 4
every_backend = pytest.mark.parametrize("backend", parameters())


GENERATOR = torch.Generator().manual_seed(0)


def random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=GENERATOR, dtype=torch.float64)


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order() -> None:
    GENERATOR.manual_seed(1)


def table(*width: int) -> tuple[Relative]:
    return (Relative(random(1, 2 * N - 1, *width), RelativeIndex(Window(N))),)


KINDS = {
    "plain": Terms(),
    "scalar bias": Terms(biases=table()),
    "dense bias": Terms(biases=(random(1, 3, N, N),)),
    "low-rank bias": Terms(biases=(LowRank(random(1, 3, N, 2), random(1, 3, N, 2)),)),
    "low-rank bias and reset": Terms(biases=(LowRank(random(1, 1, N, 2), random(1, 1, N, 2)),), cls_bias=random(3, 2)),
    "rotation": Terms(transforms=(Rotation(random(N, DIM), random(N, DIM)), Rotation(random(N, DIM), random(N, DIM), False))),
    "shift": Terms(transforms=(Shift(random(3, 1, DIM), random(3, N, DIM)), Shift(queries=random(3, N, DIM)))),
}
UNFIT_FOR_SDPA = {
    "query table": Terms(query_tables=table(DIM)),
    "key table": Terms(key_tables=table(DIM)),
    "value table": Terms(value_tables=table(DIM)),
    "gain": Terms(gains=table()),
    "no content": Terms(content=False, biases=table()),
}
kinds = pytest.mark.parametrize("terms", KINDS.values(), ids=KINDS.keys())


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    return random(2, 3, N, DIM), random(2, 3, N, DIM), random(2, 3, N, DIM)


@kinds
def test_auto_takes_the_fused_kernel_where_it_can(terms: Terms) -> None:
    assert choose("auto", terms).name == "sdpa"


@pytest.mark.parametrize("terms", UNFIT_FOR_SDPA.values(), ids=UNFIT_FOR_SDPA.keys())
def test_auto_falls_back_to_eager_and_sdpa_says_why_not(terms: Terms) -> None:
    assert choose("auto", terms).name == "eager"
    with pytest.raises(ValueError, match=r"attention_backend sdpa .*auto or eager"):
        choose("sdpa", terms)


def test_an_unknown_backend_names_the_known() -> None:
    with pytest.raises(ValueError, match=rf"'flash'.*attention_backend is one of auto, {', '.join(BACKENDS)}"):
        choose("flash", Terms())


@every_backend
def test_an_explicit_choice_is_kept(backend: Backend) -> None:
    assert choose(backend.name, Terms()) is backend


@every_backend
@kinds
def test_a_query_that_sees_nothing_gets_zeros(backend: Backend, terms: Terms) -> None:
    leaves = [tensor.requires_grad_() for tensor in inputs()]
    padding = torch.zeros(2, N, dtype=torch.bool)
    padding[0, 2] = True  # which is all that one query would see, in a document of its own
    padding[1] = True  # a whole sequence
    documents = torch.tensor([0, 0, 2, 3, 3, 3, 3]).expand(2, -1)
    z, _ = attend(backend, terms, *leaves, Mask(padding, documents=documents))
    assert z[0, :, 2].eq(0).all()
    assert z[1].eq(0).all()
    assert z[0, :, 3].ne(0).all()
    for gradient in torch.autograd.grad(z.square().sum(), leaves):
        assert gradient.isfinite().all()
        assert gradient[1].eq(0).all()
        assert gradient[0].ne(0).any()


@every_backend
@kinds
def test_blocked_keys_have_no_effect(backend: Backend, terms: Terms) -> None:
    q, k, v = inputs()
    padding = torch.zeros(2, N, dtype=torch.bool)
    padding[0, 4:] = True
    before, _ = attend(backend, terms, q, k, v, Mask(padding))
    k[0, :, 4:], v[0, :, 4:] = 100.0, -100.0
    torch.testing.assert_close(attend(backend, terms, q, k, v, Mask(padding))[0], before)


@every_backend
@kinds
def test_keys_of_another_document_and_later_ones_have_no_effect(backend: Backend, terms: Terms) -> None:
    q, k, v = inputs()
    mask = Mask(causal=True, documents=torch.tensor([[0, 0, 0, 3, 3, 3, 3]]))
    before, _ = attend(backend, terms, q, k, v, mask)
    k[:, :, [0, 1, 2, 6]], v[:, :, [0, 1, 2, 6]] = 100.0, -100.0
    after, _ = attend(backend, terms, q, k, v, mask)
    torch.testing.assert_close(after[:, :, 3:6], before[:, :, 3:6])
    assert after[:, :, [0, 1, 2, 6]].ne(before[:, :, [0, 1, 2, 6]]).all()


def test_a_low_rank_bias_needs_no_matrix() -> None:
    """The fused kernel gets it as features of queries and keys, and agrees with the matrix of the reference."""
    low_rank = LowRank(random(2, 1, N, 2), random(1, 3, N, 2))
    for terms in (
        Terms(biases=(low_rank, low_rank)),
        Terms(biases=(low_rank,), cls_bias=random(1, 2)),
        Terms(content=False, biases=(low_rank,), cls_bias=random(3, 2)),
    ):
        q, k, v = inputs()
        assert low_rank_bias(terms, call_of(q, k)) is not None
        for queries in (N, 3):
            last = dataclasses.replace(low_rank, left=low_rank.left[..., N - queries :, :])
            cut = dataclasses.replace(terms, biases=(last,) * len(terms.biases))
            expected, *others = (
                attend(backend, cut, q[..., N - queries :, :], k, v, Mask(causal=True))[0]
                for backend in reversed(BACKENDS.values())
                if on_the_cpu(backend) is None
            )
            for found in others:
                torch.testing.assert_close(found, expected)
    assert low_rank_bias(Terms(biases=(low_rank, *table())), call_of(q, k)) is None


@kinds
def test_eager_gives_the_weights_that_it_used(terms: Terms) -> None:
    q, k, v = inputs()
    z, p = attend(BACKENDS["eager"], terms, q, k, v, weights=True)
    torch.testing.assert_close(p.sum(-1), torch.ones_like(p.sum(-1)))
    torch.testing.assert_close(p @ v, z)


@every_backend
def test_dropout_keeps_the_mean(backend: Backend) -> None:
    """With values of one, z is the sum of the weights that are left, each divided by the share that is kept."""
    torch.manual_seed(0)
    q, k = random(2, 2, 64, DIM), random(2, 2, 64, DIM)
    ones = torch.ones(2, 2, 64, DIM, dtype=torch.float64)
    z, _ = attend(backend, Terms(), q, k, ones, dropout=0.5)
    assert z[..., 0].std() > 0.1
    assert math.isclose(z.mean().item(), 1.0, abs_tol=0.1)
    z, _ = attend(backend, Terms(), q, k, ones)
    torch.testing.assert_close(z, ones)


@pytest.mark.parametrize("backend", parameters("band", "eager"))
def test_a_product_does_not_overflow_in_half_precision(backend: Backend) -> None:
    """The product of three numbers of size 10² is beyond float16, and not beyond what it is computed in."""
    tables = (Relative(torch.full((1, 2 * N - 1, DIM), 8.0), RelativeIndex(Window(N))),)
    terms = Terms(combine="multiply", query_tables=tables, key_tables=tables)
    q, v = torch.full((1, 1, N, DIM), 8.0, dtype=torch.float16), torch.randn(1, 1, N, DIM, dtype=torch.float16)
    z, _ = attend(backend, terms, q, q, v)
    assert z.dtype == torch.float16
    torch.testing.assert_close(z, v.mean(2, keepdim=True).expand_as(v), rtol=1e-2, atol=1e-2)


ROWS = torch.arange(64.0)
LARGE_BIASES = {
    "a constant with small differences": 8 + 0.5 * torch.randn(1, 2, 64, 64, generator=torch.Generator().manual_seed(0)),
    "a slope below a constant": 300 - 4 * (ROWS - ROWS[:, None]).abs()[None, None],
    "far more at hidden keys": 0.02 * ROWS.expand(1, 2, 64, -1) + 500 * (ROWS >= 40) + 500 * (ROWS[:, None] < ROWS),
    "beyond float16": 70_000 + 0.5 * ROWS.expand(1, 1, 64, -1) * (-1) ** ROWS,
}


@every_backend
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", LARGE_BIASES)
def test_a_constant_of_a_bias_takes_no_precision_from_its_differences(backend: Backend, dtype: torch.dtype, name: str) -> None:
    """Weights are read off values that are unit vectors; three keys in eight are padding, as is one whole sequence."""
    bias = LARGE_BIASES[name].float().requires_grad_()
    zeros, values = torch.zeros(2, 2, 64, 64, dtype=dtype), torch.eye(64, dtype=dtype).expand(2, 2, 64, 64)
    padding = torch.stack([ROWS >= 40, ROWS >= 0])
    if backend.objection(Terms(biases=(bias,)), call_of(zeros, zeros)):
        pytest.skip("it takes no bias in this precision")
    z, _ = attend(backend, Terms(biases=(bias,)), zeros, zeros, values, Mask(padding, causal=True))
    hidden = padding[0] | (ROWS[:, None] < ROWS)
    p = bias.detach().double().expand(1, 2, 64, 64).masked_fill(hidden, -torch.inf).softmax(-1)
    assert (z[:1].double() - p).abs().sum(-1).max() < 0.015
    assert not z[1].any()
    z.square().sum().backward()
    assert bias.grad.isfinite().all()


def test_biases_in_half_precision_are_added_in_float32() -> None:
    far, near = torch.full((1, 1, 4, 4), 256.0).bfloat16(), (torch.arange(4) / 4).bfloat16().expand(1, 1, 4, 4)
    q = torch.zeros(1, 1, 4, 4)
    assert (additive_bias(Terms(biases=(far, near)), call_of(q, q)) - 256).equal(near.float())


def test_a_rotation_is_rounded_once_in_half_precision() -> None:
    """Its sines stay in float32, and so does what they are multiplied with."""
    angles = torch.arange(N, dtype=torch.float32)[:, None] * torch.ones(DIM)
    terms = Terms(transforms=(Rotation(angles.cos(), angles.sin()),))
    q = torch.randn(1, 3, N, DIM, dtype=torch.bfloat16)
    for found, exact in zip(transform(q, q, terms), transform(q.double(), q.double(), terms), strict=True):
        torch.testing.assert_close(found.double(), exact, rtol=2**-8, atol=1e-6)


@every_backend
@pytest.mark.parametrize("masked", [False, True])
def test_autocast(backend: Backend, masked: bool) -> None:
    """Parameters and terms in float32, projections in bfloat16."""
    torch.manual_seed(0)
    attention = Attention(3 * DIM, 3)
    bias = torch.randn(1, 3, N, N, requires_grad=True)
    terms, x = Terms(biases=(bias,)), torch.randn(2, N, 3 * DIM)
    padding = torch.zeros(2, N, dtype=torch.bool)
    padding[0, 5:] = masked
    mask, call = Mask(padding if masked else None), Call(x.device, x.dtype, DIM, N, N)
    expected, _ = attention(x, backend.bind(terms, mask, call))
    with torch.autocast("cpu", torch.bfloat16):
        found, _ = attention(x, backend.bind(terms, mask, dataclasses.replace(call, dtype=torch.bfloat16)))
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=0.05)
    found.float().square().sum().backward()
    assert bias.grad.isfinite().all()
    assert bias.grad.ne(0).any()


@pytest.mark.parametrize("backend", parameters("band", "chunked", "eager"))
def test_autocast_of_tables(backend: Backend) -> None:
    """Tables in float32, queries, keys and values in bfloat16."""
    vectors = [(Relative(random(1, 2 * N - 1, DIM).float().requires_grad_(), RelativeIndex(Window(N))),) for _ in range(3)]
    terms = Terms(query_tables=vectors[0], key_tables=vectors[1], value_tables=vectors[2])
    leaves = [terms.query_tables[0].table, terms.key_tables[0].table, terms.value_tables[0].table]
    exact = [tensor.float() for tensor in inputs()]
    results = []
    for dtype in (torch.float32, torch.bfloat16):
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            z, _ = attend(backend, terms, *(tensor.to(dtype) for tensor in exact))
        assert z.dtype == dtype
        results.append([z.float(), *torch.autograd.grad(z.float().square().sum(), leaves)])
    for found, expected in zip(*reversed(results), strict=True):
        assert (found - expected).norm() < 0.03 * expected.norm()


@pytest.mark.parametrize("backend", parameters("band", "chunked"))
def test_torch_compile_goes_around_it(backend: Backend) -> None:
    """One graph before it and one after it."""
    leaves, graphs = [tensor.requires_grad_() for tensor in inputs()], []
    terms = Terms(query_tables=table(DIM), value_tables=table(DIM))
    attend_to = backend.bind(terms, Mask(causal=True), call_of(*leaves[:2], dropout=0.2))

    def function(*tensors: Tensor) -> Tensor:
        return attend_to(*(tensor * 2 for tensor in tensors))[0].sin()

    compiled = torch.compile(function, backend=lambda graph, _: graphs.append(graph) or graph)
    results = []
    for run in (function, compiled):
        torch.manual_seed(0)
        z = run(*leaves)
        results.append([z, *torch.autograd.grad(z.sum(), leaves)])
    assert len(graphs) == 2
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected)


def test_heads_must_divide_the_model() -> None:
    message = "dim 10 does not divide into heads 4"
    with pytest.raises(ValueError, match=re.escape(message)):
        Attention(10, 4)
