"""The vocabulary of a checkpoint: text to ids of its dictionary, each with its place in the text."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ..errors import InputError
from ..files import sha256
from .dictionary import DICTIONARY, UNK_ID, foreign_symbol, load_dictionary
from .kinds import TOKENIZER_FILES, kind_of
from .library import GPT2, TokenizerJson
from .sentencepiece import SENTENCEPIECE
from .tokenizer import Encoding


class Vocabulary:
    """A data-bin's dictionary and what cuts text into its symbols.

    Args:
        folder: the data-bin: ``dict.txt``, and ``sentencepiece.model``, or ``encoder.json`` and ``vocab.bpe``, or
            ``tokenizer.json``.

    Attributes:
        dictionary: fairseq's, as ``masked_lm`` sees it, with ``<mask>``.
        tokenizer: cuts text into pieces with numbers of its own.

    Raises:
        InputError, FileNotFoundError: the folder has no vocabulary, or one whose parts do not belong together.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not (folder / DICTIONARY).exists():
            raise FileNotFoundError(
                f"{folder / DICTIONARY} does not exist: --data-bin must be the folder that the checkpoint was pretrained on, "
                "which holds its dictionary"
            )
        self.dictionary = load_dictionary(folder)
        kind = kind_of(os.listdir(folder))
        if kind is None:
            raise FileNotFoundError(
                f"{folder} has a dictionary and nothing that cuts text into its symbols: put the {SENTENCEPIECE} that the "
                f"checkpoint's text was encoded with there, or {' and '.join(GPT2.FILES)} for GPT-2's byte-level BPE, or "
                f"{TokenizerJson.FILES[0]}"
            )
        self.tokenizer = kind.read(folder)
        symbols = self.dictionary.symbols[self.dictionary.nspecial :]
        if (foreign := foreign_symbol(symbols, self.tokenizer)) is not None:
            raise InputError(
                f"{folder}: the dictionary's symbol {foreign!r} is none of the tokenizer's pieces, so dict.txt and the "
                "tokenizer are not of one vocabulary. Put those files there that the checkpoint was pretrained with."
            )
        index = self.dictionary.indices
        self._ids = np.array([index.get(symbol, UNK_ID) for symbol in self.tokenizer.symbols], np.int64)

    def encode(self, text: str) -> Encoding:
        """Cut ``text`` into pieces, whose ids are the dictionary's. A symbol that the dictionary lacks becomes ``<unk>``.

        White space before a piece is left out of its span; the span of a piece of white space alone is empty.
        """
        text = text.replace("\x85", " ")  # as fairseq-posenc prepare reads it
        encoding = self.tokenizer.encode(text)
        return Encoding(self._ids[encoding.ids], _after_space(text, encoding.begins, encoding.ends), encoding.ends)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of these ids, as far as they tell; ``<s>``, ``<pad>`` and ``</s>`` are left out."""
        dictionary = self.dictionary
        outside = (dictionary.bos(), dictionary.pad(), dictionary.eos())
        return self.tokenizer.decode([dictionary[number] for number in map(int, ids) if number not in outside])

    def sequence(self, *texts: str) -> np.ndarray:
        """(n,) what a model reads of one text or two: ``<s> a </s>`` or ``<s> a </s> </s> b </s>``."""
        return self.join(*(self.encode(text).ids for text in texts))

    def join(self, *pieces: np.ndarray) -> np.ndarray:
        """As :meth:`sequence`, of texts that are ids already."""
        bos, eos = self.dictionary.bos(), self.dictionary.eos()
        first, *others = (np.append(ids, eos) for ids in pieces)
        return np.concatenate([[bos], first, *(np.insert(ids, 0, eos) for ids in others)])

    def save(self, folder: Path) -> None:
        """Write the dictionary into ``folder`` as dict.txt."""
        self.dictionary.save(str(folder / DICTIONARY))

    def files(self) -> list[Path]:
        """The dictionary and the tokenizer's files."""
        return [self.folder / name for name in (DICTIONARY, *TOKENIZER_FILES) if (self.folder / name).exists()]

    def digests(self) -> dict[str, str]:
        """SHA-256 of each of its files."""
        return {path.name: sha256(path) for path in self.files()}


def _after_space(text: str, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """``begins`` moved past the white space that pieces begin with."""
    moved = begins.copy()
    for i, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
        while begin < end and text[begin].isspace():
            begin += 1
        moved[i] = begin
    return moved
