"""``manifest.json``: what a prepared folder was made from, its tokenizer, and its complete shards."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InputError, flag_of
from ..runs.record import differences, read_object, write_json
from .databin import COUNTS
from .sources import Sources

NAME = "manifest.json"
FORMAT = 3


class Record(NamedTuple):
    """The content of a manifest.

    Attributes:
        options: what decides the result, by the flag's name.
        inputs: fingerprints of the texts, by role (``train``, ``valid``).
        tokenizer: its number of symbols and the SHA-256 of its files; empty until it is trained.
        shards: of each complete shard, by its name: totals of its texts, and the bytes of its files.
    """

    options: dict[str, Any]
    inputs: dict[str, list[dict[str, Any]]]
    tokenizer: dict[str, Any]
    shards: dict[str, dict[str, dict[str, Any]]]

    def totals(self) -> dict[str, dict[str, int]]:
        """The sums of ``COUNTS`` over the complete shards, by text (``train``, ``valid``)."""
        sums: dict[str, Counter[str]] = {}
        for shard in self.shards.values():
            for text, totals in shard["totals"].items():
                sums.setdefault(text, Counter()).update({name: int(totals[name]) for name in COUNTS})
        return {text: dict(totals) for text, totals in sums.items()}

    def texts(self) -> list[str]:
        """The names of the training texts."""
        return [str(text["path"] if "path" in text else text["dataset"]) for text in self.inputs.get("train", [])]


def read(folder: Path) -> Record:
    """The record of a folder, empty if nothing was prepared there.

    Raises:
        InputError: the file is damaged, or another release wrote it.
    """
    content = read_object(folder / NAME, FORMAT)
    if content is None:
        return Record({}, {}, {}, {})
    try:
        record = Record(*(dict(content[name]) for name in Record._fields))
        for source in chain.from_iterable(record.inputs.values()):
            source.get(source["sha256"])
        for shard in record.shards.values():
            shard["files"].values()
        record.totals(), record.texts(), record.tokenizer and f"{record.tokenizer['symbols']:,}"
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InputError(f"{folder / NAME} is damaged. Name another --out, or move it away.") from None
    return record


def digests(files: Mapping[str, bytes]) -> dict[str, str]:
    """SHA-256 of contents, by their names."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


class Manifest:
    """The record of one output folder while it is written. Only the holder of the folder's lock may use it.

    Args:
        folder: the output folder.
        options: what decides the result, by the flag's name.
        sources: the text, by role.

    Attributes:
        record: see :class:`Record`.

    Raises:
        InputError: what the folder holds was made from something else; the message names what differs.
    """

    def __init__(self, folder: Path, options: dict[str, Any], sources: Sources) -> None:
        self._folder = folder
        self.record = Record(options, {role: [one.fingerprint() for one in given] for role, given in sources.items()}, {}, {})
        earlier = read(folder)
        if not earlier.tokenizer:
            return
        if changed := self._changes(earlier, sources):
            raise InputError(
                f"{folder} was prepared from something else: {'; '.join(changed)}. "
                "Name another --out, or add --overwrite to replace it."
            )
        self.record = self.record._replace(tokenizer=earlier.tokenizer, shards=earlier.shards)

    def _changes(self, earlier: Record, sources: Sources) -> list[str]:
        changes = differences(*({flag_of(key): value for key, value in of.options.items()} for of in (earlier, self.record)))
        for role, of_role in sources.items():
            before = earlier.inputs.get(role, [])
            if len(before) != len(of_role):
                changes.append(f"it had {len(before)} {role} files, now {len(of_role)}")
            for source, old, new in zip(of_role, before, self.record.inputs[role], strict=False):
                if source.is_same(old):
                    new["sha256"] = old["sha256"]
                else:
                    changes.append(f"{source.name} is not what {old.get('path', old.get('dataset'))} was")
        return changes

    def is_whole(self, shard: str) -> bool:
        """Whether a shard is complete and its files still have the sizes they had."""
        files = self.record.shards[shard]["files"] if shard in self.record.shards else {}
        paths = [path for name in files if (path := self._folder / name).exists()]
        return bool(files) and [path.stat().st_size for path in paths] == list(files.values())

    def save(self) -> None:
        """Write the file."""
        write_json(self._folder / NAME, {"format": FORMAT, **self.record._asdict()}, file_names=True, indent=2)
