"""The memory of the tensors that a forward pass saves for the backward pass."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def saved_bytes(module: nn.Module, forward: Callable[[], Any]) -> int:
    """Return the bytes of the tensors, except the module's parameters, that ``forward`` saves for the backward pass."""
    parameters = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    saved: dict[int, Any] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            saved[storage.data_ptr()] = storage  # a reference, so that no address is used twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        forward()
    return sum(storage.nbytes() for storage in saved.values())
