"""The dictionary of a data-bin: its symbols and their ids, as fairseq's ``Dictionary`` reads and writes them."""

import io
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ...base.errors import InputError
from ...base.files import read
from .tokenizer import DICTIONARY, MASK, SPECIALS

OVERWRITE = " #fairseq:overwrite"
"""The end of a line whose symbol may be that of an earlier one, which it replaces."""


class Dictionary:
    """Symbols with consecutive ids, of which fairseq's own four come first, with the names that fairseq's class has.

    Attributes:
        symbols: by id.
        count: how often each occurs in the training text.
        indices: the id of each symbol.
        nspecial: the number of fairseq's own.
        bos, pad, eos, unk: functions that return their ids.
    """

    nspecial = len(SPECIALS)
    bos, pad, eos, unk = (staticmethod(partial(SPECIALS.index, symbol)) for symbol in SPECIALS)

    def __init__(self) -> None:
        self.symbols: list[str] = []
        self.count: list[int] = []
        self.indices: dict[str, int] = {}
        for symbol in SPECIALS:
            self.add_symbol(symbol)

    def __len__(self) -> int:
        return len(self.symbols)

    def __contains__(self, symbol: str) -> bool:
        return symbol in self.indices

    def __getitem__(self, number: int) -> str:
        return self.symbols[number]

    def index(self, symbol: str) -> int:
        """Return the id of a symbol; that of ``<unk>`` if it has none."""
        return self.indices.get(symbol, self.unk())

    def add_symbol(self, symbol: str, n: int = 1, overwrite: bool = False) -> int:
        """Add a symbol that occurs ``n`` times, or add to its count if it is there; returns its id."""
        if symbol not in self or overwrite:
            self.indices[symbol] = len(self.symbols)
            self.symbols.append(symbol)
            self.count.append(0)
        self.count[self.indices[symbol]] += n
        return self.indices[symbol]

    def text(self, counts: Sequence[int] | None = None) -> str:
        """Return ``dict.txt``, without fairseq's own four, as fairseq saves it; ``counts`` by id replace those of the symbols."""
        rows = list(zip(self.symbols, self.count if counts is None else counts, strict=True))
        return "".join(f"{symbol} {count}\n" for symbol, count in rows[self.nspecial :])


def add_from_file(dictionary: Any, path: Path) -> None:
    """Add the lines of a dict.txt to a dictionary, this package's or fairseq's.

    Raises:
        InputError, OSError: the file is missing or damaged.
    """
    try:
        add_lines(dictionary, read(path), path)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"There is no dictionary {path}. A fairseq data directory (a data-bin) holds its dictionary next to the .bin and "
            ".idx files: check the DATA argument, or make a data-bin from text with fairseq-posenc prepare."
        ) from error


def add_lines(dictionary: Any, content: bytes, path: Path | str = DICTIONARY) -> None:
    """Add the lines in the content of the dict.txt with this path; raises InputError if it is damaged."""
    try:
        for line in io.TextIOWrapper(io.BytesIO(content), "utf-8"):
            row = line.rstrip()
            overwrite = row.endswith(OVERWRITE)
            symbol, count = row.removesuffix(OVERWRITE).rsplit(" ", 1)
            if symbol in dictionary and not overwrite:
                raise ValueError(f"it has {symbol!r} twice")
            dictionary.add_symbol(symbol, int(count), overwrite)
    except ValueError as error:
        raise InputError(
            f"{path} cannot be read as a dictionary: {error}. It is UTF-8, each line holds a symbol, a space and a count, and "
            "each symbol appears once: copy the file again from where the data was prepared."
        ) from error


def load_dictionary(folder: Path, masked: bool = True, name: str = DICTIONARY) -> Dictionary:
    """Read the dictionary in a folder as ``masked_lm`` does, with ``<mask>``; or, not ``masked``, as ``language_modeling`` does.

    Raises:
        InputError, OSError: the file is missing or damaged.
    """
    dictionary = Dictionary()
    add_from_file(dictionary, folder / name)
    if masked and MASK not in dictionary:  # else its count would change
        dictionary.add_symbol(MASK)
    return dictionary
