"""Attention: backends that turn (q, k, v, terms, mask) into z, and how one is chosen."""

from __future__ import annotations

from ...base.errors import FieldError
from ..terms import Terms
from .band import Band
from .base import Attend, Backend
from .call import Call, Mask
from .chunked import Chunked
from .eager import Eager
from .flex import Flex
from .sdpa import Sdpa

__all__ = ["BACKENDS", "Attend", "Backend", "Call", "Mask", "choose"]

BACKENDS: dict[str, Backend] = {backend.name: backend for backend in (Band(), Flex(), Sdpa(), Chunked(), Eager())}
"""By name, in the order of preference."""


def choose(name: str | Backend, terms: Terms, call: Call | None = None) -> Backend:
    """Return the backend, or that of the name; ``auto`` takes the first that suits terms and call, in the order of preference.

    Raises:
        FieldError: no such backend, or it cannot run these terms; the message gives the reason.
    """
    if name == "auto":
        return next(backend for backend in BACKENDS.values() if backend.suits(terms, call))
    backend = name if isinstance(name, Backend) else BACKENDS.get(name)
    if backend is None:
        raise FieldError(f"unknown attention backend {name!r}: `attention_backend` is one of auto, {', '.join(BACKENDS)}")
    reason = backend.missing or backend.objection(terms, call)
    if reason is not None:
        raise FieldError(f"`attention_backend` {backend.name} cannot run these positions: {reason}; use auto or eager")
    return backend
