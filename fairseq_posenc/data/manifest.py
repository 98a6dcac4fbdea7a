"""``manifest.json``: what a prepared folder was made from and which stages are done."""

import json
import os
from pathlib import Path
from typing import Any

from fairseq_posenc.files import atomic_write, sha256

NAME = "manifest.json"
FORMAT = 1


class Manifest:
    """The record of one output folder, written again after every stage.

    Args:
        folder: the output folder.
        options: what decides the result, by the flag's name.
        inputs: the text files, by the role they play (``train``, ``valid``).

    Attributes:
        stages: what each finished stage reported, by its name.

    Raises:
        ValueError: the folder's finished stages were made from something else; says what differs.
        FileNotFoundError: a text file is not there.
    """

    def __init__(self, folder: Path, options: dict[str, Any], inputs: dict[str, list[str]]) -> None:
        self._path = folder / NAME
        self._options = options
        self._inputs = {role: [_fingerprint(path) for path in paths] for role, paths in inputs.items()}
        self.stages: dict[str, dict[str, Any]] = {}
        if not self._path.exists():
            return
        try:
            earlier = json.loads(self._path.read_text("utf-8"))
            stages, options, inputs = earlier["stages"], earlier["options"], earlier["inputs"]
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(f"{self._path} is not a manifest ({error}). Name another --out, or add --overwrite.") from None
        if stages and (changed := self._changes(options, inputs)):
            raise ValueError(
                f"{folder} was prepared from something else: {'; '.join(changed)}. "
                "Name another --out, or add --overwrite to make it anew."
            )
        self.stages = stages

    def _changes(self, options: dict[str, Any], inputs: dict[str, list[dict[str, Any]]]) -> list[str]:
        changes = [
            f"--{key.replace('_', '-')} was {options.get(key)}, now {self._options.get(key)}"
            for key in sorted({*options, *self._options})
            if options.get(key) != self._options.get(key)
        ]
        for role in sorted({*inputs, *self._inputs}):
            before, now = inputs.get(role, []), self._inputs.get(role, [])
            if len(before) != len(now):
                changes.append(f"it had {len(before)} {role} files, now {len(now)}")
            for old, new in zip(before, now, strict=False):
                if not _same(old, new):
                    changes.append(f"{new['path']} is not what {old['path']} was")
        return changes

    def hashed(self, role: str, index: int, digest: str) -> None:
        """Record the SHA-256 of an input, known once it has been read."""
        self._inputs[role][index]["sha256"] = digest

    def finish(self, stage: str, report: dict[str, Any]) -> None:
        """Mark a stage as done."""
        self.stages[stage] = report
        self.save()

    def save(self) -> None:
        """Write the file."""
        content = {"format": FORMAT, "options": self._options, "inputs": self._inputs, "stages": self.stages}
        with atomic_write(self._path) as stream:
            json.dump(content, stream, indent=2, ensure_ascii=False)
            stream.write("\n")


def _fingerprint(path: str) -> dict[str, Any]:
    status = os.stat(path)
    return {"path": os.path.abspath(path), "bytes": status.st_size, "modified_ns": status.st_mtime_ns, "sha256": None}


def _same(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether two fingerprints are of the same text; the file is read only where its time alone has changed."""
    if old["bytes"] != new["bytes"]:
        return False
    if old["modified_ns"] != new["modified_ns"] and old["sha256"] != sha256(new["path"]):
        return False
    new["sha256"] = old["sha256"]
    return True
