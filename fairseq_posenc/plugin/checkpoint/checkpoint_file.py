"""The files of fairseq's checkpoints: reading one without running code from it, checking its content, and writing one.

Every command reads such files through this module, so that files of other kinds and damaged files are reported in one sentence.
"""

import os
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import Any

import torch
from torch import nn

from ...base.errors import InputError, first_line
from ...base.files import atomic_write
from ...text.vocabulary import VOCABULARY
from . import loading
from .state_dict import FORMAT, FORMAT_KEY, is_ordinary

PARTS: dict[str, Any] = {
    "args": Namespace,
    "cfg": Mapping,  # a dictionary, or OmegaConf's DictConfig
    "optimizer_history": list,
    **dict.fromkeys(("extra_state", "last_optimizer_state", "task_state"), dict),
}
"""The parts that a checkpoint of fairseq's trainer may have in addition to the parameters."""


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint; the result is what was saved.

    ``model`` is a dictionary of ordinary tensors, and the parts in :data:`PARTS`, if present, have these types.

    Raises:
        InputError: the file is not such a checkpoint, or damaged.
        OSError: it cannot be opened.
    """
    content = loading.load(path)
    if fault := fault_of(content):
        raise no_checkpoint(path, fault)
    return content


def peek(path: str | os.PathLike) -> dict[str, Any]:
    """Read a file as :func:`load`, with tensors left on the disk if its format allows; it is empty if there is no checkpoint."""
    try:
        content = loading.peek(path)
        return {} if fault_of(content) else content
    except Exception:  # another kind of file may raise any exception
        return {}


def write(path: Path, content: dict[str, Any]) -> None:
    """Write the content of a checkpoint, atomically."""
    with atomic_write(path, "wb") as stream:
        torch.save(content, stream)


def untrained(cfg: Mapping[str, Any], model: nn.Module, vocabulary: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Make the content that fairseq's trainer would write before its first update.

    Args:
        cfg: the run's configuration, or its sections that say what the model is.
        vocabulary: the result of :func:`fairseq_posenc.text.vocabulary.fingerprint`.
    """
    history = {"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0}
    return {
        "args": None,
        "cfg": cfg,
        "model": model.state_dict(),
        "criterion": None,
        "optimizer_history": [history],
        "task_state": {FORMAT_KEY: FORMAT, **({} if vocabulary is None else {VOCABULARY: dict(vocabulary)})},
        "extra_state": {"metrics": None, "previous_training_time": 0},
        "last_optimizer_state": None,
    }


def optimizer_state_of(content: dict[str, Any]) -> Any:
    """Return the optimizer's state, which fairseq's older layouts have elsewhere; None without one."""
    *_, last = content.get("optimizer_history") or [content]
    return last.get("optimizer", content.get("last_optimizer_state"))


def no_checkpoint(path: str | os.PathLike, fault: str) -> InputError:
    """Return the error for a file that is not a checkpoint."""
    return InputError(f"{path} is not a checkpoint of fairseq's trainer: {fault}. Name a .pt file that fairseq-train wrote.")


def fault_of(content: Any) -> str | None:
    """Return why this is not the content of a checkpoint of fairseq's trainer; None if it is."""
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        return "it has no 'model', a dictionary of tensors"
    for name, value in content["model"].items():
        if not isinstance(name, str) or not is_ordinary(value):
            return f"in its model, {name!r} is not a tensor of numbers that the file holds"
    for name, kind in PARTS.items():
        if content.get(name) is not None and not isinstance(content[name], kind):
            return f"its {name!r} is of the type {type(content[name]).__name__}"
    version = (content.get("task_state") or {}).get(FORMAT_KEY, FORMAT)
    if version != FORMAT:
        found = version if isinstance(version, int) else f"of the type {type(version).__name__}"  # which may print without end
        return f"its {FORMAT_KEY!r} is {found}, that of another release, and this release reads {FORMAT}"
    if (history := content.get("optimizer_history")) is None:
        return None
    last = history[-1] if history else None
    last = last if isinstance(last, dict) else {"lr_scheduler_state": None}
    rates = last.get("lr_scheduler_state", {})
    numeric = isinstance(rates, dict) and all(isinstance(rates.get(name, 0), (int, float, NoneType)) for name in ("best", "lr"))
    if not numeric or type(last.get("num_updates", 0)) is not int:
        return "its 'optimizer_history' does not end with numbers of updates and of the learning rate"
    return None


@contextmanager
def config_errors_as_input_errors(path: str | os.PathLike, cause: str = "") -> Iterator[None]:
    """Turn any error of a file's configuration into an InputError that names the file, and begins with ``cause``."""
    try:
        yield
    except (OSError, ModuleNotFoundError):
        raise
    except InputError as error:
        if str(path) in str(error) and not cause:
            raise
        raise InputError(f"{cause}{'' if str(path) in str(error) else f'{path}: '}{error}") from error
    except Exception as error:
        reason = first_line(error)
        raise InputError(
            f"{cause}{path}: its configuration describes no model that can be built ({type(error).__name__}: {reason}). It is "
            "damaged or of another release: use another."
        ) from error
