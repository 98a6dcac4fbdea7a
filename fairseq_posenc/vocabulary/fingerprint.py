"""What a checkpoint records of its vocabulary, so that data with another one of the same size are noticed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import sha256
from .kinds import kind_of

if TYPE_CHECKING:
    from fairseq.data import Dictionary

KEY = "vocabulary"
"""Of the record in the ``task_state`` of a checkpoint."""


def fingerprint(dictionary: Dictionary, folder: Path) -> dict[str, str]:
    """SHA-256 of a dictionary's symbols in their order, and of each file of the tokenizer where the folder has one."""
    kind = kind_of(os.listdir(folder)) if folder.is_dir() else None
    files = {name: sha256(folder / name) for name in (kind.FILES if kind else ())}
    return {"dictionary": digest(dictionary), **files}


def digest(dictionary: Dictionary) -> str:
    """SHA-256 of a dictionary's symbols in their order."""
    return hashlib.sha256("\n".join(dictionary.symbols).encode("utf-8", "surrogatepass")).hexdigest()


def differing(recorded: Any, found: Mapping[str, str]) -> list[str]:
    """The parts of a vocabulary that are not those that a checkpoint records. A part that either lacks is not compared."""
    recorded = recorded if isinstance(recorded, dict) else {}
    return [name for name in found if recorded.get(name, found[name]) != found[name]]
