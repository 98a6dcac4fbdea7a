"""Trained models as fairseq's other commands read them: what is wrong with a file is told in one sentence."""

from __future__ import annotations

import functools
from typing import Any

from fairseq import checkpoint_utils

from ..errors import InputError
from .checkpoint import explained
from .state import misfit

MISFIT = "Error(s) in loading state_dict"  # how PyTorch begins


def explain_models() -> None:
    """Let fairseq-generate, -interactive, -eval-lm and -validate say which file is no model for them, and why."""
    load_ensemble = checkpoint_utils.load_model_ensemble_and_task

    @functools.wraps(load_ensemble)
    def load_explained(filenames: list[str], *args: Any, **kwargs: Any) -> Any:
        files = ", ".join(map(str, filenames))
        with explained(files):
            try:
                return load_ensemble(filenames, *args, **kwargs)
            except RuntimeError as error:
                if not str(error).startswith(MISFIT):
                    raise
                fault = f"{files} does not fit the model that its own configuration describes"
                raise InputError(f"{fault}: {misfit(error)}") from error

    checkpoint_utils.load_model_ensemble_and_task = load_explained
