"""How the tests run a backend on one call."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fairseq_posenc.core.attention import BACKENDS, Backend, Call, Mask
from fairseq_posenc.core.terms import Terms

SEES_ALL = Mask()


def on_the_cpu(backend: Backend) -> str | None:
    """Why a backend does not run here, or None."""
    return backend.missing or backend.objection(Terms(), Call(torch.device("cpu"), torch.float64, 4, 7, 7))


def parameters(*names: str) -> list[object]:
    """Parameters of a test that runs backends: all, or those named; those that do not run here are skipped, and say why."""
    chosen = [backend for backend in BACKENDS.values() if backend.name in (names or BACKENDS)]
    skip = {backend.name: pytest.mark.skipif(bool(on_the_cpu(backend)), reason=str(on_the_cpu(backend))) for backend in chosen}
    return [pytest.param(backend, id=backend.name, marks=skip[backend.name]) for backend in chosen]


def attend(
    backend: Backend,
    terms: Terms,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask = SEES_ALL,
    *,
    dropout: float = 0.0,
    weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """z (B, H, Q, d), and p (B, H, Q, K) if ``weights``."""
    return backend.bind(terms, mask, call_of(q, k, dropout=dropout, weights=weights))(q, k, v)


def call_of(q: Tensor, k: Tensor, *, dropout: float = 0.0, weights: bool = False) -> Call:
    """The call of these queries (B, H, Q, d) and keys (B, H, K, d)."""
    return Call(q.device, q.dtype, q.shape[-1], q.shape[-2], k.shape[-2], dropout, weights)


def matrix_call(queries: int, keys: int, like: Tensor) -> Call:
    """A call of which only the lengths matter."""
    return Call(like.device, like.dtype, 1, queries, keys)
