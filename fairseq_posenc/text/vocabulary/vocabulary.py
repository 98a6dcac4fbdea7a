"""Vocabularies: a tokenizer and the dictionary that numbers its pieces, for the lines of a data-bin and for single texts."""

import hashlib
import os
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ...base.errors import InputError
from ...base.files import read, sha256
from .dictionary import Dictionary, add_lines, load_dictionary
from .library import GPT2, TokenizerJson
from .sentencepiece import SENTENCEPIECE, Sentencepiece, XlmrSentencepiece
from .tokenizer import DICTIONARY, EOS_ID, GIVEN_DICTIONARY, MASK, UNK_ID, Encoding, Tokenizer

KINDS: tuple[type[Tokenizer], ...] = (Sentencepiece, XlmrSentencepiece, GPT2, TokenizerJson)
"""The first of them is used if a folder has several."""

TOKENIZER_FILES = tuple(name for kind in KINDS for name in kind.FILES)
"""The names of the files that cut text into the symbols of a dict.txt in the same folder."""

VOCABULARY = "vocabulary"
"""The key of the fingerprint in the ``task_state`` of a checkpoint."""


def kind_of(names: Container[str]) -> type[Tokenizer] | None:
    """Return the kind of tokenizer whose files all have one of these names."""
    return next((kind for kind in KINDS if all(name in names for name in kind.FILES)), None)


def _kind_in(folder: Path) -> type[Tokenizer]:
    if kind := kind_of(os.listdir(folder)):
        return kind
    files = ", or ".join(" and ".join(kind.FILES) for kind in KINDS)
    raise FileNotFoundError(f"{folder} has nothing that cuts text into symbols: copy the vocabulary's {files} into it")


def read_files(path: Path) -> dict[str, bytes]:
    """Read the files for a :class:`LineEncoder`: those of a folder with a vocabulary, or a sentencepiece model.

    Raises:
        FileNotFoundError: a file is missing.
    """
    if not path.is_dir():
        return {SENTENCEPIECE: read(path)}
    kind = _kind_in(path)
    files = {name: read(path / name) for name in kind.FILES}
    if given := [path / name for name in (DICTIONARY, GIVEN_DICTIONARY) if (path / name).exists()]:
        files[GIVEN_DICTIONARY] = read(given[0])  # shards have the first, and the folder around them the second
    elif not issubclass(kind, Sentencepiece):
        raise FileNotFoundError(f"{path / DICTIONARY}: no such file; it holds the ids of the pieces of {kind.FILES[0]}")
    return files


def fingerprint(dictionary: Dictionary, folder: Path) -> dict[str, str]:
    """Return the SHA-256 of a dictionary's symbols in their order, and of each file of the tokenizer in the folder, if any."""
    kind = kind_of(os.listdir(folder)) if folder.is_dir() else None
    symbols = "\n".join(dictionary.symbols).encode("utf-8", "surrogatepass")
    files = {name: sha256(folder / name) for name in (kind.FILES if kind else ())}
    return {"dictionary": hashlib.sha256(symbols).hexdigest(), **files}


def differing(recorded: Any, current: Mapping[str, str]) -> list[str]:
    """Return the parts of a fingerprint that differ from the recorded one. A part that either lacks is not compared."""
    recorded = recorded if isinstance(recorded, dict) else {}
    return [name for name in current if recorded.get(name, current[name]) != current[name]]


def _ids_of(tokenizer: Tokenizer, dictionary: Dictionary, name: str) -> np.ndarray:
    """Return the dictionary's id of each piece by its number, which is that of <unk> where the dictionary lacks the piece.

    Raises:
        InputError: the dictionary of this name has a symbol that is no piece.
    """
    if foreign := tokenizer.adopt(dictionary.symbols[dictionary.nspecial :]):
        raise InputError(
            f"the symbol {foreign[0]!r} of {name} is none of the tokenizer's pieces, so the two are not of one vocabulary. "
            "Use the files that the model was pretrained with."
        )
    index: Mapping[Any, int] = dictionary.indices
    return np.array([index.get(symbol, UNK_ID) for symbol in tokenizer.symbols], np.int64)


class LineEncoder:
    """Turns lines of text into the ids of a data-bin, whose dictionary it makes of a tokenizer's pieces.

    Args:
        files: contents by name, of a tokenizer of any of the ``KINDS`` and of its dictionary as ``dict.given.txt``, which is
            optional for ``sentencepiece.model``.

    Attributes:
        dictionary: of the pieces, and of ``<mask>``.
        symbols: every symbol of the dictionary; its index is its id.

    Raises:
        InputError: the files cannot be read, or are not of one vocabulary, or a fairseq dictionary cannot hold the pieces.
    """

    def __init__(self, files: Mapping[str, bytes]) -> None:
        kind = kind_of(files)
        assert kind is not None, f"no tokenizer among {list(files)}"
        self._tokenizer = kind(*(files[name] for name in kind.FILES))
        self.dictionary = dictionary = Dictionary()
        if GIVEN_DICTIONARY in files:
            add_lines(dictionary, files[GIVEN_DICTIONARY])
        else:
            for symbol in filter(None, self._tokenizer.symbols):
                dictionary.add_symbol(symbol)
        if MASK not in dictionary:
            dictionary.add_symbol(MASK)
        self.symbols = dictionary.symbols
        # One entry more than there are pieces: the mark of a line's end in encode().
        self._ids = np.append(_ids_of(self._tokenizer, dictionary, DICTIONARY), EOS_ID)
        self.dtype = np.dtype(np.uint16 if len(self.symbols) < 65500 else np.uint32)  # fairseq's own choice
        self.files = dict(files)

    def encode(self, lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return ``(ids, sizes)``: the ids of all lines, each line closed by ``</s>``, and the length of each line."""
        encoded = self._tokenizer.encode_lines(lines)
        end = len(self._ids) - 1
        for ids in encoded:
            ids.append(end)
        sizes = np.fromiter(map(len, encoded), dtype=np.int32, count=len(encoded))
        flat = np.fromiter(chain.from_iterable(encoded), dtype=np.int64, count=int(sizes.sum()))
        return self._ids[flat].astype(self.dtype), sizes


class Vocabulary:
    """The dictionary of a data-bin and the tokenizer that cuts text into its symbols.

    Args:
        folder: the data-bin: ``dict.txt``, and ``sentencepiece.model``, or ``encoder.json`` and ``vocab.bpe``, or
            ``tokenizer.json``.
        with_tokenizer: whether the tokenizer is read; without it, there is no ``tokenizer``.
        masked: whether the dictionary is that of ``masked_lm``, with ``<mask>``.
        name: of the dictionary's file.

    Attributes:
        dictionary: its symbols and their ids.
        tokenizer: cuts text into pieces, which it numbers in another order.

    Raises:
        InputError, FileNotFoundError: the folder has no vocabulary, or one whose parts do not belong together.
    """

    tokenizer: Tokenizer

    def __init__(self, folder: Path, with_tokenizer: bool = True, masked: bool = True, name: str = DICTIONARY) -> None:
        self.folder, self._name = folder, name
        self.dictionary = load_dictionary(folder, masked, name)
        if not with_tokenizer:
            return
        kind = _kind_in(folder)
        try:
            self.tokenizer = kind(*(read(folder / name) for name in kind.FILES))
        except InputError as error:
            raise InputError(f"{folder / kind.FILES[0]}: {error}") from None
        self._ids = _ids_of(self.tokenizer, self.dictionary, str(folder / name))

    def encode(self, text: str) -> Encoding:
        """Cut ``text`` into pieces, whose ids are the dictionary's. A symbol that the dictionary lacks becomes ``<unk>``.

        White space before a piece is left out of its span; the span of a piece of white space alone is empty.
        """
        text = text.replace("\x85", " ")  # as fairseq-posenc prepare reads it
        encoding = self.tokenizer.encode(text)
        begins = encoding.begins.copy()
        for i, (begin, end) in enumerate(zip(begins.tolist(), encoding.ends.tolist(), strict=True)):
            while begin < end and text[begin].isspace():
                begin += 1
            begins[i] = begin
        return Encoding(self._ids[encoding.ids], begins, encoding.ends)

    def lacks_piece_of(self, text: str) -> bool:
        """Return whether the tokenizer cuts from a text a piece that the dictionary lacks, so that its id is that of <unk>."""
        symbols, numbers = self.tokenizer.symbols, self.tokenizer.encode(text).ids
        return any(symbols[number] is not None for number in numbers[self._ids[numbers] == UNK_ID].tolist())

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of these ids without ``<s>``, ``<pad>`` and ``</s>``."""
        dictionary = self.dictionary
        outside = (dictionary.bos(), dictionary.pad(), dictionary.eos())
        return self.tokenizer.decode([dictionary[number] for number in map(int, ids) if number not in outside])

    def sequence(self, *texts: str) -> np.ndarray:
        """Return the (n,) ids that a model reads for one text or two: ``<s> a </s>`` or ``<s> a </s> </s> b </s>``."""
        return self.join(*(self.encode(text).ids for text in texts))

    def join(self, *pieces: np.ndarray) -> np.ndarray:
        """Return the same as :meth:`sequence` for texts that are ids already."""
        bos, eos = self.dictionary.bos(), self.dictionary.eos()
        first, *others = (np.append(ids, eos) for ids in pieces)
        return np.concatenate([[bos], first, *(np.insert(ids, 0, eos) for ids in others)])

    def files(self) -> list[Path]:
        """Return the paths of the dictionary and the tokenizer's files."""
        return [self.folder / name for name in (self._name, *TOKENIZER_FILES) if (self.folder / name).exists()]


def load_vocabulary(folder: str | os.PathLike) -> Vocabulary:
    """Load the vocabulary of a data-bin, or of a folder of import-hf; raises InputError or OSError if parts are missing."""
    return Vocabulary(Path(folder))
