"""What an attention backend is, and how one is chosen."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...base.errors import FieldError
from ..terms import Terms
from .call import Call, Mask

Attend = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor | None]]
"""q (B, H, Q, d), k and v (B, H, K, d) -> z (B, H, Q, d), and p (B, H, Q, K) if the call asks for the weights.

The output of a fully masked query is zero.
"""


class Backend(ABC):
    """A function from (q, k, v, terms, mask) to z. It depends on terms, and on no scheme. All gradients are computed."""

    name: ClassVar[str]

    @property
    def missing(self) -> str | None:
        """What this machine lacks to run anything, or None."""
        return None

    @abstractmethod
    def objection(self, terms: Terms, call: Call | None = None) -> str | None:
        """Why this backend cannot run such terms in such a call (``call=None``: in any call), or None if it can."""

    def suits(self, terms: Terms, call: Call | None = None) -> bool:
        """Whether ``auto`` may take it: it can run the terms, and is a better choice than the backends after it."""
        return self.missing is None and self.objection(terms, call) is None

    @abstractmethod
    def bind(self, terms: Terms, mask: Mask, call: Call) -> Attend:
        """Do once the work that layers with the same (projected) terms share, and return a function of q, k and v."""


BACKENDS: dict[str, Backend] = {}
"""By name, in the order of preference."""


def opaque(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Exclude a function from ``torch.compile``, which cannot trace kernels and operations in place."""

    def call(*arguments: Any) -> Tensor:
        if torch.compiler.is_compiling():  # only then, as it imports much
            return torch.compiler.disable(function)(*arguments)
        return function(*arguments)

    return call


def register_backend(backend: type[Backend]) -> type[Backend]:
    """Register a backend class under its name; a decorator."""
    BACKENDS[backend.name] = backend()
    return backend


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
