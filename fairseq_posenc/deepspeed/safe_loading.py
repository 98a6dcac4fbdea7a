"""Lets DeepSpeed read its checkpoints without running code from them."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import torch

from ..compat import loading
from ..compat.view import View

READERS = (
    "deepspeed.checkpoint.deepspeed_checkpoint",
    "deepspeed.checkpoint.ds_to_universal",
    "deepspeed.checkpoint.universal_checkpoint",
    "deepspeed.checkpoint.zero_checkpoint",
    "deepspeed.runtime.base_optimizer",
    "deepspeed.runtime.checkpoint_engine.torch_checkpoint_engine",
    "deepspeed.runtime.zero.stage3",
    "deepspeed.utils.zero_to_fp32",
)


@cache
def apply() -> None:
    """Give every module of DeepSpeed that reads checkpoints a ``torch`` whose ``load`` builds only known, plain types.

    DeepSpeed says ``weights_only=False``, which runs whatever the file says. Later calls do nothing.
    """
    for name in READERS:
        module = import_module(name)
        module.torch = View(torch, load=_load)


def _load(file: Any, map_location: Any = "cpu", mmap: bool = False, **options: Any) -> Any:
    types = {f"{type_.__module__}.{type_.__qualname__}": type_ for type_ in _plain_types()}
    with loading.safe_globals(types):
        return loading.load(file, map_location, **options)


@cache
def _plain_types() -> tuple[type, ...]:
    """What DeepSpeed's checkpoints hold besides tensors and containers: scalers, shapes, places in a flat tensor, the stage."""
    from deepspeed.checkpoint.universal_checkpoint import SubparamShape
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.utils.tensor_fragment import fragment_address

    return DynamicLossScaler, LossScaler, SubparamShape, ZeroStageEnum, fragment_address
