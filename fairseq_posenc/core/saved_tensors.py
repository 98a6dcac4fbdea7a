"""The memory of the tensors that a forward pass saves for the backward pass."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


def saved_bytes(parameters: Iterable[Tensor], forward: Callable[[], Any]) -> int:
    """Return the bytes of the tensors, except the model's parameters, that ``forward`` saves for the backward pass.

    Tensors may be without data (FakeTensor).
    """
    kept = {parameter.untyped_storage()._cdata for parameter in parameters}
    saved: dict[int, Any] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in kept:
            saved[storage._cdata] = storage  # a reference, so that no address is used twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        forward()
    return sum(storage.nbytes() for storage in saved.values())
