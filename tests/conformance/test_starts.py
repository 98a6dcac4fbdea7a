"""Initial values at base width, where the authors' code has them."""

import math

import pytest
import torch

from fairseq_posenc.schemes import Positions, Settings
from fairseq_posenc.terms import Window

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
    ("expression", "expected"),
    [("t5", math.sqrt(2 / (12 + 32))), ("absolute+t5", math.sqrt(2 / (12 + 32))), ("untied+t5", 0.02), ("untied+t5+reset", 0.02)],
)
def test_buckets_beside_untied_start_as_tupe_has_them_and_else_as_t5_has(expression: str, expected: float) -> None:
    assert start(expression).t5.weight.std().item() == pytest.approx(expected, rel=0.1)
