"""The interface of all kinds of tokenizers, from text to the numbers of its pieces and back, and the symbols of dict.txt.

fairseq's ``Dictionary`` puts ``<s>``, ``<pad>``, ``</s>`` and ``<unk>`` first, with the ids 0 to 3, and ``masked_lm`` adds
``<mask>`` after the pieces. In a data-bin ``<mask>`` is the last line of ``dict.txt``, so that a symbol has one id in every task.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

if TYPE_CHECKING:
    import tokenizers

SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")
MASK = "<mask>"
UNKNOWN = "<unk>"
MADE_UP = "madeupword"
"""The beginning of the names of symbols that no text has, in fairseq too."""
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


def symbol_of(token: str) -> str | None:
    """Return the dictionary's symbol of a token: itself, or another name if it has white space; None for fairseq's own names."""
    if token in (*SPECIALS, MASK):
        return None
    return token if token.split() == [token] else MADE_UP + ascii(token)[1:-1].replace(" ", r"\x20")


class Tokenizer(ABC):
    """Cuts text into numbered pieces.

    Args:
        contents: the contents of ``FILES``, in their order.

    Attributes:
        symbols: for each number, the piece's symbol in a dictionary, or None.
        pieces: all symbols of pieces, and the names of others that a dictionary may have.

    Raises:
        InputError: the files are damaged, or others.
    """

    FILES: ClassVar[tuple[str, ...]]
    symbols: list[str | None]
    pieces: set[str | None]
    _tokens: dict[str, str]

    @abstractmethod
    def __init__(self, *contents: bytes) -> None: ...

    def _number(self, tokens: Iterable[str | None], symbol: Callable[[str], str | None] = symbol_of) -> None:
        """Take tokens in the order of their numbers."""
        pairs = [(token, None if token is None else symbol(token)) for token in tokens]
        self.symbols = [name for _, name in pairs]
        self.pieces = set(self.symbols)
        self._tokens = {name: token for token, name in pairs if token is not None and name not in (None, token)}

    def tokens(self, symbols: Iterable[str]) -> list[str]:
        """Return the tokens of these symbols; a symbol that is no piece is its own token."""
        return [self._tokens.get(symbol, symbol) for symbol in symbols]

    def adopt(self, symbols: Iterable[str]) -> list[str]:
        """Return those symbols of a dictionary that are none of the pieces, and cannot become pieces here."""
        return [name for name in symbols if name != MASK and not name.startswith(MADE_UP) and name not in self.pieces]

    @staticmethod
    def known_merges(merges: Iterable[tuple[str, str]], vocab: Container[str]) -> list[tuple[str, str]]:
        """Return the merges of pieces that a vocabulary has; a file of the tokenizers library has no others."""
        return [(a, b) for a, b in merges if a in vocab and b in vocab and a + b in vocab]

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
