"""The band kernels in Triton's interpreter, with tiles so small that every case has several: values, gradients, memory."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch
from attending import attend, call_of, on_the_cpu
from cases import thorough_but
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from fairseq_posenc.core.attention import BACKENDS, Call, Mask, band, choose
from fairseq_posenc.core.terms import LowRank, Relative, RelativeIndex, Rotation, Terms, Window

BAND, EAGER = BACKENDS["band"], BACKENDS["eager"]
interpreted = pytest.mark.skipif(on_the_cpu(BAND) is not None, reason=str(on_the_cpu(BAND)))
B, H, DIM = 2, 2, 6


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(band, "block_size", lambda *_, **__: 16)


GENERATOR = torch.Generator().manual_seed(0)


def random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=GENERATOR, dtype=torch.float64).requires_grad_()


def table(window: Window, *width: int, heads: int = H, clip: int | None = None, cls: bool = False) -> tuple[Relative]:
    """A random table of one kind: a row per offset or, with a clip, per offset within it; two more rows for [CLS]."""
    offsets = window.queries + window.keys - 1
    count, rows = offsets, torch.arange(offsets) if cls else None
    if clip is not None:
        count, rows = 2 * clip + 1, window.offsets.clamp(-clip, clip) + clip
    index = RelativeIndex(window, rows, (count, count + 1) if cls else None)
    return (Relative(random(heads, count + 2 * cls, *width), index),)


def everything(window: Window, clip: int | None = None, cls: bool = False) -> Terms:
    """All kinds of tables at once; [CLS] may have biases of its own."""
    vectors = {f"{name}_tables": table(window, DIM, clip=clip) for name in ("query", "key", "value")}
    gains, biases = (table(window, clip=clip) for _ in range(2))
    return Terms(**vectors, gains=gains, biases=biases, factor=2.0, cls_bias=random(1, 2) if cls else None)


def leaves(terms: Terms) -> list[Tensor]:
    """Every tensor of the terms that has a gradient."""
    kinds = [value for value in vars(terms).values() if isinstance(value, tuple)]
    found = [terms.cls_bias, *(item for kind in kinds for item in kind)]
    found = [tensor for item in found for tensor in ([item] if isinstance(item, (Tensor, type(None))) else vars(item).values())]
    return [tensor for tensor in found if isinstance(tensor, Tensor) and tensor.requires_grad]


def assert_agrees(terms: Terms, queries: int, keys: int, mask: Mask, head_dim: int = DIM) -> None:
    """z and every gradient, to rounding."""
    inputs = random(B, H, queries, head_dim), random(B, H, keys, head_dim), random(B, H, keys, head_dim)
    cotangent = torch.randn(B, H, queries, head_dim, dtype=torch.float64)
    results = []
    for backend in (BAND, EAGER):
        z, _ = attend(backend, terms, *inputs, mask)
        results.append((z, *torch.autograd.grad(z, [*inputs, *leaves(terms)], cotangent)))
    for found, expected in zip(*results, strict=True):
        assert found.ne(0).any()
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def padding(keys: int) -> Tensor:
    return torch.arange(keys) >= torch.tensor([[keys], [keys // 2]])


LONG, FULL, CACHED, STEP = Window(33), Window(23), Window(27, 18, causal=True), Window(27, 1, causal=True)
CASES = {  # terms, window, mask
    "plain": (Terms(), FULL, Mask(padding(23))),
    "plain, documents": (Terms(), FULL, Mask(causal=True, documents=torch.tensor([0] * 14 + [14] * 2 + [16] * 7).expand(B, -1))),
    "everything, [CLS]": (everything(FULL, cls=True), FULL, Mask(padding(23))),
    "everything, [CLS], three tiles": (everything(LONG, cls=True), LONG, Mask(padding(33))),
    "everything, clip, queries of a cache": (everything(CACHED, clip=4), CACHED, Mask(causal=True)),
    "everything, the one query of a step": (everything(STEP, clip=4), STEP, Mask(causal=True)),
    "everything, [CLS], a window": (replace(everything(LONG, cls=True), window=3), LONG, Mask(padding(33))),
    "everything, clip, a window, queries of a cache": (
        replace(everything(CACHED, clip=4), window=9),
        CACHED,
        Mask(causal=True),
    ),
    "a window of one key": (Terms(window=0), FULL, Mask(documents=torch.tensor([[0] * 7 + [7] * 16]))),
    "product": (
        Terms(combine="multiply", query_tables=table(FULL, DIM, heads=1), key_tables=table(FULL, DIM, clip=3)),
        FULL,
        Mask(documents=torch.tensor([[0] * 7 + [7] * 16])),
    ),
    "dense and scalar bias, θ of [CLS]": (
        Terms(biases=(random(1, H, 23, 23), *table(FULL)), cls_bias=random(1, 2)),
        FULL,
        Mask(),
    ),
    "a bias per sequence, without q·k": (
        Terms(content=False, biases=(random(B, 1, 23, 23),), key_tables=table(FULL, DIM), query_tables=table(FULL, DIM)),
        FULL,
        Mask(causal=True),
    ),
    "low-rank and scalar bias, θ of [CLS], rotation": (
        Terms(
            biases=(LowRank(random(1, H, 23, 3), random(1, H, 23, 3)), *table(FULL, clip=7)),
            cls_bias=random(H, 2),
            transforms=(Rotation(random(23, DIM), random(23, DIM)),),
        ),
        FULL,
        Mask(padding(23)),
    ),
}


@interpreted
@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize(
    "case",
    thorough_but(["plain", "product", "low-rank and scalar bias, θ of [CLS], rotation"], CASES, ["everything, [CLS], a window"]),
)
def test_every_kind_of_term_over_several_tiles(case: str) -> None:
    terms, window, mask = CASES[case]
    assert_agrees(terms, window.queries, window.keys, mask)


@interpreted
@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize(("queries", "keys"), [(33, 20), (5, 33), (1, 33)])
def test_a_decoders_attention_to_an_encoders_states(queries: int, keys: int) -> None:
    """It has no positions, and any number of queries; without this backend, ``auto`` has the others agree as well."""
    assert_agrees(Terms(), queries, keys, Mask(padding(keys)))


@interpreted
@pytest.mark.parametrize("head_dim", thorough_but((), (32, 80, 128), (80,)))
def test_head_dimensions(head_dim: int) -> None:
    window = Window(18)
    vectors = {f"{name}_tables": table(window, head_dim) for name in ("query", "key", "value")}
    assert_agrees(Terms(**vectors), 18, 18, Mask(padding(18)), head_dim)


@interpreted
@pytest.mark.parametrize("n", [7, 17])
def test_features_are_filled_up(n: int) -> None:
    terms, inputs = everything(Window(n)), [random(1, H, n, DIM) for _ in range(3)]
    torch.testing.assert_close(attend(BAND, terms, *inputs)[0], attend(EAGER, terms, *inputs)[0])
    wide = [random(1, H, n, 40) for _ in range(3)]
    terms = Terms(query_tables=table(Window(n), 40), value_tables=table(Window(n), 40))
    torch.testing.assert_close(attend(BAND, terms, *wide)[0], attend(EAGER, terms, *wide)[0])


@interpreted
@pytest.mark.parametrize("dtype", thorough_but([torch.bfloat16], [torch.float32, torch.bfloat16, torch.float16]), ids=str)
@pytest.mark.parametrize("combine", ["add", "multiply"])
def test_precision(dtype: torch.dtype, combine: Literal["add", "multiply"]) -> None:
    """z and gradients are as close to float64's as those of the reference in the same precision, or nearly so."""
    torch.manual_seed(0)
    window, n = Window(20), 20
    exact = [random(1, H, n, DIM) for _ in range(3)] + [random(H, 2 * n - 1, DIM) for _ in range(2)] + [random(H, 2 * n - 1)]
    cotangent = torch.randn(1, H, n, DIM, dtype=torch.float64)

    def run(name: str, as_type: torch.dtype) -> list[Tensor]:
        q, k, v, a, b, scalar = tensors = [tensor.detach().to(as_type).requires_grad_() for tensor in exact]
        a, b, scalar = ((Relative(table, RelativeIndex(window)),) for table in (a, b, scalar))
        z, _ = attend(BACKENDS[name], Terms(combine=combine, query_tables=a, key_tables=b, biases=scalar), q, k, v)
        return [z, *torch.autograd.grad(z, tensors, cotangent.to(as_type))]

    expected = run("eager", torch.float64)
    found, reference = (
        [((value.double() - right).norm() / right.norm()).item() for value, right in zip(run(name, dtype), expected, strict=True)]
        for name in ("band", "eager")
    )
    assert max(found) <= 3 * max(reference) + 4 * torch.finfo(dtype).eps


@interpreted
def test_dropout_draws_the_same_mask_in_backward_and_under_checkpointing() -> None:
    """The slope along a random direction is that of differences under the same seed; a recomputation draws the same again."""
    terms, mask = Terms(query_tables=table(Window(9), DIM), value_tables=table(Window(9), DIM)), Mask(causal=True)
    tensors = [random(B, H, 9, DIM) for _ in range(3)] + leaves(terms)

    def loss(inputs: list[Tensor], checkpointed: bool = False) -> Tensor:
        torch.manual_seed(3)
        a, v = (Relative(tensor, RelativeIndex(Window(9))) for tensor in inputs[3:])
        attend_to = BAND.bind(Terms(query_tables=(a,), value_tables=(v,)), mask, call_of(*inputs[:2], dropout=0.3))
        z, _ = checkpoint(attend_to, *inputs[:3], use_reentrant=False) if checkpointed else attend_to(*inputs[:3])
        return z.sin().sum()

    results = [torch.autograd.grad(loss(tensors, checkpointed), tensors) for checkpointed in (False, True)]
    for found, expected in zip(*results, strict=True):
        assert found.equal(expected)
    step = 1e-6
    directions = [torch.randn_like(tensor) for tensor in tensors]
    with torch.no_grad():
        ends = [loss([t + sign * step * d for t, d in zip(tensors, directions, strict=True)]) for sign in (1, -1)]
    slope = sum((gradient * direction).sum() for gradient, direction in zip(results[0], directions, strict=True))
    torch.testing.assert_close((ends[0] - ends[1]) / (2 * step), slope, rtol=1e-6, atol=1e-6)


@interpreted
@pytest.mark.usefixtures("small_tiles")
def test_dropout_draws_each_pair_by_itself() -> None:
    """Of weights that are all alike, and values that say which key they are of."""
    n = 32
    zeros, values = torch.zeros(B, H, n, n), torch.eye(n).expand(B, H, n, n).contiguous()
    torch.manual_seed(0)
    z, _ = attend(BAND, Terms(), zeros, zeros, values, dropout=0.5)
    kept = z.flatten(0, 2) > 0
    assert abs(kept.double().mean() - 0.5) < 4 * (0.25 / kept.numel()) ** 0.5
    for lines in (kept, kept.T):
        assert len(lines.unique(dim=0)) == len(lines)


@interpreted
def test_kernels_start_on_the_device_of_their_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[Tensor] = []
    monkeypatch.setattr(torch.cuda, "device_of", lambda tensor: entered.append(tensor) or nullcontext())
    attend(BAND, Terms(), *(random(1, 1, 7, DIM) for _ in range(3)))
    assert [tensor.shape for tensor in entered] == [(1, 7, 1, DIM)]


class Largest(TorchDispatchMode):
    """Remembers the bytes of the largest tensor made."""

    bytes = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        result = function(*arguments, **(options or {}))
        for made in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(made, Tensor):
                self.bytes = max(self.bytes, made.nbytes)
        return result


@pytest.mark.thorough
@interpreted
def test_memory_is_linear_in_the_length() -> None:
    n = 90
    inputs = [torch.randn(1, 1, n, 4, requires_grad=True) for _ in range(3)]
    index = RelativeIndex(Window(n))
    terms = Terms(query_tables=(Relative(torch.randn(1, 2 * n - 1, 4, requires_grad=True), index),))
    with Largest() as largest:
        z, _ = attend(BAND, terms, *inputs)
        z.sum().backward()
    assert largest.bytes < n * n * 4 / 2


GPU = Call(torch.device("cuda"), torch.bfloat16, 64, 512, 512)
WINDOW = Window(7)


def test_auto_does_not_take_it_before_it_has_run_on_a_gpu() -> None:
    assert choose("auto", everything(WINDOW), GPU).name == "eager"


@pytest.mark.parametrize(
    ("terms", "change", "reason"),
    [
        (Terms(), {"weights": True}, "weights"),
        (Terms(), {"device": torch.device("cpu")}, "not on cpu"),
        (Terms(), {"dtype": torch.float64}, "torch.float64"),
        (Terms(), {"head_dim": 192}, "at most 128"),
        (Terms(combine="multiply", content=False, query_tables=table(WINDOW, 4)), {}, "product without"),
        (Terms(biases=(LowRank(random(1, 1, 7, 2), random(1, 1, 7, 2)),), gains=table(WINDOW)), {}, "low rank"),
        (Terms(biases=table(WINDOW, cls=True)), {}, r"rows for \[CLS\]"),
        (Terms(value_tables=table(WINDOW, 4, cls=True)), {}, r"rows for \[CLS\]"),
    ],
)
def test_it_says_what_it_does_not_run(
    terms: Terms, change: dict[str, object], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(type(BAND), "missing", None)
    with pytest.raises(ValueError, match=reason):
        choose("band", terms, dataclasses.replace(GPU, **change))


@pytest.mark.skipif(BAND.missing is not None, reason=str(BAND.missing))
@pytest.mark.thorough
def test_kernels_compile_without_a_gpu() -> None:
    """For the GPUs of a data centre, in a process of its own, where nothing is interpreted; one program for all lengths."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, Path(__file__).with_name("compile_band.py"), "80", "--cases", "packed"]
    subprocess.run(command, check=True, env=environment)
