"""Initial values at base width, where the authors' code has them."""

import math

import pytest
import torch

from fairseq_posenc.core.schemes import Positions, Settings
from fairseq_posenc.core.terms import Window

SETTINGS = Settings(layers=12, heads=12, dim=768, max_positions=64)


def start(expression: str, **options: str) -> Positions:
    torch.manual_seed(0)
    return Positions(expression, SETTINGS, options)


@pytest.mark.parametrize(("form", "expected"), [("code", 0.21), ("equation", 8.7e-5)])
def test_correlations_of_untied_positions(form: str, expected: float) -> None:
    terms = start("untied+reset", untied_form=form).terms(Window(64)).of(0, torch.empty(0))
    ((bias,),) = (terms.biases,)
    assert (bias.left @ bias.right.mT).std().item() == pytest.approx(expected, rel=0.1)


def test_reset_starts_at_the_scale_of_the_correlations() -> None:
    terms = start("untied+reset").terms(Window(64)).of(0, torch.empty(0))
    assert terms.cls_bias.std().item() == pytest.approx(0.21, rel=0.3)


@pytest.mark.parametrize(
    ("expression", "name", "expected"),
    [
        ("t5", "t5.weight", math.sqrt(2 / (12 + 32))),
        ("absolute+t5", "t5.weight", math.sqrt(2 / (12 + 32))),
        ("untied+t5", "t5.weight", 0.02),
        ("untied+t5+reset", "t5.weight", 0.02),
        ("log_cpb", "log_cpb.weight1", 0.02),
        ("log_cpb", "log_cpb.bias1", 0.0),
        ("log_cpb", "log_cpb.weight2", 0.02),
        ("kerple", "kerple.r1", 2 / math.sqrt(12)),
        ("kerple", "kerple.r2", 1 / math.sqrt(12)),
        ("kerple(form=power)", "kerple.r1", 1 / math.sqrt(12)),
        ("kerple(form=power)", "kerple.r2", 2 / math.sqrt(12)),
    ],
)
def test_parameters_start_at_the_authors_standard_deviations(expression: str, name: str, expected: float) -> None:
    assert start(expression).get_parameter(name).std().item() == pytest.approx(expected, rel=0.1)
