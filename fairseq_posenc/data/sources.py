"""What the command line names as text: files, folders, patterns and data sets of the Hugging Face hub."""

import glob
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fairseq_posenc.data.text import READERS, TEXT_SUFFIXES, Layout, MeteredFile, Passage, read_passages, suffix
from fairseq_posenc.files import sha256

HUB = "hf:"
OnRead, OnEnd = Callable[[int], object], Callable[[str], object]


def ignore(_: object) -> None:
    """What is told of reading where nobody wants to know."""


class Source(Protocol):
    """A file, or what is read like one."""

    name: str
    size: int | None
    """Bytes to read, where they are known before."""

    def fingerprint(self) -> dict[str, Any]:
        """What a later run compares to tell whether this is still the same text; its ``sha256`` is filled in once read."""

    def is_same(self, earlier: dict[str, Any]) -> bool:
        """Whether an earlier fingerprint is of the same text."""

    def passages(self, on_read: OnRead = ignore, on_end: OnEnd = ignore) -> Iterator[Passage]:
        """All of it in order; ``on_read`` is told of every few bytes read, ``on_end`` the SHA-256 of all."""


@dataclass(frozen=True)
class TextFile:
    """A file of text or JSON lines."""

    name: str
    layout: Layout

    @property
    def size(self) -> int:
        return os.path.getsize(self.name)

    def fingerprint(self) -> dict[str, Any]:
        status = os.stat(self.name)
        return {"path": os.path.abspath(self.name), "bytes": status.st_size, "modified_ns": status.st_mtime_ns, "sha256": None}

    def is_same(self, earlier: dict[str, Any]) -> bool:
        """As for every source; the file is read only where its time alone has changed."""
        now = self.fingerprint()
        if earlier.get("bytes") != now["bytes"]:
            return False
        return earlier.get("modified_ns") == now["modified_ns"] or earlier.get("sha256") == sha256(self.name)

    def passages(self, on_read: OnRead = ignore, on_end: OnEnd = ignore) -> Iterator[Passage]:
        with MeteredFile(self.name, on_read) as raw:
            yield from read_passages(raw, self.name, self.layout)
            on_end(raw.sha256())


def find(names: Sequence[str], layout: Layout) -> list[Source]:
    """Every source that the names stand for, in their order; what a folder or pattern stands for is sorted.

    Raises:
        FileNotFoundError: a name stands for nothing.
        ValueError: a file is named twice, or is a pipe or a device.
    """
    sources: list[Source] = []
    for name in names:
        if name.startswith(HUB):
            sources += _in_hub(name, layout)
        else:
            sources += [TextFile(_regular(path), layout) for path in _paths(name)]
    seen: set[str] = set()
    for source in sources:
        identity = os.path.realpath(source.name) if isinstance(source, TextFile) else source.name
        if identity in seen:
            raise ValueError(f"{source.name} is named twice; held-out documents would be trained on.")
        seen.add(identity)
    return sources


def _in_hub(name: str, layout: Layout) -> Sequence[Source]:
    try:
        from fairseq_posenc.data.hub import shards
    except ModuleNotFoundError as error:
        raise ValueError(f"{name}: needs {error.name}, which is not installed: pip install -e '.[hub]'") from None
    return shards(name.removeprefix(HUB), layout)


def _paths(name: str) -> list[str]:
    if os.path.isdir(name):
        return _in_folder(Path(name))
    if os.path.exists(name):
        return [name]
    if not glob.has_magic(name):
        raise FileNotFoundError(f"{name}: no such file")
    paths = [path for path in sorted(glob.glob(name, recursive=True)) if not os.path.isdir(path)]
    if not paths:
        raise FileNotFoundError(f"{name}: no file matches")
    return paths


def _regular(path: str) -> str:
    if os.path.exists(path) and not os.path.isfile(path):
        raise ValueError(f"{path} is not a file but a pipe or device. Text is read more than once; write it to a file first.")
    return path


def _in_folder(folder: Path) -> list[str]:
    def refuse(error: OSError) -> None:
        raise error

    files = []
    for base, folders, names in os.walk(folder, onerror=refuse):
        files += [Path(base, name) for name in names]
        for link in filter(os.path.islink, (os.path.join(base, name) for name in folders)):
            print(f"{link}: a link to a folder is not followed; name it too if it is wanted", file=sys.stderr)
    files.sort()
    texts = [str(path) for path in files if suffix(path.name) in TEXT_SUFFIXES]
    if not texts:
        raise FileNotFoundError(
            f"{folder}: no text in this folder or below it; looked for {', '.join(TEXT_SUFFIXES)}, each plain or with "
            f"{', '.join(READERS)}"
        )
    if others := len(files) - len(texts):
        print(f"{folder}: {len(texts):,} files of text; {others:,} others are left out", file=sys.stderr)
    return texts
