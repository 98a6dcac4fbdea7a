"""The sources of text that the command line names: files, folders, patterns and addresses."""

import atexit
import filecmp
import glob
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from tqdm import tqdm

from ...base.errors import InputError, first_line
from ...base.files import report_full_disk, sha256
from . import text
from .formats import PACKINGS, SUFFIXES, is_text, suffixes
from .text import Layout, OnEnd, OnRead, Passage, ignore

VALID = "valid"
"""The role of validation text, the other being ``train``; also the destination of documents that are held out."""
STDIN = "-"
PACKED = 3
COMPRESSED = (".parquet", ".zip", ".tgz")
ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


@dataclass(frozen=True)
class Source:
    """A file of text or rows."""

    name: str
    layout: Layout

    @property
    def size(self) -> int | None:
        """Bytes to read, if known in advance."""
        return os.path.getsize(self.name)

    def likeness(self) -> Hashable:
        """Return what sources of the same text have in common; files are then compared."""
        with open(self.name, "rb") as stream:
            return self._at_first["bytes"], stream.read(1024) or os.path.realpath(self.name)  # empty files are no copies

    def fingerprint(self) -> dict[str, Any]:
        """Return what a later run compares to detect another text; ``sha256`` is filled in once the text has been read."""
        status = os.stat(self.name)
        return {"path": os.path.basename(self.name), "bytes": status.st_size, "modified_ns": status.st_mtime_ns, "sha256": None}

    @cached_property
    def _at_first(self) -> dict[str, Any]:
        return self.fingerprint()

    def is_same(self, earlier: dict[str, Any]) -> bool:
        """Return whether an earlier fingerprint is of the same text; the file is read only if its time alone has changed.

        Raises:
            InputError: the file has another size than when this process saw it first.
        """
        now = self.fingerprint()
        if now["bytes"] != self._at_first["bytes"]:
            raise InputError(
                f"{self.name} has changed while it was read: wait until it is complete, and give the command again with "
                "--overwrite"
            )
        if earlier.get("bytes") != now["bytes"]:
            return False
        return earlier.get("modified_ns") == now["modified_ns"] or earlier.get("sha256") == sha256(self.name)

    def passages(self, on_read: OnRead = ignore, on_end: OnEnd = ignore) -> Iterator[Passage]:
        """Yield all of it in order; call ``on_read`` with every number of bytes read, and ``on_end`` with the SHA-256 of all."""
        with text.MeteredFile(self.name, on_read) as raw:
            yield from text.read_passages(raw, self.name, self.layout)
            on_end(raw.sha256())


@dataclass(frozen=True)
class RemoteFile(Source):
    """A file at an address of fsspec, of whose ``system`` it is the ``path``. It has no SHA-256."""

    system: Any
    path: str
    size = None

    def likeness(self) -> Hashable:
        return self.name

    def fingerprint(self) -> dict[str, Any]:
        version = str(self.system.ukey(self.path))
        return {"path": self.name, "bytes": self.system.size(self.path), "version": version, "sha256": None}

    def is_same(self, earlier: dict[str, Any]) -> bool:
        return {**earlier, "sha256": None} == self.fingerprint()

    def passages(self, on_read: OnRead = ignore, on_end: OnEnd = ignore) -> Iterator[Passage]:
        with self.system.open(self.path, "rb") as stream:
            for passage in text.read_passages(stream, self.name, self.layout):
                on_read(len(passage.text))
                yield passage


Sources = dict[str, list[Source]]
"""Sources by their role."""


def find(named: Mapping[str, Sequence[str]], layout: Layout) -> Sources:
    """Return every source that the names of each role refer to, in their order; those of a folder or pattern are sorted.

    Raises:
        FileNotFoundError: a name refers to nothing.
        InputError: two names refer to the same text or to copies of it, or one to a pipe or a device.
    """
    sources: Sources = {role: [] for role in named}
    alike: dict[Hashable, list[tuple[Source, str, str]]] = {}
    for role, name in ((role, name) for role, names in named.items() for name in names):
        given = f"--valid {name}" if role == VALID else name
        for source in _named(name, layout):
            mention = given if source.name == name else f"{source.name} (of {given})"
            others = alike.setdefault(source.likeness(), [])
            for other, other_role, other_mention in others:
                if source.size is None or filecmp.cmp(source.name, other.name, shallow=False):
                    consequence = "count twice" if role == other_role else "be trained on, and validate nothing"
                    raise InputError(f"{mention} is the same text as {other_mention}, and would {consequence}. Name it once.")
            others.append((source, role, mention))
            sources[role].append(source)
    return sources


def estimated_text(sources: Sequence[Source]) -> int | None:
    """Return the bytes of text in all sources together, or None if some are not known before they are read.

    Compressed text is counted as ``PACKED`` times its size, about the ratio on prose.
    """
    if any(source.size is None for source in sources):
        return None
    return sum(
        (source.size or 0) * (PACKED if suffixes(source.name)[1] or suffixes(source.name)[0] in COMPRESSED else 1)
        for source in sources
    )


def progress_bar(label: str, sources: Sequence[Source]) -> tqdm:
    """Return a progress bar of reading these sources, in bytes."""
    known = [source.size for source in sources if source.size is not None]
    total = sum(known) if len(known) == len(sources) else None
    interval = 0.1 if sys.stderr.isatty() else 30
    return tqdm(total=total, desc=label, unit="B", unit_scale=True, mininterval=interval)


def _named(name: str, layout: Layout) -> Sequence[Source]:
    if ADDRESS.match(name):
        return _at_address(name, layout)
    if name == STDIN:
        if sys.stdin is None:
            raise InputError(f"{STDIN}: standard input is closed")
        return [Source(_kept(sys.stdin.buffer), layout)]
    if os.path.isdir(name):
        paths = _in_folder(Path(name))
    elif os.path.exists(name) or not glob.has_magic(name):
        paths = [name]
    else:
        paths = [path for path in sorted(glob.glob(name, recursive=True)) if not os.path.isdir(path)]
    if not paths or not os.path.exists(paths[0]):
        raise FileNotFoundError(f"{name}: no {'such file' if paths else 'file matches'}")
    for path in paths:
        if os.path.exists(path) and not os.path.isfile(path):
            raise InputError(f"{path} is not a file but a pipe or device. Text is read more than once; write it to a file first.")
    return [Source(path, layout) for path in paths]


def _at_address(name: str, layout: Layout) -> Sequence[Source]:
    """Return the files at an address, which may be a folder or a pattern; raises InputError or OSError if it cannot be read."""
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(name)
        if "*" in path:
            paths = sorted(system.glob(path))
        elif system.info(path)["type"] == "directory":
            paths = sorted(file for file in system.find(path) if is_text(file.removeprefix(path).strip("/")))
        else:
            paths = [path]
    except Exception as error:  # of any kind, as the systems are
        raise (OSError if isinstance(error, OSError) else InputError)(f"{name}: {first_line(error) or 'no such file'}") from error
    if not paths:
        raise FileNotFoundError(f"{name}: no file matches")
    return [RemoteFile(name if file == path else system.unstrip_protocol(file), layout, system, file) for file in paths]


def _kept(stream: IO[bytes]) -> str:
    """Copy a stream to a temporary file, since text is read more than once; it is removed at the end of the process."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with report_full_disk(folder), open(os.path.join(folder, "stdin"), "wb") as copy:
        shutil.copyfileobj(stream, copy, 1 << 20)
    return copy.name


def _in_folder(folder: Path) -> list[str]:
    files = []
    for base, folders, names in os.walk(folder, onerror=text.refuse):
        files += [Path(base, name) for name in names]
        if "dataset_dict.json" in names and len(folders) > 1:  # of datasets
            raise InputError(
                f"{base}: a data set with the parts {', '.join(sorted(folders))}. Name {base}/{min(folders)}, or another"
            )
        for link in filter(os.path.islink, (os.path.join(base, name) for name in folders)):
            print(f"{link}: a link to a folder is not followed; name it too if you want it", file=sys.stderr)
    files.sort()
    texts = [str(path) for path in files if is_text(str(path.relative_to(folder)))]
    if not texts:
        raise FileNotFoundError(
            f"{folder}: no text in this folder or below it; looked for {', '.join(SUFFIXES)}, each plain or with "
            f"{', '.join(PACKINGS)}"
        )
    if others := len(files) - len(texts):
        print(f"{folder}: {len(texts):,} files of text; {others:,} others are left out", file=sys.stderr)
    return texts
