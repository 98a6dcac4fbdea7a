"""Attention of one layer alone: compared with the reference, and timed."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import torch
from torch import Tensor

from ...core.attention import BACKENDS, Call, Mask, choose
from ...core.schemes import Positions, Settings
from ...core.schemes.positions import sums_of
from ...core.terms import Terms, Window
from ...core.transformer import layers
from ..measure.work import Machine, Shape, Work

SEPARATOR = 2
COMPARED = 1024  # tokens: the reference's scores take n² numbers in float64
SPREAD = 0.1  # standard deviation of the noise that is added to every parameter before the comparison, so that no term is zero
ALLOWED, ROUNDINGS = 3.0, 4.0
SMALLEST = 0.1  # share of the largest norm below which errors are relative to that norm: some gradients are zero up to rounding


class Attention(Work):
    """Forward and backward pass of attention, as in a layer of a model in training, without its projections.

    Args:
        backend: a backend's name, or ``auto``.
        shape: sizes; each run has ``sequences`` of ``tokens``.
        machine: the device and the precision of everything.
        padded: whether the second half of the sequences end in padding, a third of each.
    """

    def __init__(self, expression: str, backend: str, shape: Shape, machine: Machine, padded: bool = False) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        with torch.random.fork_rng():
            torch.manual_seed(1)
            self.positions = positions_of(expression, shape)
            self.projections = layers.Attention(shape.dim, shape.heads)
        by_head = (shape.sequences, shape.heads, shape.tokens, shape.dim // shape.heads)
        sizes = [by_head] * 3 + [(shape.sequences, shape.tokens, shape.dim), by_head]
        *self.inputs, self.x, self.cotangent = (torch.randn(size, generator=generator) for size in sizes)
        lengths = torch.full((shape.sequences, 1), shape.tokens)
        lengths[shape.sequences // 2 :] -= shape.tokens // 3
        self.padding = torch.arange(shape.tokens) >= lengths if padded else None
        self._place(Call(**vars(machine), head_dim=by_head[-1], queries=shape.tokens, keys=shape.tokens, dropout=shape.dropout))
        with torch.no_grad():
            terms = self._terms()
        self.backend = choose(backend, terms, self.call)  # with gradients, which a backend may not have on a device

    @property
    def leaves(self) -> list[Tensor]:
        return [*self.inputs, self.x, *self.parameters()]

    def compute(self) -> Tensor:
        z, _ = self.backend.bind(self._terms(), self.mask, self.call)(*self.inputs)
        return z

    def run(self) -> None:
        torch.autograd.grad(self.compute(), self.leaves, self.cotangent, allow_unused=True)

    def results(self) -> list[Tensor]:
        """Return z and its gradients."""
        z = self.compute()
        return [z, *torch.autograd.grad(z, self.leaves, self.cotangent, allow_unused=True, materialize_grads=True)]

    def again(self, backend: str, machine: Machine) -> Attention:
        """Return the same numbers in another backend, device and precision."""
        other = copy.deepcopy(self)
        other._place(replace(self.call, **vars(machine)))
        other.backend = BACKENDS[backend]
        return other

    def _place(self, call: Call) -> None:
        """Move everything to the device and the precision of a call."""
        self.to(call.device, call.dtype)
        self.call, self.device = call, call.device
        self.inputs = [x.detach().to(call.device, call.dtype).requires_grad_() for x in self.inputs]
        self.x = self.x.detach().to(call.device, call.dtype).requires_grad_()
        self.cotangent = self.cotangent.to(call.device, call.dtype)
        self.window = Window(call.keys, device=call.device)
        self.mask = Mask(None if self.padding is None else self.padding.to(call.device))

    def _terms(self) -> Terms:
        return self.projections.project(self.positions.terms(self.window).of(0, self.x))


def positions_of(expression: str, shape: Shape) -> Positions:
    """Return the positions of one layer.

    Raises:
        FieldError: they cannot be built.
    """
    return Positions(sums_of(expression)[0], Settings(1, shape.heads, shape.dim, shape.tokens, SEPARATOR))


def agreement(expression: str, backend: str, shape: Shape, machine: Machine) -> tuple[float, float]:
    """Return the error of a backend and the error that is allowed, on two sequences, one of them padded, without dropout.

    The reference is ``eager`` in float64 on the CPU, on the same rounded inputs of at most ``COMPARED`` tokens. Errors are
    ‖x - reference‖ / ‖reference‖, the largest over z and its gradients in q, k, v, the layer's input and the scheme's parameters;
    NaN where one is. The allowed error is ``ALLOWED`` times that of ``eager`` in the same precision, and ``ROUNDINGS`` times the
    precision's epsilon.
    """
    small = replace(shape, tokens=min(shape.tokens, COMPARED), sequences=2, dropout=0.0)
    attention = Attention(expression, backend, small, machine, padded=True)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in attention.positions.parameters():
            parameter.add_(SPREAD * torch.randn(parameter.shape, generator=generator).to(parameter))
    exact = attention.again("eager", Machine(torch.device("cpu"), torch.float64)).results()
    eager = _error(attention.again("eager", machine).results(), exact)
    return _error(attention.results(), exact), ALLOWED * eager + ROUNDINGS * torch.finfo(machine.dtype).eps


def _error(results: list[Tensor], exact: list[Tensor]) -> float:
    norms = [right.norm().item() for right in exact]
    differences = [(value.cpu().double() - right).norm().item() for value, right in zip(results, exact, strict=True)]
    errors = [error / max(norm, SMALLEST * max(norms)) for error, norm in zip(differences, norms, strict=True)]
    return math.nan if any(map(math.isnan, errors)) else max(errors)
