"""Loading of trained models by fairseq's programs, with short error messages and without running code from a file."""

import logging
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from ...base.errors import InputError, first_line
from . import trust
from .checkpoint_file import config_errors_as_input_errors, fault_of, no_checkpoint
from .state_dict import misfit

MISFIT = "Error(s) in loading state_dict"  # the beginning of PyTorch's message

_given: ContextVar[tuple[str, ...] | None] = ContextVar("given", default=None)
"""Kinds that fairseq does not build from the file, as for :func:`.trust.require_stock`; None if it builds nothing."""


def load_models(
    load: Callable, filenames: list[str], arg_overrides: Any = None, task: Any = None, strict: bool = True, suffix: str = "",
    num_shards: int = 1, state: Any = None,
) -> Any:  # fmt: skip
    """Call fairseq's ``load_model_ensemble_and_task`` after checking what the files name (:mod:`.trust`).

    fairseq-validate, -generate, -eval-lm, -interactive and fairseq's ``from_pretrained`` build the model that a file names, and
    if no task is given also its task, criterion and tokenizer, from values in the file.

    Raises:
        InputError: a file has no model for this program, or names what is not listed.
    """
    files = ", ".join(map(str, filenames))
    token = _given.set(() if task is None else ("task",))
    with config_errors_as_input_errors(files):
        try:
            if state is not None:
                _require_listed(state, filenames[0])
            return load(filenames, arg_overrides, task, strict, suffix, num_shards, state)
        except RuntimeError as error:
            if not str(error).startswith(MISFIT):
                raise
            raise InputError(f"{files} does not fit the model that its own configuration describes: {misfit(error)}") from error
        finally:
            _given.reset(token)


def load_to_cpu(load: Callable, path: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Call fairseq's ``load_checkpoint_to_cpu``, or raise InputError; check files that a model is built from as above."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)  # fairseq logs a page if it cannot read a configuration
    try:
        state = load(path, *args, **kwargs)
    except (InputError, OSError):
        raise
    except Exception as error:  # a damaged file can raise almost any exception
        reason = first_line(error)
        fault = f"its configuration or the trainer's state cannot be read ({type(error).__name__}: {reason})"
        raise no_checkpoint(Path(path), fault) from error
    finally:
        logging.disable(before)
    if problem := fault_of(state):
        raise no_checkpoint(Path(path), problem)
    if _given.get() is not None:
        _require_listed(state, path)
    return state


def _require_listed(state: dict[str, Any], path: str) -> None:
    old = state.get("args")
    cfg = state.get("cfg") if old is None else convert_namespace_to_omegaconf(old)  # as fairseq chooses
    trust.require_stock(cfg, path, _given.get() or ())
