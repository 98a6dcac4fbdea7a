"""A model's parameters by name: their names, and how a model loads them."""

from __future__ import annotations

import re
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from ..errors import InputError

StateDict = dict[str, Tensor]

ENCODER = "encoder.sentence_encoder."
WORDS = f"{ENCODER}embed_tokens.weight"
POSITIONS = f"{ENCODER}positions."
MASK_POSITIONS = f"{ENCODER}mask_positions.weight"
ABSOLUTE = f"{POSITIONS}absolute.weight"
LANGUAGE_MODEL = "encoder.lm_head."
SPANS = f"{LANGUAGE_MODEL}span."
"""Of question answering, whose head takes the language model's place."""
CLASSIFICATION = "classification_heads."
SENTENCE_ORDER = "sentence_order"
"""The classification head that pretraining may have (Lan et al. 2020)."""
HEADS = (CLASSIFICATION, LANGUAGE_MODEL)
"""What belongs to a task and not to the encoder."""

_LAYER = re.compile(r"\.(?:layers?|albert_layer_groups)\.(\d+)\.")


def is_ordinary(value: object) -> bool:
    """Whether it is a tensor with every number in the file: not an expanded one, nor one without content."""
    return (
        type(value) in (Tensor, nn.Parameter)
        and value.layout == torch.strided
        and value.device.type == "cpu"
        and not value.is_quantized
        and value.numel() * value.element_size() <= value.untyped_storage().nbytes()
    )


def count_layers(names: Iterable[str]) -> int:
    """The number of layers with weights of their own that parameters of these names belong to."""
    return len({found[1] for found in map(_LAYER.search, names) if found})


def head_names(names: Iterable[str]) -> list[str]:
    """The names of the classification heads that parameters of these names belong to."""
    return sorted({name.removeprefix(CLASSIFICATION).split(".")[0] for name in names if name.startswith(CLASSIFICATION)})


def load_into(model: nn.Module, state: StateDict, fault: str) -> None:
    """Load all of a state dict into a model that has a place for all of it.

    Raises:
        InputError: parameters are missing, left over or of other shapes; ``fault`` begins the sentence.
    """
    try:
        model.load_state_dict(dict(state), strict=True)
    except KeyError as error:
        raise InputError(f"{fault}: it lacks {error}") from error
    except RuntimeError as error:
        raise InputError(f"{fault}: {misfit(error)}") from error


def misfit(error: RuntimeError) -> str:
    """What PyTorch found that does not fit, without its first line, and not all where that is long."""
    reason = " ".join(str(error).partition(":")[2].split())  # a line for each parameter
    return f"{reason[:500]}{' …' if len(reason) > 500 else ''}"
