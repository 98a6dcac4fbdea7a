"""Registers the project's models with transformers' Auto classes, which then load exports without ``trust_remote_code``."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import Tensor

from . import assemble, modeling
from .configuration import HEADS, PosencConfig
from .model_types import MODEL_TYPES


def model_class(model_type: str, kind: str) -> Any:
    """Return the class of one of :data:`MODEL_TYPES` for a kind of head, such as ``MaskedLM``; ``Model`` for none."""
    library: Any = modeling if model_type == PosencConfig.model_type else transformers
    return getattr(library, MODEL_TYPES[model_type].prefix + ("Model" if kind == "Model" else f"For{kind}"))


def head_output(output: Any) -> Tensor:
    """Return what a model's head computes, (B, n, 2) for question answering; the hidden states of a model without a head."""
    if "start_logits" in output:
        return torch.stack([output.start_logits, output.end_logits], dim=-1)
    return output.logits if "logits" in output else output.last_hidden_state


PosencConfig.write_code = staticmethod(assemble.write)
transformers.AutoConfig.register(PosencConfig.model_type, PosencConfig, exist_ok=True)
transformers.AutoModel.register(PosencConfig, modeling.PosencModel, exist_ok=True)
for _head in HEADS:
    getattr(transformers, f"AutoModelFor{_head}").register(PosencConfig, getattr(modeling, f"PosencFor{_head}"), exist_ok=True)
