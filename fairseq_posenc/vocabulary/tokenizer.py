"""The interface of all kinds of tokenizers, from text to the numbers of its pieces and back, and the symbols of dict.txt.

fairseq's ``Dictionary`` puts ``<s>``, ``<pad>``, ``</s>`` and ``<unk>`` first, with the ids 0 to 3, and ``masked_lm`` adds
``<mask>`` after the pieces. In a data-bin ``<mask>`` is the last line of ``dict.txt``, so that a symbol has one id in every task.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

if TYPE_CHECKING:
    import tokenizers

SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")
MASK = "<mask>"
EOS_ID, UNK_ID = SPECIALS.index("</s>"), SPECIALS.index("<unk>")

DICTIONARY = "dict.txt"
GIVEN_DICTIONARY = "dict.given.txt"
"""The dictionary that came with the tokenizer, under a name that fairseq does not look for."""


@dataclass(frozen=True)
class Encoding:
    """The pieces of a text.

    Attributes:
        ids: (n,) int64, one for each piece, without ``<s>`` and ``</s>``.
        begins, ends: (n,) int64; a piece is the characters ``text[begin:end]``. Both never decrease.
    """

    ids: np.ndarray
    begins: np.ndarray
    ends: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)


class Tokenizer(ABC):
    """Cuts text into numbered pieces.

    Args:
        contents: the contents of ``FILES``, in their order.

    Attributes:
        symbols: for each number, the piece's symbol in a dictionary, or None.
        pieces: all symbols of pieces.

    Raises:
        InputError: the files are damaged, or others.
    """

    FILES: ClassVar[tuple[str, ...]]
    symbols: list[str | None]
    pieces: Container[str | None]

    @abstractmethod
    def __init__(self, *contents: bytes) -> None: ...

    @abstractmethod
    def encode_lines(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the numbers of each line's pieces."""

    @abstractmethod
    def encode(self, text: str) -> Encoding:
        """Return the numbers and spans of a text's pieces. The span of a part of a character is the whole character."""

    @abstractmethod
    def decode(self, symbols: Sequence[str]) -> str:
        """Return the text of these symbols, in which symbols that are no pieces appear unchanged."""

    @abstractmethod
    def spelling(self, symbol: str) -> str:
        """Return the text of the symbol's piece, which begins with a space if a word does; see :mod:`.words` for parts."""

    @abstractmethod
    def renumbered(self, symbols: Sequence[str]) -> tokenizers.Tokenizer:
        """Return this tokenizer in the tokenizers library, numbered as a dictionary with these symbols.

        Raises:
            InputError: the library has no equivalent.
        """
