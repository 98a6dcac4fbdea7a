"""The interface of all kinds of tokenizers: from text to the numbers of its pieces, and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..errors import InputError

if TYPE_CHECKING:
    import tokenizers
    from typing_extensions import Self


@dataclass(frozen=True)
class Encoding:
    """The pieces of a text.

    Attributes:
        ids: (n,) int64, of each piece; no ``<s>`` and no ``</s>``.
        begins, ends: (n,) int64, each piece is the characters ``text[begin:end]``. Both never decrease.
    """

    ids: np.ndarray
    begins: np.ndarray
    ends: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)


class Tokenizer(ABC):
    """What cuts text into pieces, which it numbers.

    Args:
        contents: of ``FILES``, in their order.

    Attributes:
        symbols: of each number, the piece's symbol in a dictionary, or None.

    Raises:
        InputError: the files are damaged, or others.
    """

    FILES: ClassVar[tuple[str, ...]]
    symbols: list[str | None]

    @abstractmethod
    def __init__(self, *contents: bytes) -> None: ...

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The tokenizer of a folder.

        Raises:
            InputError, OSError: they cannot be read; names them.
        """
        try:
            return cls(*((folder / name).read_bytes() for name in cls.FILES))
        except InputError as error:
            raise InputError(f"{folder / cls.FILES[0]}: {error}") from None

    @abstractmethod
    def encode_lines(self, lines: Sequence[str]) -> list[list[int]]:
        """The numbers of each line's pieces."""

    @abstractmethod
    def encode(self, text: str) -> Encoding:
        """The numbers and spans of a text's pieces. A piece that begins or ends inside a character has all of it."""

    @abstractmethod
    def decode(self, symbols: Sequence[str]) -> str:
        """The text of these symbols, in which those that are no pieces appear as they are."""

    @abstractmethod
    def knows(self, symbol: str) -> bool:
        """Whether the symbol is one of a piece."""

    @abstractmethod
    def begins_word(self, symbol: str) -> bool:
        """Whether a symbol is of a piece that begins a word, rather than of one that continues it."""

    @abstractmethod
    def renumbered(self, symbols: Sequence[str]) -> tokenizers.Tokenizer:
        """The same tokenizer in the tokenizers library, whose numbers are the ids of a dictionary with these symbols.

        Raises:
            InputError: the library has no equal for it.
        """
