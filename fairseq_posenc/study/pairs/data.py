"""Reads pairs of an acceptable and an unacceptable sentence: JSON lines as BLiMP's (Warstadt et al. 2020), CSV and TSV."""

import csv
import io
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...base.errors import InputError
from ...base.files import read_text
from ...base.record import json_lines
from ...text.vocabulary.words import SCRIPTS

GOOD, BAD = "sentence_good", "sentence_bad"
SUFFIXES = {".jsonl": None, ".csv": ",", ".tsv": "\t"}
"""The files that are read, and what separates their columns."""
_LETTERS = rf"(?:(?![{SCRIPTS}])\w)+"
_WORD = re.compile(rf"(?!\s)[{SCRIPTS}]_*|{_LETTERS}(?:['’]{_LETTERS})*|[^\w\s]")


class Pair(NamedTuple):
    """Two sentences.

    Attributes:
        good, bad: the acceptable and the unacceptable sentence.
        paradigm: BLiMP's ``UID``, or the name of the file.
        phenomenon: BLiMP's ``linguistics_term``, or ``field``, or empty.
    """

    good: str
    bad: str
    paradigm: str
    phenomenon: str

    @property
    def only_order_differs(self) -> bool:
        """Whether both have the same words and punctuation marks, in another order."""
        return self.good != self.bad and Counter(words(self.good).values()) == Counter(words(self.bad).values())


def words(text: str) -> dict[int, str]:
    """Return the words and punctuation marks of a text by the place where each begins.

    Marks and joiners belong to the letter before them. In scripts without spaces, each letter is a word.
    """
    joined = "".join("_" if unicodedata.category(letter) in ("Mn", "Mc", "Me", "Cf") else letter for letter in text)
    return {match.start(): text[slice(*match.span())] for match in _WORD.finditer(joined)}


def read_pairs(paths: Sequence[Path], limit: int | None = None) -> list[Pair]:
    """Read files, and all files of folders with a suffix of :data:`SUFFIXES`; the first ``limit`` pairs of each paradigm.

    Raises:
        InputError, OSError: a path has none, or one is damaged; the message names the file and the line.
    """
    files: list[Path] = []
    for path in paths:
        inside = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES) if path.is_dir() else [path]
        if not inside:
            raise InputError(f"--data {path} has no {', '.join(SUFFIXES)}: name the folder of the pairs' files, or files")
        files += inside
    pairs = [pair for file in files for pair in _read_file(file)]
    if paths and not pairs:
        raise InputError(f"--data {', '.join(map(str, paths))} has no pairs")
    paradigms: dict[str, list[Pair]] = {}
    for pair in pairs:
        paradigms.setdefault(pair.paradigm, []).append(pair)
    return [pair for group in paradigms.values() for pair in group[:limit]]


def read_lines(path: Path) -> list[tuple[str]]:
    """Read the lines of a text that are not empty; raises InputError or OSError as :func:`read_pairs` does."""
    if lines := [(line.strip(),) for line in read_text(path).split("\n") if line.strip()]:
        return lines
    raise InputError(f"--perplexity {path} is empty")


def _read_file(path: Path) -> Iterator[Pair]:
    if path.suffix not in SUFFIXES:
        raise InputError(f"--data {path}: name a file that ends in {', '.join(SUFFIXES)}")
    separator = SUFFIXES[path.suffix]
    for line, row in json_lines(path) if separator is None else _table(read_text(path), separator, path):
        for name in (GOOD, BAD):
            if not isinstance(row.get(name), str) or not row[name].strip():
                raise InputError(f"{path}:{line}: {name} {'is empty, or no text' if name in row else 'is missing'}")
        phenomenon = row.get("linguistics_term") or row.get("field") or ""
        yield Pair(row[GOOD], row[BAD], str(row.get("UID") or path.stem), str(phenomenon))


def _table(text: str, separator: str, path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        if missing := {GOOD, BAD} - set(reader.fieldnames or ()):
            raise InputError(f"{path} has no column {', '.join(sorted(missing))}")
        for row in reader:
            if None in row:
                raise csv.Error(f"more than {len(reader.fieldnames or ())} columns")
            yield reader.line_num, row
    except csv.Error as error:
        raise InputError(f"{path}:{reader.reader.line_num}: {error}; quote a field that holds separators or quotes") from None
