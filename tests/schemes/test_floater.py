"""FLOATER's positions are torchdiffeq's solution of its equation."""

from __future__ import annotations

import pytest
import torch

from fairseq_posenc.schemes import Settings
from fairseq_posenc.schemes.floater import TOKEN, Floater
from fairseq_posenc.terms import Window

torchdiffeq = pytest.importorskip("torchdiffeq")


@pytest.mark.parametrize("stride", [1, 3, 8])
@pytest.mark.parametrize("n", [1, 2, 8, 9, 10, 20])
def test_positions_and_gradients_are_those_of_odeint(n: int, stride: int) -> None:
    torch.manual_seed(0)
    scheme = Floater(Settings(layers=2, heads=2, dim=6, max_positions=4), Floater.Options(stride=stride)).double()
    with torch.no_grad():
        for parameter in scheme.parameters():
            parameter += torch.randn_like(parameter) / 2
    found = torch.stack([terms.inputs[0][0] for terms in scheme.layer_terms(Window(n))], dim=1)  # (n, layers, D)
    tokens = torch.arange(-(-max(n - 1, 1) // stride) * stride + 1, dtype=torch.float64)
    options = {"step_size": stride * TOKEN, "interp": "cubic"}
    expected = torchdiffeq.odeint(scheme.dynamics, scheme.initial, tokens * TOKEN, method="rk4", options=options)[:n]
    torch.testing.assert_close(found, expected)
    weights, parameters = torch.randn_like(found), list(scheme.parameters())
    gradients = [torch.autograd.grad((p * weights).sum(), parameters, materialize_grads=True) for p in (found, expected)]
    torch.testing.assert_close(*gradients)
