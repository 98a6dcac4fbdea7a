"""Encoders from Python, of checkpoints and of models of transformers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..core.transformer import Encoder


def load_encoder(source: str | os.PathLike) -> Encoder:
    """Load an encoder as a plain PyTorch module, for evaluation.

    Args:
        source: a checkpoint of ``fairseq-train``; or the folder or name of a model of transformers that
            ``import-hf`` takes, an export of this package included, which needs transformers.

    Raises:
        InputError, OSError: there is no such model, or it has no encoder of this package's kind.
    """
    if Path(source).is_file():
        from ..plugin.checkpoint.checkpoint import Checkpoint

        return Checkpoint(Path(source)).encoder()
    from .source_models import read

    return read(os.fspath(source)).encoder()
