"""``manifest.json``: what a prepared folder was made from, its tokenizer, and its complete shards."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from ..errors import InputError, flag_of
from ..runs.record import differences, read_object, write_json
from .databin import COUNTS
from .sources import Sources

NAME = "manifest.json"
FORMAT = 3
CONTENT = ("options", "inputs", "tokenizer", "shards")


@dataclass
class Manifest:
    """The record of an output folder. While the folder is written, only the holder of its lock may use it.

    Attributes:
        folder: the output folder.
        options: what decides the result, by the flag's name.
        inputs: fingerprints of the texts, by role (``train``, ``valid``).
        tokenizer: its number of symbols and the SHA-256 of its files; empty until it is trained.
        shards: of each complete shard, by its name: totals of its texts, and the bytes of its files.
    """

    folder: Path
    options: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    tokenizer: dict[str, Any] = field(default_factory=dict)
    shards: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)

    def totals(self) -> dict[str, dict[str, int]]:
        """Return the sums of ``COUNTS`` over the complete shards, by text (``train``, ``valid``)."""
        sums: dict[str, Counter[str]] = {}
        for shard in self.shards.values():
            for text, totals in shard["totals"].items():
                sums.setdefault(text, Counter()).update({name: int(totals[name]) for name in COUNTS})
        return {text: dict(totals) for text, totals in sums.items()}

    def texts(self) -> list[str]:
        """Return the names of the training texts."""
        return [str(text["path"] if "path" in text else text["dataset"]) for text in self.inputs.get("train", [])]

    def is_whole(self, shard: str) -> bool:
        """Return whether a shard is complete and its files still have the sizes they had."""
        files = self.shards[shard]["files"] if shard in self.shards else {}
        paths = [path for name in files if (path := self.folder / name).exists()]
        return bool(files) and [path.stat().st_size for path in paths] == list(files.values())

    def save(self) -> None:
        """Write the file."""
        content = {"format": FORMAT, **{name: getattr(self, name) for name in CONTENT}}
        write_json(self.folder / NAME, content, file_names=True, indent=2)


def read(folder: Path) -> Manifest:
    """Return the record of a folder, empty if nothing was prepared there.

    Raises:
        InputError: the file is damaged, or another release wrote it.
    """
    content = read_object(folder / NAME, FORMAT)
    if content is None:
        return Manifest(folder)
    try:
        manifest = Manifest(folder, **{name: dict(content[name]) for name in CONTENT})
        for source in chain.from_iterable(manifest.inputs.values()):
            source.get(source["sha256"])
        for shard in manifest.shards.values():
            shard["files"].values()
        manifest.totals(), manifest.texts(), manifest.tokenizer and f"{manifest.tokenizer['symbols']:,}"
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InputError(f"{folder / NAME} is damaged. Name another --out, or move it away.") from None
    return manifest


def resume(folder: Path, options: dict[str, Any], sources: Sources) -> Manifest:
    """Return the record of a folder that is made from ``options`` and ``sources``, with what is complete.

    Raises:
        InputError: what the folder holds was made from something else; the message names what differs.
    """
    earlier = read(folder)
    inputs = {role: [source.fingerprint() for source in of_role] for role, of_role in sources.items()}
    if not earlier.tokenizer:
        return Manifest(folder, options, inputs)
    changes = differences(*({flag_of(key): value for key, value in values.items()} for values in (earlier.options, options)))
    for role, of_role in sources.items():
        before = earlier.inputs.get(role, [])
        if len(before) != len(of_role):
            changes.append(f"it had {len(before)} {role} files, now {len(of_role)}")
        for source, old, new in zip(of_role, before, inputs[role], strict=False):
            if source.is_same(old):
                new["sha256"] = old["sha256"]
            else:
                changes.append(f"{source.name} is not what {old.get('path', old.get('dataset'))} was")
    if changes:
        raise InputError(
            f"{folder} was prepared from something else: {'; '.join(changes)}. "
            "Name another --out, or add --overwrite to replace it."
        )
    return Manifest(folder, options, inputs, earlier.tokenizer, earlier.shards)


def digests(files: Mapping[str, bytes]) -> dict[str, str]:
    """SHA-256 of contents, by their names."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
