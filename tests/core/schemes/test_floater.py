"""FLOATER's positions are torchdiffeq's solution of its equation."""

from __future__ import annotations

import pytest
import torch

from fairseq_posenc.core.schemes import Settings
from fairseq_posenc.core.schemes.floater import TOKEN, Floater
from fairseq_posenc.core.terms import Window

torchdiffeq = pytest.importorskip("torchdiffeq")


def test_positions_before_0_are_those_of_the_equation_backwards() -> None:
    scheme = Floater(Settings(layers=2, heads=2, dim=6, max_positions=4), Floater.Options(stride=3)).double()
    with torch.no_grad():
        for parameter in scheme.parameters():
            parameter += torch.randn_like(parameter) / 2
    positions = torch.tensor([[-40.0, -3.25, 0.0, 1.5, 7.0]])
    found = torch.stack([terms.inputs[0][0] for terms in scheme.layer_terms(Window(5, positions=positions))], dim=1)
    for times, part in ((positions[0, :3].flip(0), found[:3].flip(0)), (positions[0, 2:], found[2:])):
        expected = torchdiffeq.odeint(scheme.dynamics, scheme.initial, times.double() * TOKEN, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(part, expected, rtol=0, atol=2e-3)


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
