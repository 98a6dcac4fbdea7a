"""The dictionary of a data-bin: its symbols and their ids, as fairseq's ``Dictionary`` reads and writes them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import IO, Any

from ...base.errors import InputError
from ...base.files import require_regular
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

    def save(self, stream: IO[str]) -> None:
        """Write the lines of ``dict.txt``, which leaves out fairseq's own symbols."""
        for symbol, count in list(zip(self.symbols, self.count, strict=True))[self.nspecial :]:
            stream.write(f"{symbol} {count}\n")


def add_from_file(dictionary: Any, path: Path) -> None:
    """Add the lines of a dict.txt to a dictionary, this package's or fairseq's.

    Raises:
        InputError, OSError: the file is missing or damaged.
    """
    try:
        require_regular(path)
        with open(path, encoding="utf-8") as stream:
            for line in stream:
                row = line.rstrip()
                overwrite = row.endswith(OVERWRITE)
                symbol, count = row.removesuffix(OVERWRITE).rsplit(" ", 1)
                if symbol in dictionary and not overwrite:
                    raise ValueError(f"it has {symbol!r} twice")
                dictionary.add_symbol(symbol, int(count), overwrite)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"There is no dictionary {path}. A fairseq data directory (a data-bin) holds its dictionary next to the .bin and "
            ".idx files: check the DATA argument, or make a data-bin from text with fairseq-posenc prepare."
        ) from error
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
