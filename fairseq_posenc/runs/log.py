"""The log of ``fairseq-train``, in each format that has losses: ``json``, ``simple`` and ``tqdm``."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

TEXT = re.compile(r"\| (train|valid|train_inner) \| epoch \d+(?: \||:)(.*)")
"""A line of all formats but JSON."""
PREFIXES = {"": "training", "train_": "training", "valid_": "validation", "permuted_": "permuted"}
"""Of the names of numbers."""


def entries(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield the numbers of each line, such as ``valid_loss`` and ``train_loss`` of a whole pass, and ``loss`` within an epoch."""
    for line in text.splitlines():
        _, brace, values = line.partition("{")
        try:
            entry = json.loads(brace + values)
            if isinstance(entry, dict):
                yield entry
        except (ValueError, RecursionError):
            if match := TEXT.search(line):
                prefix = "" if match[1] == "train_inner" else f"{match[1]}_"
                yield {prefix + name: value for name, value in re.findall(r"(\w+)[ =](-?[\d.]+(?:e[-+]?\d+)?)\b", match[2])}


def losses(log: Path) -> dict[str, dict[int, float]]:
    """Return the losses, in bits, by the number of updates: in ``training``, of ``validation``, and on ``permuted`` words.

    A run that was killed has logged some updates twice; the last time counts.

    Raises:
        OSError: the file cannot be read.
    """
    found: dict[str, dict[int, float]] = {"training": {}, "validation": {}, "permuted": {}}
    for entry in entries(log.read_text("utf-8", "replace")):
        for prefix, kind in PREFIXES.items():
            try:
                found[kind][int(entry[f"{prefix}num_updates"])] = float(entry[f"{prefix}loss"])
            except (KeyError, TypeError, ValueError, OverflowError):  # another kind of line, or a damaged one
                continue
    return {kind: dict(sorted(points.items())) for kind, points in found.items()}
