"""Names of parameters in state dicts, and loading of state dicts."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...base.errors import InputError

StateDict = dict[str, Tensor]

ENCODER = "encoder.sentence_encoder."
WORDS = f"{ENCODER}embed_tokens.weight"
SOURCE_WORDS, DECODER_WORDS = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"
"""The word embeddings of a model of translation's source, and of a decoder."""
POSITIONS = f"{ENCODER}positions."
MASK_POSITIONS = f"{ENCODER}mask_positions.weight"
ABSOLUTE = f"{POSITIONS}absolute.weight"
LANGUAGE_MODEL = "encoder.lm_head."
SPANS = f"{LANGUAGE_MODEL}span."
"""The head of question answering, which replaces the language model's."""
CLASSIFICATION = "classification_heads."
SENTENCE_ORDER = "sentence_order"
"""The classification head that pretraining may have (Lan et al. 2020)."""
HEADS = (CLASSIFICATION, LANGUAGE_MODEL)
"""Parameters that belong to a task and not to the encoder."""

FORMAT_KEY, FORMAT = "fairseq_posenc_format", 1
"""The key and the version, in a checkpoint's ``task_state``, of what this package adds to fairseq's checkpoints."""

LONGEST = "longest_row"
"""The key, in the ``task_state`` of fine-tuning, of the number of tokens of its longest row."""
LEARNING_RATES = "lr", "lr_old"
"""The options of an optimizer's group that training changes: the learning rate, and with NAG that of the update before."""
NO_DECAY = "no_decay"
"""The option of an optimizer's group whose parameters do not decay, by ``--no-decay``; its value."""

_LAYER = re.compile(r"(?:^|\.)(?:layers?|albert_layer_groups)\.(\d+)\.")


def is_ordinary(value: object) -> bool:
    """Return whether this is a tensor whose every number is in the file, unlike expanded tensors and those without content."""
    return (
        isinstance(value, Tensor)
        and type(value) in (Tensor, nn.Parameter)
        and value.layout == torch.strided
        and value.device.type == "cpu"
        and not value.is_quantized
        and value.numel() * value.element_size() <= value.untyped_storage().nbytes()
    )


def count_layers(names: Iterable[str]) -> int:
    """Return the number of layers with their own weights, from the names of parameters."""
    return len({match[1] for match in map(_LAYER.search, names) if match})


def head_names(names: Iterable[str]) -> list[str]:
    """Return the names of the classification heads, from the names of parameters."""
    return sorted({name.removeprefix(CLASSIFICATION).split(".")[0] for name in names if name.startswith(CLASSIFICATION)})


def class_sizes(state: Mapping[str, Tensor]) -> dict[str, tuple[int, int]]:
    """Return the width of the inner layer and the number of classes of each classification head, by its name.

    Raises:
        KeyError: a head has no layer, or no output.
    """
    prefixes = {name: f"{CLASSIFICATION}{name}." for name in head_names(state)}
    return {name: (len(state[f"{of}dense.weight"]), len(state[f"{of}out_proj.weight"])) for name, of in prefixes.items()}


def require_same_groups(saved: Sequence[dict[str, Any]], groups: Sequence[dict[str, Any]]) -> None:
    """Check, before an optimizer's state is loaded, that it belongs to the same groups of parameters.

    Raises:
        InputError: others were exempt from weight decay, or the numbers of groups differ.
    """
    before, now = ([group.get(NO_DECAY, "") for group in some] for some in (saved, groups))
    if before != now:
        kinds = [f"--no-decay {','.join(filter(None, names)) or 'left out'}" for names in (before, now)]
        raise InputError(
            f"the optimizer's state in the checkpoint is of {len(before)} groups of parameters ({kinds[0]}), and this training "
            f"has {len(now)} ({kinds[1]}). Repeat the checkpoint's, or start from its weights: --finetune-from-model"
        )


def override(group: dict[str, Any], options: Mapping[str, Any] | None) -> None:
    """Give an optimizer's group other options, but no weight decay to what is exempt."""
    group.update({name: value for name, value in (options or {}).items() if name != "weight_decay" or NO_DECAY not in group})


def load_into(model: nn.Module, state: StateDict, fault: str) -> None:
    """Load a state dict into a model; raises InputError, whose message begins with ``fault``, if anything does not fit."""
    try:
        model.load_state_dict(dict(state), strict=True)
    except KeyError as error:
        raise InputError(f"{fault}: it lacks {error}") from error
    except RuntimeError as error:
        raise InputError(f"{fault}: {misfit(error)}") from error


def misfit(error: BaseException | None) -> str:
    """Return PyTorch's list of parameters that do not fit, in one line of limited length."""
    reason = " ".join(str(error).partition(":")[2].split())  # a line for each parameter
    return f"{reason[:500]}{' …' if len(reason) > 500 else ''}"
