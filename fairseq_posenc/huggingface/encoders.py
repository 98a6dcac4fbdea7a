"""Encoders from Python, of checkpoints and of models of transformers."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.transformer import Encoder


def load_encoder(source: str | os.PathLike) -> Encoder:
    """Load an encoder as a plain PyTorch module, for evaluation.

    Args:
        source: a checkpoint of ``fairseq-train``; or the folder or name of a model of transformers that
            ``import-hf`` takes, an export of this package included, which needs transformers. Its encoder takes the numbers
            of its tokenizer.

    Raises:
        InputError, OSError: there is no such model, or it has no encoder of this package's kind.
    """
    if Path(source).is_file():
        from ..plugin.checkpoint.checkpoint import Checkpoint

        return Checkpoint(Path(source)).encoder()
    from .importing import read_encoder

    found, encoder = read_encoder(os.fspath(source))
    number = found.vocabulary.order  # the tokenizer's, by the place in fairseq's dictionary
    symbols = {name: getattr(encoder.config, name) for name in ("padding_idx", "separator_idx")}
    own: dict[str, Any] = {name: int(number[index]) for name, index in symbols.items() if index is not None}
    numbered = type(encoder)(replace(encoder.config, **own))
    words = encoder.embed_tokens.weight[number.argsort()]
    numbered.load_state_dict(encoder.state_dict() | {"embed_tokens.weight": words})
    return numbered.eval()
