"""The vocabulary of a model of transformers as a fairseq dictionary: ``<s> <pad> </s> <unk>`` first, ``<mask>`` last.

Byte-level BPE becomes what fairseq's ``--bpe gpt2`` reads: ``encoder.json`` and ``vocab.bpe``, and numbers as the dictionary's
symbols. DeBERTa's ``spm.model`` becomes ``sentencepiece.model``, and its pieces are the symbols. Of other tokenizers the symbols
are the tokens, and ``tokenizer.json`` is kept. If there is no [CLS] and no [SEP], the tokens at the beginning and the end of a
text take their places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ..base.errors import InputError
from ..base.files import atomic_write, read
from ..text.vocabulary import (
    DICTIONARY,
    GIVEN_DICTIONARY,
    MASK,
    SENTENCEPIECE,
    TOKENIZER_FILES,
    Dictionary,
    LineEncoder,
    Sentencepiece,
    library_errors,
    load_dictionary,
    symbol_of,
    take_over,
)
from .fast_tokenizer import disagreement, raw_texts
from .model_files import find, read_tokenizer

DEBERTA_SENTENCEPIECE = "spm.model"
RESERVED = "reserved_special_token"
"""A part of the names of tokens that no text has, in Llama 3's tokenizer and those made from it."""
FAIRSEQ_FOLDER = "fairseq"  # of an export: the dictionary and the tokenizer's files for fairseq


@dataclass(frozen=True)
class SourceVocabulary:
    """A dictionary and the numbers of its symbols in the source.

    Attributes:
        dictionary: with ``<mask>``.
        order: (symbols,) the source's number of each symbol.
        files: the tokenizer's files: name -> content.
        remark: what is to be said about them.
    """

    dictionary: Dictionary
    order: Tensor
    files: dict[str, bytes] = field(default_factory=dict)
    remark: str = ""

    @classmethod
    def of_folder(cls, folder: Path) -> SourceVocabulary:
        """Read the vocabulary of a data-bin."""
        dictionary = load_dictionary(folder)
        files = {name: read(folder / name) for name in TOKENIZER_FILES if (folder / name).exists()}
        return cls(dictionary, torch.arange(len(dictionary)), files)

    def write(self, folder: Path) -> None:
        """Write the dictionary and the tokenizer's files, unless the folder has them.

        Raises:
            FileExistsError: the folder has another dictionary or tokenizer.
        """
        files = {DICTIONARY: self.dictionary.text().encode("utf-8"), **self.files}
        paths = [path for name in (DICTIONARY, *TOKENIZER_FILES) if (path := folder / name).exists()]
        for path in paths:
            if read(path) != files.pop(path.name, None):
                raise FileExistsError(f"{path} is of another model: name an --out in another folder")
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            with atomic_write(folder / name, "wb") as stream:
                stream.write(content)


def read_vocabulary(name: str, size: int) -> SourceVocabulary:
    """Return the vocabulary of the model of that name, which has ``size`` embeddings.

    Raises:
        InputError: the tokenizer is missing or lacks a special token, or its tokens cannot be in a dictionary.
    """
    if (dictionary := Path(name) / FAIRSEQ_FOLDER / DICTIONARY).exists():
        vocabulary = SourceVocabulary.of_folder(dictionary.parent)
        if len(vocabulary.dictionary) != size:
            raise InputError(f"{dictionary} has {len(vocabulary.dictionary)} symbols, and the model has {size} embeddings")
        return vocabulary
    tokenizer = read_tokenizer(name)
    path = find(name, DEBERTA_SENTENCEPIECE)
    model = None if path is None else path.read_bytes()
    with library_errors(f"{name}: the tokenizer cannot be taken over"):
        return _from_tokenizer(tokenizer, size, name, model)


def _from_tokenizer(tokenizer: PreTrainedTokenizerBase, size: int, name: str, model: bytes | None) -> SourceVocabulary:
    tokens = {index: token for token, index in tokenizer.get_vocab().items()}
    spare = [index for index in range(size) if RESERVED in tokens.get(index, RESERVED)]
    cls, pad, sep, unk, mask = (getattr(tokenizer, f"{role}_token_id") for role in ("cls", "pad", "sep", "unk", "mask"))
    if cls is None and sep is None:  # as in Llama 3's, which needs no unknown token and may pad with its last
        cls, sep = tokenizer.bos_token_id, tokenizer.eos_token_id
        pad = spare.pop() if pad == sep and spare else pad
        unk = spare.pop() if unk is None and spare else unk
    special = (cls, pad, sep, unk)
    if None in (*special, mask) or len({*special, mask}) < 5:
        raise InputError(f"{name}: the tokenizer lacks a [CLS], padding, [SEP], unknown or mask token")
    if not {*tokens} - {*special, mask}:  # made up by transformers, which misses no files
        raise InputError(f"{name} has no tokenizer's files, so that its symbols have no names: copy them there")
    if max(tokens) >= size:
        raise InputError(f"{name}: the tokenizer has ids up to {max(tokens)} and the model {size} embeddings")
    backend = getattr(tokenizer, "backend_tokenizer", None)
    symbols: Mapping[int, str | None]
    if model is not None:
        symbols, files = _pieces(model, tokenizer, {*special, mask}, tokens), {SENTENCEPIECE: model}
    else:
        named = {index: symbol_of(token) for index, token in tokens.items()}
        symbols, files = take_over(backend, {*special, mask}) if backend else (named, {})
    dictionary = Dictionary()
    ordinary = [index for index in range(size) if index not in (*special, mask)]
    for index in ordinary:
        symbol = symbols.get(index) or f"madeupword{index:04d}"
        if symbol.split() != [symbol] or dictionary.add_symbol(symbol) != len(dictionary) - 1:
            raise InputError(f"{name}: fairseq's dictionary rejects the token {symbol!r}: it has white space or occurs twice")
    dictionary.add_symbol(MASK)
    order = torch.tensor([*special, *ordinary, mask])
    difference = _difference(tokenizer, dictionary, order, files) if files else None
    if difference and model is None:
        raise InputError(f"{name}: the tokenizer cannot be taken over: {difference}")
    remark = f"{DEBERTA_SENTENCEPIECE} is followed, and not the source's tokenizer.json: {difference}" if difference else ""
    return SourceVocabulary(dictionary, order, files, remark)


def _difference(tokenizer: PreTrainedTokenizerBase, dictionary: Dictionary, order: Tensor, files: dict[str, bytes]) -> str | None:
    """Return the first raw text that the files cut differently from a source's tokenizer, with both results."""
    encoder = LineEncoder({**files, GIVEN_DICTIONARY: dictionary.text().encode("utf-8")})

    def encode(text: str) -> list[int]:
        return order[torch.from_numpy(encoder.encode([text])[0][:-1].astype(np.int64))].tolist()

    ordinary = order[dictionary.nspecial : -1].tolist()
    added = [token for token, number in tokenizer.get_added_vocab().items() if number in ordinary]
    texts = raw_texts(added, tokenizer.convert_ids_to_tokens(ordinary[::7]))
    return disagreement(tokenizer, encode, texts)


def _pieces(model: bytes, tokenizer: PreTrainedTokenizerBase, special: set[int], tokens: dict[int, str]) -> dict[int, str]:
    """Return the piece of each number of a sentencepiece model; raises InputError if the tokenizer cuts text differently."""
    for option in ("do_lower_case", "split_by_punct"):
        if getattr(tokenizer, option, False):
            raise InputError(f"the tokenizer has {option}, which {DEBERTA_SENTENCEPIECE}, by which fairseq cuts text, lacks")
    symbols = Sentencepiece(model).symbols
    pieces = {number: piece for number, piece in enumerate(symbols) if piece is not None}
    for number, token in tokens.items():
        if number not in special and pieces.get(number, token if number < len(symbols) else None) != token:
            raise InputError(f"the token {token!r} with the number {number} is none of {DEBERTA_SENTENCEPIECE}'s pieces")
    return pieces
