"""Functions of the offset, asked of the live terms, against the schemes' equations; and the kinds of heads."""

import math
from dataclasses import replace

import pytest
import torch
from encoders import N, encoder_of

from fairseq_posenc.core.attention.eager import scores
from fairseq_posenc.study.analyze.embeddings import average_word, rank
from fairseq_posenc.study.analyze.offsets import (
    OffsetFunction,
    functions_of_average_word,
    has_own_cls,
    kind_of,
    offset_functions,
    term_matrices,
)
from fairseq_posenc.study.analyze.pictures import function_figure, largest_visible_offset
from fairseq_posenc.study.analyze.trace import trace


def functions_of(positions, **options):
    encoder = encoder_of(positions, **options)
    layers = trace(encoder, torch.randint(3, 30, (4, N))).layers
    return encoder.positions, layers, offset_functions(term_matrices(layers), has_own_cls(layers))


def test_tisa_is_its_sum_of_kernels():
    positions, _, functions = functions_of("tisa")
    scheme, (values, r2) = positions.tisa, (functions["bias"].values, functions["bias"].r_squared)
    for layer in range(2):
        for head in range(2):
            kernels = zip(*(p[layer, head].tolist() for p in (scheme.amplitude, scheme.sharpness, scheme.offset)), strict=True)
            kernels = list(kernels)
            expected = [sum(a * math.exp(-abs(b) * (r - c) ** 2) for a, b, c in kernels) for r in range(1 - N, N)]
            assert values[layer, head].tolist() == pytest.approx(expected)
    assert r2.flatten().tolist() == pytest.approx([1] * 4)
    assert functions["bias"].cls is None


def test_the_content_of_rope_is_its_rotation_of_the_average_word():
    """s Σ_t |q_t||k_t| cos(r θ_t + φ_t) of pair t, less its mean: written with complex numbers."""
    encoder = encoder_of("rope")
    content = functions_of_average_word(encoder, N)["content"]
    layer = trace(encoder, torch.zeros(1, N, dtype=torch.long), inputs_embeds=average_word(encoder).expand(1, N, -1)).layers[1]
    q, k = (torch.view_as_complex(x[0, 1, 0].view(2, 2)) for x in (layer.queries, layer.keys))
    angles = 10_000.0 ** (-torch.arange(2) / 2)
    scores = torch.stack([(q.conj() * k * torch.exp(1j * r * angles)).sum().real * 0.5 for r in range(1 - N, N)])
    weights = torch.tensor([N - abs(r) for r in range(1 - N, N)])
    expected = scores - (scores * weights).sum() / N**2
    assert torch.allclose(content.values[1, 1], expected.double(), atol=1e-6)
    assert content.r_squared.flatten().tolist() == pytest.approx([1] * 4)


@pytest.mark.parametrize(
    ("positions", "layers_with"),
    [
        ("tisa | none", {"bias": [1]}),
        ("none | tisa", {"bias": [2]}),
        ("tisa | rope", {"content": [1, 2], "bias": [1]}),
        ("t5 | m4", {"bias": [1], "query": [2], "key": [2]}),
        ("m2 | t5(window=3)", {"bias": [2], "gain": [1]}),
        ("synthesizer_random | rope", {"content": [2], "bias": [1]}),
        ("gemma", {"content": [*range(1, 8)]}),
        ("modernbert", {"content": [*range(1, 8)]}),
        ("rnope", {"content": [*range(1, 8)]}),
    ],
)
def test_layers_may_have_different_terms(positions, layers_with):
    encoder = encoder_of(positions, layers=2 if "|" in positions else 7)
    functions = functions_of_average_word(encoder, N)
    for term, function in functions.items():
        absent = function.r_squared.isnan()
        assert torch.equal(function.values.isnan().all(-1), absent)
        panels = [title for panel in function_figure(term, function).axes if (title := panel.get_title())]
        assert panels == [f"layer {layer}" for layer in layers_with[term]]
    found = {term: (~function.r_squared.isnan().all(-1)).nonzero()[:, 0].add(1).tolist() for term, function in functions.items()}
    assert found == layers_with


def test_cls_may_have_its_own_terms_in_one_layer():
    encoder = encoder_of("t5 | t5+reset")
    bias = functions_of_average_word(encoder, N)["bias"]
    assert bias.values.shape == (2, 2, 2 * (N - 1) - 1)
    assert torch.allclose(bias.cls[1], encoder.positions.sums[1].reset.cls[0])
    assert bias.r_squared.flatten().tolist() == pytest.approx([1] * 4)


def test_offsets_beyond_the_window_have_no_values():
    whole, cut = (functions_of_average_word(encoder_of(f"tisa{window} | none"), N)["bias"] for window in ("", "(window=2)"))
    beyond = torch.arange(1 - N, N).abs() > 2
    assert torch.equal(cut.values[0].isnan(), beyond.expand(2, -1))
    assert torch.equal(cut.values[0, :, ~beyond], whole.values[0, :, ~beyond])
    assert cut.r_squared[0].tolist() == pytest.approx([1, 1])
    shown = [line.get_xdata() for line in function_figure("bias", cut).axes[0].lines if line.get_label().startswith("head")]
    assert [(min(x), max(x)) for x in shown] == [(-2, 2)] * 2


@pytest.mark.parametrize("positions", ["rope+shaw", "transformer_xl"])
def test_sizes_of_products_are_those_of_transformed_queries(positions):
    """|s q·A_r| of the reference backend, without the products of queries and keys."""
    layer = trace(encoder_of(positions), torch.randint(3, 30, (1, N))).layers[0]
    terms = replace(layer.terms, content=False, key_tables=())
    expected = scores(layer.queries, layer.keys, terms, layer.scale)[0].abs()
    assert torch.allclose(term_matrices([layer])["query"][0], expected)


def test_functions_are_drawn_as_far_as_they_reach():
    """One kernel of width 1 at -7: what is left of it at distance 1 is 1/e, at distance 2 e^-4, less than 2 percent."""
    r = torch.arange(-50, 51)
    values = 2 * torch.exp(-((r + 7.0) ** 2)).expand(3, 2, -1).clone()
    values[1:] *= torch.tensor([1.0, 0.5])[:, None]
    assert largest_visible_offset(values) == 8
    figure = function_figure("bias", OffsetFunction(values, torch.ones(3, 2)))
    assert [panel.get_title() for panel in figure.axes] == ["layer 1", "layer 2", "layer 3"]
    for layer, panel in enumerate(figure.axes):
        lines = [line for line in panel.lines if line.get_label().startswith("head")]
        assert (
            len({(line.get_color(), line.get_linestyle()) for line in lines})
            == len({line.get_linestyle() for line in lines})
            == 2
        )
        for head, line in enumerate(lines):
            assert list(line.get_xdata()) == list(range(-8, 9))
            assert torch.equal(torch.as_tensor(line.get_ydata()), values[layer, head, 42:59])


def test_gains_and_lengths_of_values_are_the_tables():
    positions, _, functions = functions_of("m2")
    assert torch.allclose(functions["gain"].values, positions.m2.weight)
    positions, _, functions = functions_of("shaw")
    assert torch.allclose(functions["value"].values, positions.shaw.values.norm(dim=-1))


@pytest.mark.parametrize(("positions", "scale"), [("m4", 0.5), ("m4m", 1.0)])
def test_vectors_count_by_the_mean_size_of_their_products(positions, scale):
    """mean |q_i·a_r| over the text and the pairs of that offset; scaled by 1/√d, d = 4, where it is added to the scores."""
    scheme, layers, functions = functions_of(positions)
    table = getattr(scheme, positions).weight
    for term, x in (("query", layers[1].queries), ("key", layers[1].keys)):
        for r in range(1 - N, N):
            at = range(max(0, -r), min(N, N - r)) if term == "query" else range(max(0, r), min(N, N + r))
            products = [scale * abs(float(x[b, 1, i] @ table[1, 0, r + N - 1])) for b in range(4) for i in at]
            assert functions[term].values[1, 1, r + N - 1].item() == pytest.approx(sum(products) / len(products))


def test_what_cls_has_of_its_own_is_told_apart():
    positions, layers, functions = functions_of("t5+reset")
    bias = functions["bias"]
    assert bias.values.shape == (2, 2, 2 * (N - 1) - 1)
    assert bias.r_squared.flatten().tolist() == pytest.approx([1] * 4)
    assert torch.allclose(bias.cls[0], positions.reset.cls[0])
    assert rank(layers[0].bias[0, 0])["full"] > 1


def test_a_bias_of_pairs_is_the_mean_of_each_diagonal():
    _, layers, functions = functions_of("untied")
    bias = functions["bias"]
    assert bias.r_squared.max() < 0.9
    for r in (-2, 0, 3):
        assert bias.values[0, 1, r + N - 1].item() == pytest.approx(layers[0].bias[0, 1].diagonal(r).mean().item())


def shares(n, **mass):
    """(n, n): each row's attention by offset, where there is such a key, and the rest even."""
    p = torch.full((n, n), 0.0)
    for i in range(n):
        for name, share in mass.items():
            j = {"first": 0, "before": i - 1, "after": i + 1, "self": i, "far": (i + n // 2) % n}[name]
            if 0 <= j < n:
                p[i, j] += share
        p[i] += (1 - p[i].sum()) / n
    return p


@pytest.mark.parametrize(
    ("kind", "mass"),
    [
        ("[CLS]", {"first": 0.55}),
        ("previous", {"before": 0.5}),
        ("next", {"after": 0.5}),
        ("local", {"before": 0.25, "self": 0.25, "after": 0.1}),
        ("global", {"far": 0.6}),
        ("flat", {"before": 0.1}),
    ],
)
def test_kinds(kind, mass):
    assert kind_of(shares(40, **mass)) == kind
