"""Initial values at base width: each has a source, which is the authors' code, the paper, or this package."""

import math

import pytest
import torch

from fairseq_posenc.core.schemes import REGISTRY, Positions, Settings
from fairseq_posenc.core.schemes.alibi import slopes
from fairseq_posenc.core.terms import Window

SETTINGS = Settings(layers=12, heads=12, dim=768, max_positions=64)
HEAD_DIM, HIDDEN = 64, 32  # of a head, and of FIRE's network

BERT = "BERT's code (initializer_range), in which the authors train it"
DEBERTA = "DeBERTa's code (initializer_range)"
TUPE = "TUPE's code, as all weights of its model"
MASKS = "Swin Transformer V2's code (truncated normal)"
NORM = "PyTorch's LayerNorm"
GLOROT = "this package: Glorot and Bengio 2010, as if all heads were one filter, so 28 times less than for a matrix of a head"
OURS = "this package"

STARTS = {
    "absolute": {"weight": (0, 0.02, BERT)},
    "sentence_absolute": {"weight": (0, 0.02, BERT)},
    "shaw": {"keys": (0, 0.02, BERT), "values": (0, 0.02, BERT)},
    "relative_logits": {
        "projection": (0, HEAD_DIM**-0.5, "this package: r as large as q"),
        "weight": (0, 0.02, "transformers (initializer_range)"),
    },
    "m1": {"weight": (1, 0.02, "the scores without positions, with BERT's spread")},
    "m2": {"weight": (1, 0.02, "the scores without positions, with BERT's spread")},
    "m4": {"weight": (0, 0.02, BERT)},
    "m4m": {"weight": (0, 0.02, BERT)},
    "raffel": {"weight": (0, 0.02, BERT)},
    "t5": {"weight": (0, math.sqrt(2 / (12 + 32)), "Mesh TensorFlow: uniform in ±√(6 / (heads + buckets))")},
    "untied+t5": {"t5.weight": (0, 0.02, TUPE)},
    "untied+t5+reset": {"t5.weight": (0, 0.02, TUPE)},
    "absolute+t5": {"t5.weight": (0, math.sqrt(2 / (12 + 32)), "as t5 alone")},
    "deberta": {"weight": (0, 0.02, DEBERTA), "key_projection": (0, 0.02, DEBERTA), "query_projection": (0, 0.02, DEBERTA)},
    "untied": {
        **dict.fromkeys(("weight", "query_projection", "key_projection"), (0, 0.02, TUPE)),
        **dict.fromkeys(("query_bias", "key_bias"), (0, 0, TUPE)),
        **{"layer_norm.weight": (1, 0, NORM), "layer_norm.bias": (0, 0, NORM)},
    },
    "untied+reset": {"untied.cls": (0, 0.02, TUPE)},
    "t5+reset": {"reset.cls": (0, 0.02, "as the buckets of TUPE's code")},
    "absolute_untied_projection": {
        **dict.fromkeys(("weight", "query_projection", "key_projection"), (0, 0.02, "as untied")),
        **dict.fromkeys(("query_bias", "key_bias"), (0, 0, "as untied")),
        **{"layer_norm.weight": (1, 0, NORM), "layer_norm.bias": (0, 0, NORM)},
    },
    "tisa": {
        "amplitude": (0.1, 0.1, "the authors' mean; 10 times their spread, so that the heads differ"),
        "sharpness": (0.1, 0.1, "the authors' mean; 10 times their spread, so that the heads differ"),
        "offset": (0, 5, "the authors' code"),
    },
    "kerple": {
        "r1": (1.005, 1.99 / math.sqrt(12), "the authors' code: uniform from the bound to 2"),
        "r2": (0.505, 0.99 / math.sqrt(12), "the authors' code: uniform from the bound to 1"),
    },
    "kerple(form=power)": {
        "kerple.r1": (0.505, 0.99 / math.sqrt(12), "the authors' code: uniform from the bound to 1"),
        "kerple.r2": (1.005, 1.99 / math.sqrt(12), "the authors' code: uniform from the bound to 2"),
    },
    "fire": {
        "c": (0.1, 0, "the listing in the paper's appendix"),
        "threshold": (1, 0, "the listing in the paper's appendix: the initial L itself"),
        "weight1": (0, 1 / math.sqrt(3), "the listing: PyTorch's uniform in ±1 for one input"),
        "bias1": (0, 1 / math.sqrt(3), "the listing: PyTorch's uniform in ±1 for one input"),
        "weight2": (0, HIDDEN**-0.5, OURS),
        "bias2": (0, 0, OURS),
    },
    "log_cpb": {"weight1": (0, 0.02, MASKS), "bias1": (0, 0, MASKS), "weight2": (0, 0.02, MASKS)},
    "transformer_xl": dict.fromkeys(
        ("content_bias", "position_bias", "projection"), (0, 0.02, "Transformer-XL's code (init_std)")
    ),
    "log_n": {"scale": (1 / math.log(64), 0, "this package: the scores without it, in a row of max_positions tokens")},
    "pope": {"bias": (0, 0, "the authors' code")},
    "cable": {"weight": (0, 0.02, "the authors' code"), "bias": (None, None, "ALiBi's slopes as the first steps; this package")},
    "key_convolution": {"weight": (None, None, "the scores without it; this package")},
    "selective_rope": {"down": (0, 0.02, OURS), "up": (0, 0, "RoPE's angles; this package")},
    "liere": {"theta": (None, None, "RoPE's angles; this package")},
    "floater": {
        **dict.fromkeys(("initial", "time_weight"), (0, 0.02, OURS)),
        "weight1": (0, math.sqrt(2 / (768 + 192)), "Glorot and Bengio 2010, normal"),
        "weight2": (0, 0.1 * math.sqrt(2 / (768 + 192)), "a tenth of Glorot and Bengio 2010; this package"),
        **dict.fromkeys(("bias1", "bias2"), (0, 0, OURS)),
    },
    "synthesizer_random": {"weight": (0, 0.02, OURS)},
    "synthesizer_factorized_random": {"left": (0, 0.1, OURS), "right": (0, 0.1, OURS)},
    "synthesizer_dense": {
        "weight1": (0, math.sqrt(2 / (2 * 12 * HEAD_DIM**2)), GLOROT),
        "bias1": (0, 0, OURS),
        "weight2": (0, 0.02, OURS),
        "bias2": (0, 0.02, OURS),
    },
    "synthesizer_factorized_dense": {
        "weight1": (0, math.sqrt(2 / (2 * 12 * HEAD_DIM**2)), GLOROT),
        "bias1": (0, 0, OURS),
        **dict.fromkeys(("tiled_weight", "tiled_bias", "stretched_weight", "stretched_bias"), (0, 0.02, OURS)),
    },
}
"""The mean and the standard deviation of each parameter of each scheme, and their source; None where another test has them."""
ROWS = [
    (expression, name if "." in name and name.split(".")[0] in REGISTRY else f"{expression}.{name}", *row[:2])
    for expression, parameters in STARTS.items()
    for name, row in parameters.items()
    if row[0] is not None
]


def start(expression: str, **options: str) -> Positions:
    torch.manual_seed(0)
    return Positions(expression, SETTINGS, options)


@pytest.mark.parametrize(("expression", "name", "mean", "std"), ROWS)
def test_parameters_start_at_their_sources_values(expression: str, name: str, mean: float, std: float) -> None:
    """But for chance: four standard errors of the mean and of the standard deviation."""
    values = start(expression).get_parameter(name).detach()
    errors = 4 * std / math.sqrt(values.numel()), 4 * std / math.sqrt(2 * values.numel())
    assert values.mean().item() == pytest.approx(mean, abs=errors[0] + 1e-6)
    assert values.std(correction=0).item() == pytest.approx(std, abs=errors[1] + 1e-6)


@pytest.mark.parametrize("scheme", sorted(STARTS.keys() & REGISTRY.keys() - {"reset"}))
def test_every_parameter_has_a_row(scheme: str) -> None:
    names = {name.removeprefix(f"{scheme}.") for name, _ in start(scheme).named_parameters()}
    assert names == STARTS[scheme].keys()
    assert all(source for _, _, source in STARTS.get(scheme, {}).values())


def test_convolutions_of_keys_start_at_the_keys_themselves() -> None:
    weight = start("key_convolution").get_parameter("key_convolution.weight")
    assert torch.equal(weight, torch.eye(4)[0, :, None].expand_as(weight))


def test_initial_values_that_are_those_of_another_scheme() -> None:
    steps = torch.nn.functional.softplus(start("cable").get_parameter("cable.bias"))
    torch.testing.assert_close(steps, slopes(12, dtype=torch.float32)[:, None].expand(12, 12, 1))
    angles = start("liere").get_parameter("liere.theta")
    torch.testing.assert_close(angles, (10000.0 ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)).expand_as(angles))


@pytest.mark.parametrize(("form", "expected"), [("code", 0.21), ("equation", 8.7e-5)])
def test_correlations_of_untied_positions(form: str, expected: float) -> None:
    terms = start("untied+reset", untied_form=form).terms(Window(64)).of(0, torch.empty(0))
    ((bias,),) = (terms.biases,)
    assert (bias.left @ bias.right.mT).std().item() == pytest.approx(expected, rel=0.1)


def test_reset_starts_at_the_scale_of_the_correlations() -> None:
    terms = start("untied+reset").terms(Window(64)).of(0, torch.empty(0))
    assert terms.cls_bias.std().item() == pytest.approx(0.21, rel=0.3)
