"""The folder that prepare writes: its files, which of them may be removed, and the locks of those who write."""

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from .. import ownership
from ..errors import InputError
from ..files import LOCK, atomic_write, real, sole_writer
from ..vocabulary import DICTIONARY, GIVEN_DICTIONARY, TOKENIZER_FILES
from .databin import files_of
from .flags import Options
from .manifest import NAME as MANIFEST
from .sources import VALID, Source, TextFile

SHARDS = "shards.txt"
TOKENIZERS = (*TOKENIZER_FILES, GIVEN_DICTIONARY)
MAKER = "prepare"  # in the folder's record


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

    def prefixes(self, shard: str) -> dict[str, Path]:
        """Where a shard's texts are, by destination (see ``split``): its own, and the validation text in the first shard."""
        place = self.shards[shard]
        prefixes = {shard: place / "train"}
        return prefixes | {VALID: place / VALID} if shard == next(iter(self.shards)) else prefixes

    def turn(self) -> AbstractContextManager:
        """The lock of the tokenizer and the manifest; waits for another process that holds it."""
        return sole_writer(self.out, wait=True)

    @contextmanager
    def held(self, shard: str) -> Iterator[None]:
        """The lock of a shard while it is written.

        Raises:
            BlockingIOError: another process holds it.
        """
        with sole_writer(self.out, self._lock(shard)):
            yield
            (self.out / self._lock(shard)).unlink()

    @staticmethod
    def _lock(shard: str) -> str:
        return f"{LOCK}-{shard}"

    def require_free(self, options: Options, sources: Sequence[Source]) -> None:
        """Check that fairseq can read the folder, and that it holds no text and nothing that another command made.

        Raises:
            InputError, OSError: what is in the way.
        """
        read_by_fairseq = str(self.out.absolute() if self.number > 1 else self.out)
        if ":" in read_by_fairseq or not read_by_fairseq.isprintable():
            raise InputError(
                f"--out {read_by_fairseq!r}: fairseq takes ':' for the end of a path. Name a folder of plain characters."
            )
        files = {source.name for source in sources if isinstance(source, TextFile)}
        folders = {name for name in (*options.text, *options.valid) if os.path.isdir(name)}
        ownership.require_apart(self.out, [("TEXT", Path(name)) for name in sorted(files | folders)])
        vocabulary, out = options.vocabulary, real(self.out)
        if options.overwrite and vocabulary and out in (real(vocabulary), *real(vocabulary).parents):
            raise InputError(f"--vocabulary {vocabulary} lies in {self.out}, which --overwrite empties. Copy it elsewhere first.")
        ownership.require_own(self.out, MAKER, "--out")

    def claim(self) -> None:
        """List every file of all shards in the folder's record, before it is written; needs the lock.

        Raises:
            InputError: a file of this name is not ours.
        """
        ownership.claim(self.out, MAKER)
        paths = [self.out / name for name in (MANIFEST, SHARDS, *TOKENIZERS, *map(self._lock, self.shards))]
        for name, place in self.shards.items():
            paths += [place / file for file in (DICTIONARY, *TOKENIZERS)]
            paths += chain.from_iterable(map(files_of, self.prefixes(name).values()))
        ownership.own(*paths)

    def empty(self, keep: Collection[Path] = ()) -> None:
        """Remove everything that was prepared here but ``keep``; needs the lock.

        Raises:
            BlockingIOError: another process is writing a shard.
        """
        for lock in (self.out / self._lock("train"), *self.out.glob(self._lock("shard-?????"))):
            if lock.exists():
                with sole_writer(self.out, lock.name):
                    pass
        if ownership.made_by(self.out) == MAKER:
            ownership.remove(self.out, keep)

    def list_shards(self) -> None:
        """Write what ``fairseq-train`` takes as its data if there are several shards; may be repeated after a move."""
        if self.number > 1:
            with atomic_write(self.out / SHARDS) as stream:
                stream.write(":".join(str(folder.absolute()) for folder in self.shards.values()) + "\n")

    def tokenizer_files(self) -> dict[str, bytes]:
        """Contents by name."""
        paths = (self.out / name for name in TOKENIZERS)
        return {path.name: path.read_bytes() for path in paths if path.exists()}
