"""What is special to FlexAttention, without gradients, which it has on GPUs only.

That it agrees with the reference is tested with each scheme, in tests/core/conformance.
"""

from __future__ import annotations

import dataclasses
import re
from itertools import pairwise

import pytest
import torch
from attending import attend
from cases import thorough_but
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_posenc.core.attention import BACKENDS, Call, Mask, choose, flex
from fairseq_posenc.core.families import expressions
from fairseq_posenc.core.schemes import Positions, Settings
from fairseq_posenc.core.terms import LowRank, Relative, RelativeIndex, Rotation, Terms, Window
from fairseq_posenc.core.transformer import Encoder, EncoderConfig

FLEX, EAGER = BACKENDS["flex"], BACKENDS["eager"]
H, DIM = 3, 8
CUDA = Call(torch.device("cuda"), torch.float32, DIM, 7, 7)


@pytest.fixture(autouse=True)
def _without_gradients() -> None:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def random(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def relative(window: Window, *width: int, heads: int = H) -> Relative:
    return Relative(random(heads, len(window.offsets), *width), RelativeIndex(window))


def starts(lengths: list[int]) -> Tensor:
    """(1, n): of documents of these lengths."""
    ends = torch.tensor([0, *lengths]).cumsum(0).tolist()
    return torch.tensor([[first for first, last in pairwise(ends) for _ in range(first, last)]])


def padding(n: int, *lengths: int) -> Tensor:
    return torch.arange(n) >= torch.tensor(lengths)[:, None]


MASKS = {
    "none": Mask(),
    "padding": Mask(padding(259, 259, 200, 0)),
    "causal": Mask(causal=True),
    "documents": Mask(documents=starts([100, 1, 58, 100])),
    "all": Mask(padding(259, 259, 150, 0), True, starts([130, 129]).expand(3, -1)),
}


@pytest.mark.parametrize("queries", thorough_but((60,), [259, 60, 1]))
@pytest.mark.parametrize("window", [None, 0, 40])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
def test_masks_agree_with_the_reference(mask: Mask, window: int | None, queries: int) -> None:
    """With odd lengths, fewer queries than keys, and queries that see no key, whose output is zero."""
    n = 259
    bias = relative(Window(n, queries))
    q, k, v = random(3, H, queries, DIM), random(3, H, n, DIM), random(3, H, n, DIM)
    for terms in (Terms(biases=(bias,), window=window), Terms(window=window)):
        z, expected = (attend(backend, terms, q, k, v, mask)[0] for backend in (FLEX, EAGER))
        torch.testing.assert_close(z, expected)
    if mask.padding is not None:
        assert z[2].eq(0).all()


@pytest.mark.parametrize("queries", [10, 200])
def test_a_target_may_be_longer_than_its_source(queries: int) -> None:
    keys = 5 * queries // 6
    q, k, v = random(2, H, queries, DIM), random(2, H, keys, DIM), random(2, H, keys, DIM)
    z, expected = (attend(backend, Terms(), q, k, v, Mask(padding(keys, keys, keys - 2)))[0] for backend in (FLEX, EAGER))
    torch.testing.assert_close(z, expected)


@pytest.mark.parametrize("queries", thorough_but((259,), [1, 100, 259, 700]))
@pytest.mark.parametrize("window", [None, 0, 100, 300])
@pytest.mark.parametrize("name", MASKS)
def test_blocks_are_those_of_the_mask_of_all_pairs(name: str, window: int | None, queries: int) -> None:
    """As PyTorch finds them. A few more may be visited if there is a window, in which no pair is visible."""
    n = 700
    masks = {
        "padding": Mask(padding(n, n, 390, 0)),
        "documents": Mask(documents=starts([100, 1, 283, 128, 188])),
        "all": Mask(padding(n, n, 390, 0), True, starts([300, 84, 316]).expand(3, -1)),
    }
    mask = masks.get(name, MASKS[name])
    call = Call(torch.device("cpu"), torch.float32, DIM, queries, n)
    found, blocked = flex.block_mask(mask, call, window), mask.blocked(call, window)
    if found is None:
        assert blocked is None or not blocked.any()
        return
    expected = create_block_mask(found.mask_mod, *found.kv_num_blocks.shape[:2], queries, n, device="cpu")
    assert found.full_kv_num_blocks.equal(expected.full_kv_num_blocks)
    visited, needed = found.to_dense().bool(), expected.to_dense().bool()
    assert visited[needed].all()
    assert (visited == needed).all() or (window is not None and visited.sum() <= 1.5 * needed.sum())


class Largest(TorchDispatchMode):
    """The number of entries of the largest tensor that is made."""

    entries = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        result = function(*arguments, **(options or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, Tensor):
                self.entries = max(self.entries, tensor.numel())
        return result


@pytest.mark.parametrize("backend", ["flex", "sdpa"])
def test_a_window_over_documents_makes_no_matrix_of_all_pairs(backend: str) -> None:
    n, window = 8192, 64
    mask = Mask(padding(n, n, n - 100).to("meta"), documents=starts([1000, n - 1000]).to("meta"))
    call = Call(torch.device("meta"), torch.float32, DIM, n, n)
    q = torch.empty(2, H, n, DIM, device="meta")
    with Largest() as largest:
        attend_to = BACKENDS[backend].bind(Terms(window=window), mask, call)
        if backend == "sdpa":
            assert attend_to(q, q, q)[0].shape == q.shape
    assert largest.entries <= 2 * H * n * 2 * window


@pytest.mark.parametrize("first", [None, torch.tensor([[True, *[False] * 8, True, *[False] * 7]])])
@pytest.mark.parametrize("positions", [None, torch.arange(17)[None], torch.arange(34).view(2, 17).flip(1)])
@pytest.mark.parametrize("low_rank", [False, True])
def test_biases_of_cls_agree_with_the_reference(positions: Tensor | None, first: Tensor | None, low_rank: bool) -> None:
    """In place of the sum of all others, where positions are contiguous and where they are any."""
    if positions is None and first is not None:
        positions = torch.arange(17)[None]
    window = Window(17, 11, positions=positions, span=None if positions is None else 34, first=first)
    more = (LowRank(random(2, 1, 11, 2), random(1, H, 17, 2)),) if low_rank else ()
    q, k, v = random(2, H, 11, DIM), random(2, H, 17, DIM), random(2, H, 17, DIM)
    reset = {"cls_bias": random(1, 2), "cls_first": first}
    for terms in (Terms(biases=(relative(window), *more), **reset), Terms(biases=more, **reset)):
        found, expected = (attend(backend, terms, q, k, v)[0] for backend in (FLEX, EAGER))
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_and_autocast(dtype: torch.dtype) -> None:
    """Scores, with their biases, are in float32."""
    window = Window(40)
    terms = Terms(biases=(Relative(300 + 4 * random(H, 79).float(), RelativeIndex(window)),))
    q, k, v = (random(2, H, 40, DIM).to(dtype) for _ in range(3))
    z, exact = attend(FLEX, terms, q, k, v)[0], attend(EAGER, terms, q.double(), k.double(), v.double())[0]
    assert z.dtype == dtype
    assert (z.double() - exact).norm() < torch.finfo(dtype).eps * exact.norm()
    with torch.autocast("cpu", dtype):
        attend_to = FLEX.bind(terms, Mask(), dataclasses.replace(CUDA, device=q.device, dtype=dtype, queries=40, keys=40))
        torch.testing.assert_close(attend_to(q.float(), k.float(), v.float())[0], z)


ANY = Window(7)
REAL = Window(7, positions=torch.arange(7)[None] / 2)


@pytest.mark.parametrize(
    ("terms", "change", "reason"),
    [
        (Terms(query_tables=(relative(ANY, DIM),)), {}, "no place for vectors that multiply queries or keys (A, B)"),
        (Terms(value_tables=(relative(ANY, DIM),), gains=(relative(ANY),)), {}, "values (V) or gains that multiply the scores"),
        (Terms(content=False, biases=(relative(ANY),)), {}, "scores without q·k"),
        (Terms(biases=(random(1, H, 7, 7),)), {}, "differs from pair to pair"),
        (Terms(biases=(Relative(random(H, 15), RelativeIndex(ANY, torch.arange(13), (13, 14))),)), {}, "rows for [CLS]"),
        (Terms(biases=(relative(REAL),)), {}, "positions that are real numbers"),
        (Terms(), {"weights": True}, "does not give the attention weights"),
        (Terms(), {"dropout": 0.1}, "no dropout of attention weights"),
        (Terms(), {"dtype": torch.float64}, "do not compute in torch.float64"),
    ],
)
def test_it_says_what_it_does_not_run(terms: Terms, change: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        choose("flex", terms, dataclasses.replace(CUDA, **change))


def test_it_is_taken_by_name_only() -> None:
    assert choose("flex", Terms(), CUDA) is FLEX
    assert choose("auto", Terms(), CUDA).name == "sdpa"


def test_a_gradient_on_a_cpu_is_refused() -> None:
    encoder = Encoder(EncoderConfig(vocab_size=9, layers=1, dim=8, ffn_dim=8, heads=2, max_positions=8, attention_backend="flex"))
    tokens = torch.tensor([[4, 5, 6]])
    assert encoder.eval()(tokens).last_hidden_state.isfinite().all()
    with torch.enable_grad(), pytest.raises(ValueError, match="no backward pass on a CPU"):
        encoder(tokens)


def test_the_schemes_that_it_runs() -> None:
    taken = set()
    for name, expression in expressions().items():
        try:
            choose("flex", Positions(expression, Settings(1, 2, 16, 8, 2)).probes()[0])
        except ValueError:
            continue
        taken.add(name)
    biased = {
        "t5",
        "raffel",
        "tisa",
        "alibi",
        "kerple",
        "log_cpb",
        "bert_r",
        "absolute_tisa",
        "tupe_a",
        "tupe_r",
        "tupe_r_tie_cls",
    }
    assert biased | {"absolute", "sinusoidal", "rope", "liere", "pope", "floater", "none"} <= taken
    assert not taken & {"shaw", "m1", "m2", "m4", "m4m", "deberta", "transformer_xl", "fire", "cable", "synthesizer_dense"}


@pytest.mark.slow
def test_compiled_kernels_agree_with_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those for a CPU, which leave blocks out; one program serves other lengths, documents and windows."""
    run = torch.compile(flex.flex_attention, fullgraph=True)
    monkeypatch.setattr(flex, "_run", run)
    programs = []
    for n, lengths, reach in (
        (300, [200, 100], 40),
        (420, [20, 300, 100], None),
        (700, [300, 300, 100], 100),
        (513, [500, 13], 7),
    ):
        window = Window(n)
        bias = Relative(torch.randn(H, 2 * n - 1), RelativeIndex(window))
        angles = torch.arange(n, dtype=torch.float32)[:, None] * torch.ones(32)
        terms = Terms(biases=(bias,), transforms=(Rotation(angles.cos(), angles.sin()),), window=reach)
        mask = Mask(padding(n, n, n - 30, 0), documents=starts(lengths))
        q, k, v = (torch.randn(3, H, n, 32) for _ in range(3))
        found, expected = (attend(backend, terms, q, k, v, mask)[0] for backend in (FLEX, EAGER))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        programs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert programs[1:] == programs[1:2] * 3  # the first is for its length alone
