"""What is divergence, and what an error like any other."""

import numpy as np
import pytest
import torch
from torch import nn

from fairseq_posenc.study.engine.grid import DIVERGENCE, Diverged
from fairseq_posenc.study.measure.inference import infer

INCONSISTENT = "Fatal error: gradients are inconsistent between workers.\nrank   0 = {}\nrank   1 = {}\n"


@pytest.mark.parametrize(
    ("output", "diverged"),
    [
        ("FloatingPointError: gradients are Nan/Inf", True),
        ("FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding.", True),
        (INCONSISTENT.format("nan", "nan"), True),
        (INCONSISTENT.format("1.25", "1.5"), False),
        ("FileNotFoundError: train.tsv", False),
        ("RuntimeError: CUDA out of memory", False),
    ],
)
def test_gradients_that_are_not_finite(output, diverged):
    assert bool(DIVERGENCE.search(output)) == diverged


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_scores_that_are_not_finite(value):
    sequences = [np.array([0, 5, 2]), np.array([0, 2])]

    def forward(tokens):
        scores = torch.ones(*tokens.shape, 2)
        scores[1, 2:] = value  # padding has no score
        return scores

    assert [scores.shape for scores in infer(nn.Identity(), sequences, forward, pad=1)] == [(3, 2), (2, 2)]
    with pytest.raises(Diverged, match="not finite"):
        infer(nn.Identity(), sequences, lambda tokens: torch.full((len(tokens), 2), value), pad=1)
