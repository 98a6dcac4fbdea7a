"""The folder that prepare writes: its files, which of them may be removed, the locks of its writers, and its record.

``manifest.json`` records what the folder was made from, its tokenizer, and its complete shards.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...base import ownership
from ...base.errors import InputError, flag_of
from ...base.files import LOCK, atomic_write, partial_of, real, sole_writer
from ...base.files import read as read_file
from ...base.record import differences, read_object, write_json
from ..vocabulary import DICTIONARY, GIVEN_DICTIONARY, TOKENIZER_FILES
from .databin import COUNTS, files_of
from .text_sources import VALID, RemoteFile, Source, Sources

if TYPE_CHECKING:
    from .prepare import Options

MANIFEST = "manifest.json"
FORMAT = 3
CONTENT = ("options", "inputs", "tokenizer", "shards")
SHARDS = "shards.txt"
TOKENIZERS = (*TOKENIZER_FILES, GIVEN_DICTIONARY)
MAKER = "prepare"  # in the folder's record
SHARD_LOCK = f"{LOCK}-{{}}".format
"""The name of the lock of a shard."""


class Folder(NamedTuple):
    """An output folder, and how many shards it has."""

    out: Path
    number: int

    @property
    def shards(self) -> dict[str, Path]:
        """The folders of the shards by name; a single shard is the folder itself."""
        if self.number == 1:
            return {"train": self.out}
        return {name: self.out / name for name in (f"shard-{index:05}" for index in range(self.number))}

    def prefixes(self, shard: str) -> dict[str, Path]:
        """Return the paths of a shard's texts by destination (see ``split``); the first shard has the validation text, too."""
        place = self.shards[shard]
        prefixes = {shard: place / "train"}
        return prefixes | {VALID: place / VALID} if shard == next(iter(self.shards)) else prefixes

    def lock_shard(self, shard: str) -> AbstractContextManager:
        """Hold the lock of a shard while it is written, or raise BlockingIOError if another process does."""
        return sole_writer(self.out, SHARD_LOCK(shard))

    def require_free(self, options: Options, sources: Sequence[Source]) -> None:
        """Raise InputError or OSError if fairseq cannot read the folder, or it holds text or another command's files."""
        read_by_fairseq = str(self.out.absolute() if self.number > 1 else self.out)
        if ":" in read_by_fairseq or not read_by_fairseq.isprintable():
            raise InputError(f"--out {read_by_fairseq!r}: fairseq takes ':' for the end of a path. Use plain characters.")
        files = {source.name for source in sources if not isinstance(source, RemoteFile)}
        folders = {name for name in (*options.text, *options.valid) if os.path.isdir(name)}
        ownership.require_apart(self.out, [("TEXT", Path(name)) for name in sorted(files | folders)])
        vocabulary, out = options.vocabulary, real(self.out)
        if options.overwrite and vocabulary and out in (real(vocabulary), *real(vocabulary).parents):
            raise InputError(f"--vocabulary {vocabulary} lies in {self.out}, which --overwrite empties. Copy it elsewhere first.")
        ownership.require_own(self.out, MAKER, "--out")

    def claim(self) -> None:
        """Make the folder with its record; needs the lock. Raises InputError if that is not possible, or a shard is a link."""
        for shard in self.shards.values():
            if shard.is_symlink() and shard != self.out:
                raise InputError(f"{shard} is a link, which is not followed: name another --out")
        ownership.claim(self.out, MAKER)

    def empty(self, keep: str = "") -> None:
        """Remove what was prepared here but the file ``keep``; needs the lock. BlockingIOError: a shard is being written."""
        for lock in (self.out / SHARD_LOCK("train"), *self.out.glob(SHARD_LOCK("shard-?????"))):
            if lock.exists():
                with sole_writer(self.out, lock.name):
                    pass
        if ownership.made_by(self.out) != MAKER:
            return
        names = [
            MANIFEST,
            SHARDS,
            DICTIONARY,
            *TOKENIZERS,
            *(path.name for text in ("train", VALID) for path in files_of(Path(text))),
        ]
        for place in (self.out, *(shard for shard in self.out.glob("shard-?????") if not shard.is_symlink())):
            for path in (place / name for name in names if name != keep):
                path.unlink(missing_ok=True)
                partial_of(path).unlink(missing_ok=True)
            with suppress(OSError):  # it has other files
                place.rmdir()

    def list_shards(self) -> None:
        """Write shards.txt, the data of ``fairseq-train`` for several shards; may be repeated after the folder was moved."""
        if self.number > 1:
            with atomic_write(self.out / SHARDS) as stream:
                stream.write(":".join(str(folder.absolute()) for folder in self.shards.values()) + "\n")

    def tokenizer_files(self) -> dict[str, bytes]:
        """Return the contents of the tokenizer's files by name."""
        paths = (self.out / name for name in TOKENIZERS)
        return {path.name: read_file(path) for path in paths if path.exists()}


@dataclass
class Manifest:
    """The record of an output folder. While the folder is written, only the holder of its lock may use it."""

    folder: Path
    options: dict[str, Any] = field(default_factory=dict)  # those that decide the result, by the flag's name
    inputs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # fingerprints of the texts, by role
    tokenizer: dict[str, Any] = field(default_factory=dict)  # number of symbols, SHA-256 of the files; empty until trained
    shards: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)  # totals and bytes of each complete shard's files

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
        """Return whether a shard is complete and its files have the recorded sizes."""
        files = self.shards[shard]["files"] if shard in self.shards else {}
        paths = [path for name in files if (path := self.folder / name).exists()]
        return bool(files) and [path.stat().st_size for path in paths] == list(files.values())

    def save(self) -> None:
        """Write ``manifest.json`` in the folder, atomically."""
        content = {"format": FORMAT, **{name: getattr(self, name) for name in CONTENT}}
        write_json(self.folder / MANIFEST, content, indent=2)


def read(folder: Path) -> Manifest:
    """Return the record of a folder, empty if nothing was prepared there, or raise InputError if it is damaged."""
    content = read_object(folder / MANIFEST, FORMAT)
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
        raise InputError(f"{folder / MANIFEST} is damaged. Name another --out, or move it away.") from None
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
    before, now = ({flag_of(name): value for name, value in values.items()} for values in (earlier.options, options))
    changes = differences(before, now)
    for role, of_role in sources.items():
        recorded = earlier.inputs.get(role, [])
        if len(recorded) != len(of_role):
            changes.append(f"it had {len(recorded)} {role} files, now {len(of_role)}")
        for source, old, new in zip(of_role, recorded, inputs[role], strict=False):
            if source.is_same(old):
                new["sha256"] = old["sha256"]
            else:
                changes.append(f"{source.name} is not what {old.get('path', old.get('dataset'))} was")
    if changes:
        raise InputError(f"{folder} was prepared differently: {'; '.join(changes)}. Name another --out, or add --overwrite.")
    return Manifest(folder, options, inputs, earlier.tokenizer, earlier.shards)


def content_digests(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the SHA-256 of contents, by their names."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
