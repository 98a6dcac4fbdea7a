"""The folder that prepare writes: its content, who owns it, and who may work there."""

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from fairseq_posenc import ownership
from fairseq_posenc.data.manifest import NAME as MANIFEST
from fairseq_posenc.data.manifest import read
from fairseq_posenc.data.options import Options
from fairseq_posenc.data.sources import VALID, Source, TextFile
from fairseq_posenc.data.split import ONLY_PART, Part
from fairseq_posenc.errors import InputError
from fairseq_posenc.files import atomic_write, partial_of, real, sole_writer
from fairseq_posenc.vocabulary import DICTIONARY, GIVEN_DICTIONARY, TOKENIZER_FILES

SHARDS = "shards.txt"
DATA = (DICTIONARY, "train.idx", "train.bin", "valid.idx", "valid.bin")
OUTPUTS = (*DATA, SHARDS, *TOKENIZER_FILES, GIVEN_DICTIONARY)
"""All files that are written, besides the manifest."""
UNFINISHED = [
    *(f"{split}.{kind}.partial" for split in ("train", VALID) for kind in ("bin", "sizes")),
    *(partial_of(name).name for name in DATA),
]
PARTS, PROGRESS = "parts", "progress.json"
ANY_SHARD, ANY_PART = "shard-?????", "[0-9]*-of-[0-9]*"
MAKER = "prepare"  # in the record of a part's folder


class Folder(NamedTuple):
    """An output folder, and how many shards it has."""

    out: Path
    number: int

    @property
    def shards(self) -> dict[str, Path]:
        """By name; a single shard is the folder itself."""
        if self.number == 1:
            return {"train": self.out}
        return {name: self.out / name for name in (f"shard-{index:05}" for index in range(self.number))}

    def of_part(self, part: Part) -> Path:
        """Where a part keeps what is not finished."""
        return self.out / PARTS / f"{part.number}-of-{part.total}"

    def prefixes(self, part: Part) -> dict[str, Path]:
        """What a part writes, by its name: training text into its shards, validation text into its own folder."""
        own = part.share(list(self.shards.items()))
        return {**{name: folder / "train" for name, folder in own}, VALID: self.of_part(part) / VALID}

    def held(self, part: Part) -> AbstractContextManager:
        """The lock of a part while it is done; for a single part, this is the lock of the whole folder.

        Raises:
            BlockingIOError: another process holds it.
        """
        return sole_writer(self.out, _lock(part))

    def turn(self, part: Part) -> AbstractContextManager:
        """The whole folder for this part, whose lock is held; waits for the other parts."""
        return nullcontext() if part == ONLY_PART else sole_writer(self.out, _lock(ONLY_PART), wait=True)

    def require_free(self, options: Options, sources: Sequence[Source], before: int | None) -> None:
        """Check that fairseq can read the folder, and that no file in it, or to be written, is text or somebody else's.

        ``before`` is the number of shards that already exist, None if there are none.

        Raises:
            InputError: says what is in the way.
        """
        read_by_fairseq = str(self.out.absolute() if self.number > 1 else self.out)
        if ":" in read_by_fairseq or not read_by_fairseq.isprintable():
            raise InputError(
                f"--out {read_by_fairseq!r}: fairseq takes ':' for the end of a path. Name a folder of plain characters."
            )
        out = real(self.out)
        for folder in (real(name) for name in (*options.text, *options.valid) if os.path.isdir(name)):
            if folder in (out, *out.parents):
                raise InputError(
                    f"--out {self.out} lies in {folder}, and what it holds would be read as text. Name a folder elsewhere."
                )
        for source in sources:
            if isinstance(source, TextFile) and _is_written(Path(source.name), out):
                raise InputError(f"{source.name} has the name of a file that is written to --out {self.out}. Name another --out.")
        vocabulary = options.vocabulary
        if options.overwrite and vocabulary and out in (real(vocabulary), *real(vocabulary).parents):
            raise InputError(f"--vocabulary {vocabulary} lies in {self.out}, which --overwrite empties. Copy it elsewhere first.")
        ownership.require_own(self.of_part(options.part), MAKER, made_before)
        own = [] if before is None else Folder(self.out, before)._written()
        for path in self._written():
            if path.exists() and path not in own:
                raise InputError(f"{path} was not written by this command. Name another --out, or move it away.")

    def empty(self) -> None:
        """Remove everything that was prepared here, however many shards it has; needs the lock of the whole folder.

        Raises:
            BlockingIOError: a part is at work.
        """
        for lock in self.out.glob(f".lock-{ANY_PART}"):
            if lock.name != _lock(ONLY_PART):
                with sole_writer(self.out, lock.name):
                    lock.unlink()
        before = read(self.out).shards
        if before is None:
            return
        Folder(self.out, before).clear()
        # The manifest goes last: without it, after a kill, the files would not be known as ours.
        for name in (*OUTPUTS, MANIFEST):
            (self.out / name).unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove all data and what is unfinished, but not the tokenizer."""
        for path in self._written():
            if path.parent != self.out or path.name not in (*TOKENIZER_FILES, GIVEN_DICTIONARY):
                path.unlink(missing_ok=True)
        for folder in self.shards.values():
            _remove_empty(folder)
        self.clear_parts()

    def clear_parts(self) -> None:
        """Remove unfinished files, though another part may still be removing its own, but not other files of such names."""
        for folder in (self.out / PARTS).glob(ANY_PART):
            if ownership.made_by(folder) == MAKER or made_before(folder):
                ownership.remove(folder, MAKER, earlier=made_before)
        _remove_empty(self.out / PARTS)

    def list_shards(self) -> None:
        """Write what ``fairseq-train`` takes as its data if there are several shards; may be repeated after a move."""
        if self.number > 1:
            with atomic_write(self.out / SHARDS) as stream:
                stream.write(":".join(str(folder.absolute()) for folder in self.shards.values()) + "\n")

    def tokenizer_files(self) -> dict[str, bytes]:
        """Contents by name."""
        paths = (self.out / name for name in (*TOKENIZER_FILES, GIVEN_DICTIONARY))
        return {path.name: path.read_bytes() for path in paths if path.exists()}

    def data_sizes(self) -> dict[str, int]:
        """Bytes of all files that fairseq reads, by their names relative to the folder."""
        found = [path for folder in self.shards.values() for name in DATA if (path := folder / name).exists()]
        return {str(path.relative_to(self.out)): path.stat().st_size for path in found}

    def _written(self) -> list[Path]:
        """Every file that may be written, besides the manifest and the parts' folders."""
        folders = dict.fromkeys([self.out, *self.shards.values()])
        return [folder / name for folder in folders for name in (*OUTPUTS, *UNFINISHED)]


def made_before(folder: Path) -> bool:
    """Whether a part's folder without a record is one of an earlier release."""
    return ownership.has_keys(folder / PROGRESS, "place", "totals")


def _lock(part: Part) -> str:
    return f".lock-{part.number}-of-{part.total}"


def _is_written(text: Path, out: Path) -> bool:
    path = real(text.parent) / text.name
    if out not in path.parents:
        return False
    first, *below = path.relative_to(out).parts
    return first == PARTS or fnmatch(first, ANY_SHARD) if below else first in (*OUTPUTS, MANIFEST)


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):  # there is none, or it holds something else
        folder.rmdir()
