"""A prepared data set: a folder that is made again only where what it was made from has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import AliasChoices, Field, PositiveInt, TypeAdapter
from typing_extensions import TypedDict

from .. import ownership
from ..files import sha256
from .records import read_record, write_json

PREPARED = "prepared.json"
COUNTED = ("examples", "windows")  # the second is what SQuAD's were called


class _Counts(TypedDict):
    train: PositiveInt


class _Prepared(TypedDict):
    identity: dict[str, Any]
    examples: Annotated[_Counts, Field(validation_alias=AliasChoices(*COUNTED))]


SHAPE = TypeAdapter(_Prepared)


class Preparation(NamedTuple):
    """The folders of data that a ``command`` makes."""

    command: str

    def made(self, folder: Path) -> bool:
        """Whether a data set stands there, whole."""
        return any(ownership.has_keys(folder / PREPARED, "identity", counted) for counted in COUNTED)

    def made_before(self, out: Path) -> bool:
        """Whether an output folder without a record is one that an earlier release left."""
        return any(map(self.made, out.glob("data/*")))

    def make(self, folder: Path, files: Mapping[str, Path], identity: dict[str, Any], write: Callable[[], dict[str, int]]) -> int:
        """Have the splits written, unless the folder holds just them.

        Args:
            files: fairseq's names of the splits (train, valid): the files to read.
            identity: what else decides the result, in JSON's types.
            write: writes all splits into the folder, and counts.

        Returns:
            The number of training examples.

        Raises:
            ValueError: the folder holds what the command has not made, or one of the files, or its note is damaged.
        """
        wanted = {**identity, "files": {split: sha256(path) for split, path in files.items()}}
        if done := read_prepared(folder, wanted):
            return done
        ownership.renew(folder, self.command, [("--data", path) for path in files.values()], self.made)
        counts = write()
        write_prepared(folder, wanted, counts)
        ownership.finish(folder, self.command)
        return counts["train"]


def write_prepared(folder: Path, identity: Mapping[str, Any], examples: Mapping[str, int]) -> None:
    """Note what a folder of data was made from, and how many examples each of its splits has."""
    write_json(folder / PREPARED, {"identity": identity, "examples": examples})


def read_prepared(folder: Path, identity: Mapping[str, Any]) -> int | None:
    """The number of training examples in a folder that was made from just this; None where there is none.

    Raises:
        ValueError: the note is damaged.
    """
    found = read_record(folder / PREPARED, SHAPE)
    return found["examples"]["train"] if found is not None and found["identity"] == identity else None
