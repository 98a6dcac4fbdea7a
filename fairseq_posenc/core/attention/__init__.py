"""Attention: backends that turn (q, k, v, terms, mask) into z. ``auto`` takes the first of these that suits a call."""

from . import band, flex, sdpa, chunked, eager  # noqa: I001  the order is the order of preference
from .base import BACKENDS, Attend, Backend, choose
from .call import Call, Mask

__all__ = ["BACKENDS", "Attend", "Backend", "Call", "Mask", "band", "choose", "chunked", "eager", "flex", "sdpa"]
