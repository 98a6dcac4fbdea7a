"""The log of ``fairseq-train`` with ``--log-format json``."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any


def entries(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield the numbers of each line, such as ``valid_loss`` and ``train_loss`` of a whole pass, and ``loss`` within an epoch."""
    for line in text.splitlines():
        _, brace, values = line.partition("{")
        with suppress(ValueError, RecursionError):
            entry = json.loads(brace + values)
            if isinstance(entry, dict):
                yield entry


def validation_losses(log: Path, subset: str = "valid") -> dict[int, float]:
    """Return the losses on a subset of ``--valid-subset``, in bits, by the number of updates.

    A run that was killed has logged some updates twice; the last time counts.

    Raises:
        OSError: the file cannot be read.
    """
    found: dict[int, float] = {}
    for entry in entries(log.read_text("utf-8", "replace")):
        with suppress(KeyError, TypeError, ValueError, OverflowError):  # another kind of line, or a damaged one
            found[int(entry[f"{subset}_num_updates"])] = float(entry[f"{subset}_loss"])
    return dict(sorted(found.items()))
