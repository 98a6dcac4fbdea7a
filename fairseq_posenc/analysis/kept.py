"""What was found out about each model, kept until the command ends and after: one that was killed goes on at the next model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from ..errors import InputError
from ..files import atomic_write
from ..version import __version__
from .embeddings import Correlations, Rank
from .findings import Findings, OnText, Vectors
from .offsets import OffsetFunction
from .probes import IdenticalWords, LinearProbes

TYPES: list[Any] = [Correlations, Findings, IdenticalWords, LinearProbes, OffsetFunction, OnText, Rank, Vectors]


def file_of(folder: Path, sources: Iterable[Path], settings: dict[str, Any]) -> Path:
    """Where findings lie that rest on these settings and on these files, or all files of these folders, as they are now."""
    files = [file for path in sources for file in (sorted(path.iterdir()) if path.is_dir() else [path]) if file.is_file()]
    states = [(str(file.resolve()), (state := file.stat()).st_size, state.st_mtime_ns) for file in files]
    rests_on = json.dumps([__version__, states, settings], sort_keys=True)
    return folder / f"{hashlib.sha256(rests_on.encode()).hexdigest()[:20]}.pt"


def kept(file: Path, find: Callable[[], Findings]) -> Findings:
    """What the file holds, or what ``find`` finds now, which is then written there.

    Raises:
        InputError: the file is damaged.
    """
    if not file.exists():
        found = find()
        with atomic_write(file, "wb") as stream:
            torch.save(found, stream)
        return found
    try:
        with torch.serialization.safe_globals(TYPES):
            found = torch.load(file, weights_only=True)
        assert isinstance(found, Findings)
    except Exception as error:
        raise InputError(f"{file} is damaged: remove it, and its model is looked at again") from error
    return found
