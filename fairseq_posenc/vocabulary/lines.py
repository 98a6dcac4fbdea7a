"""Lines of text as the ids of a data-bin, of which this makes the dictionary."""

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np

from ..errors import InputError
from .dictionary import EOS_ID, GIVEN_DICTIONARY, MASK, SPECIALS, UNK_ID, given_symbols
from .kinds import kind_of


class LineEncoder:
    """A tokenizer, and the dictionary that is made of its pieces.

    Args:
        files: contents by name, of a tokenizer of any of the ``KINDS``. The dictionary that belongs to it may be there as
            ``dict.given.txt``, and must be but for ``sentencepiece.model``.

    Attributes:
        symbols: every symbol of the dictionary; its index is its id.

    Raises:
        InputError: the files cannot be read, or are not of one vocabulary, or a fairseq dictionary cannot hold the pieces.
    """

    def __init__(self, files: Mapping[str, bytes]) -> None:
        kind = kind_of(files)
        assert kind is not None, f"no tokenizer among {list(files)}"
        self._tokenizer = kind(*(files[name] for name in kind.FILES))
        pieces = self._tokenizer.symbols
        if GIVEN_DICTIONARY in files:
            self.symbols = given_symbols(files[GIVEN_DICTIONARY], self._tokenizer)
        else:
            self.symbols = [*SPECIALS, *(piece for piece in pieces if piece is not None), MASK]
        named = self.symbols[len(SPECIALS) : -1]
        for symbol in named:
            if symbol in (*SPECIALS, MASK) or symbol.split() != [symbol]:
                raise InputError(
                    f"the piece {symbol!r} cannot be in a fairseq dictionary: it is one of the dictionary's own symbols, "
                    "or holds white space"
                )
        index: dict[str | None, int] = {symbol: number for number, symbol in enumerate(named, start=len(SPECIALS))}
        # One entry more than there are pieces: the mark that stands for a line's end in encode().
        self._ids = np.array([*(index.get(piece, UNK_ID) for piece in pieces), EOS_ID], dtype=np.int64)
        self.dtype = np.dtype(np.uint16 if len(self.symbols) < 65500 else np.uint32)  # fairseq's own choice
        self.files = dict(files)

    def encode(self, lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """``(ids, sizes)``: the ids of all lines in a row, each line closed by ``</s>``, and how many each line has."""
        encoded = self._tokenizer.encode_lines(lines)
        end = len(self._ids) - 1
        for ids in encoded:
            ids.append(end)
        sizes = np.fromiter(map(len, encoded), dtype=np.int32, count=len(encoded))
        flat = np.fromiter(chain.from_iterable(encoded), dtype=np.int64, count=int(sizes.sum()))
        return self._ids[flat].astype(self.dtype), sizes

    def dictionary(self, counts: Sequence[int]) -> str:
        """The text of ``dict.txt``, without fairseq's own four, as fairseq saves it; ``counts`` is indexed by id."""
        rows = zip(self.symbols, counts, strict=True)
        return "".join(f"{symbol} {count}\n" for symbol, count in list(rows)[len(SPECIALS) :])
