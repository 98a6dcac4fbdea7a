"""The kinds of tokenizers that use the tokenizers library, an extra that is imported only where it is needed."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.errors import InputError, first_line
from .sentencepiece import spelling
from .tokenizer import MASK, UNK_ID, Encoding, Tokenizer, symbol_of

if TYPE_CHECKING:
    import tokenizers

PRINTED = (*range(33, 127), *range(161, 173), *range(174, 256))
"""The bytes that byte-level BPE writes as the characters of the same number; the others follow from 256 on, in order."""
BYTES = {chr(number): bytes([number]) for number in PRINTED}
BYTES |= {chr(256 + i): bytes([number]) for i, number in enumerate(number for number in range(256) if number not in PRINTED)}
MAX_NUMBER = 1 << 24
"""The largest number of a token; every number up to the last takes memory."""


@contextmanager
def library_errors(problem: str) -> Iterator[None]:
    """Turn errors of the tokenizers library, and panics of its Rust code, which are no Exceptions, into InputError."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__module__ != "pyo3_runtime":
            raise
        reason = f"it lacks {error}" if isinstance(error, KeyError) else first_line(error)
        raise InputError(f"{problem}: {reason}") from None


class LibraryTokenizer(Tokenizer):
    """A tokenizer with the numbers and offsets of the library."""

    def _take(self, library: tokenizers.Tokenizer, symbol: Callable[[str], str | None] = symbol_of) -> None:
        """Cut text by ``library``; ``symbol(token)`` is the dictionary's symbol."""
        tokens = {number: token for token, number in library.get_vocab().items()}  # id_to_token() would normalise some
        last = max(tokens, default=-1)
        if last > MAX_NUMBER:
            raise InputError(f"a token has the number {last}; a vocabulary has at most {MAX_NUMBER}")
        self._number(map(tokens.get, range(last + 1)), symbol)
        self._library = library

    def encode_lines(self, lines: Sequence[str]) -> list[list[int]]:
        with library_errors("the tokenizer cannot cut the text"):
            return [encoded.ids for encoded in self._library.encode_batch_fast(lines, add_special_tokens=False)]

    def encode(self, text: str) -> Encoding:
        with library_errors(f"the tokenizer cannot cut {text[:80]!r}"):
            encoded = self._library.encode(text, add_special_tokens=False)
        begins, ends = np.array(encoded.offsets, np.int64).reshape(-1, 2).T
        return Encoding(np.array(encoded.ids, np.int64), begins, ends)

    def decode(self, symbols: Sequence[str]) -> str:
        tokens, decoder = self.tokens(symbols), self._library.decoder
        return " ".join(tokens) if decoder is None else decoder.decode(tokens)


class GPT2(LibraryTokenizer):
    """GPT-2's byte-level BPE. Its numbers are the dictionary's symbols, as of the official RoBERTa."""

    FILES = ("encoder.json", "vocab.bpe")

    def __init__(self, encoder: bytes, merges: bytes) -> None:
        from tokenizers.pre_tokenizers import ByteLevel

        problem = f"{' and '.join(self.FILES)} cannot be read"
        try:
            self._numbers = {str(piece): int(number) for piece, number in json.loads(encoder).items()}
            lines = merges.decode("utf-8").split("\n")[1:]
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(f"{problem}: {error}") from None
        self._merges: list[Any] = [tuple(line.split()) for line in lines if line.strip()]
        if lacking := set(ByteLevel.alphabet()) - self._numbers.keys():
            raise InputError(f"{self.FILES[0]} has no number for {len(lacking)} of the 256 bytes")
        with library_errors(problem):
            library = _byte_level(self._numbers, self._merges)
        self._take(library, lambda token: str(self._numbers[token]))

    def spelling(self, symbol: str) -> str:
        return _of_bytes(self._library.id_to_token(int(symbol)) or "") if symbol in self.pieces else symbol

    def renumbered(self, symbols: Sequence[str]) -> tokenizers.Tokenizer:
        known = {token: i for i, token in enumerate(self.tokens(symbols))}
        return _byte_level(known, self.known_merges(self._merges, known), unk_token=symbols[UNK_ID])


class TokenizerJson(LibraryTokenizer):
    """Any tokenizer of the library. Its tokens are the dictionary's symbols, as of an imported BERT."""

    FILES = ("tokenizer.json",)

    def __init__(self, described: bytes) -> None:
        from tokenizers import Tokenizer

        with library_errors(f"{self.FILES[0]} cannot be read"):
            library = Tokenizer.from_buffer(described)
        library.no_truncation()
        library.no_padding()
        self._take(library)
        contents = json.loads(library.to_str())
        self._continuation = contents["model"].get("continuing_subword_prefix")  # of WordPiece
        self._spelling = _of_bytes if (contents["decoder"] or {}).get("type") == "ByteLevel" else spelling

    def spelling(self, symbol: str) -> str:
        if self._continuation:
            return symbol.removeprefix(self._continuation) if symbol.startswith(self._continuation) else f" {symbol}"
        return self._spelling(symbol)

    def renumbered(self, symbols: Sequence[str]) -> tokenizers.Tokenizer:
        from tokenizers import Regex, Tokenizer, pre_tokenizers

        described = json.loads(self._library.to_str())
        model, tokens = described["model"], self.tokens(symbols)
        if model["type"] not in (kinds := ("WordLevel", "WordPiece", "Unigram", "BPE")):
            raise InputError(f"{self.FILES[0]} is of type {model['type']}, and only {', '.join(kinds)} can be renumbered")
        scores = dict(model["vocab"])
        numbers = {token: number for number, token in enumerate(tokens)}
        added = [
            token | {"id": numbers[token["content"]]}
            for token in described["added_tokens"]
            if token["content"] in numbers and symbol_of(token["content"])
        ]
        # The library gives the next numbers to added tokens that its model lacks, so that they can be left out at the end.
        outside = {token["content"] for token in added} - scores.keys() | {MASK}
        while tokens[-1] in outside:
            tokens.pop()
        if model["type"] == "Unigram":
            least = min(scores.values())  # the cost of <unk> derives from the least likely piece
            model |= {"vocab": [[token, scores.get(token, least)] for token in tokens], "unk_id": UNK_ID}
        else:
            model["vocab"] = {token: number for number, token in enumerate(tokens)}
            model["unk_token"] = model["unk_token"] and symbols[UNK_ID]
        described |= {"added_tokens": sorted(added, key=lambda token: token["id"]), "post_processor": None}
        with library_errors(f"{self.FILES[0]} cannot be renumbered"):
            library = Tokenizer.from_str(json.dumps(described))
        if model["type"] == "Unigram":  # text that becomes <s> when it is normalised is not this symbol
            cut = pre_tokenizers.Split(Regex("<(?=/?s>|pad>|unk>)"), "merged_with_previous")
            library.pre_tokenizer = pre_tokenizers.Sequence([*filter(None, [library.pre_tokenizer]), cut])
        return library


def take_over(library: tokenizers.Tokenizer, special: Collection[int]) -> tuple[dict[int, str | None], dict[str, bytes]]:
    """Return the symbol of each number of a tokenizer of the library, and the contents of its files by name.

    The files are those of :class:`GPT2` where it cuts text in the same way. The names of the tokens with the numbers ``special``
    are text like any other.
    """
    numbers = dict(sorted(library.get_vocab().items(), key=lambda item: item[1]))
    described = json.loads(library.to_str())
    model, cutting, normal = (described[part] or {} for part in ("model", "pre_tokenizer", "normalizer"))
    options = {name for name, value in model.items() if value} - {"type", "vocab", "merges", "unk_token"}
    added = [token for token in described["added_tokens"] if token["id"] not in special]
    plain = (model["type"], cutting.get("type"), normal, added, options) == ("BPE", "ByteLevel", {}, [], set())
    if not plain or cutting["add_prefix_space"] or not cutting["use_regex"]:
        # Those that the model lacks stay, as the numbers of the tokens after them depend on them.
        kept = [token for token in described["added_tokens"] if token in added or token["content"] not in dict(model["vocab"])]
        content = json.dumps(described | {"added_tokens": kept}, ensure_ascii=False, indent=2)
        return {number: symbol_of(token) for token, number in numbers.items()}, {TokenizerJson.FILES[0]: content.encode("utf-8")}
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    contents = json.dumps(numbers, ensure_ascii=False), "\n".join(["#version: 0.2", *merges, ""])
    files = {name: content.encode("utf-8") for name, content in zip(GPT2.FILES, contents, strict=True)}
    return {number: str(number) for number in numbers.values()}, files


def _of_bytes(token: str) -> str:
    """Return the text of a token of byte-level BPE, which has a character for each byte, as :mod:`.words` reads it."""
    return b"".join(BYTES.get(character) or character.encode() for character in token).decode("utf-8", "surrogateescape")


def _byte_level(numbers: dict[str, int], merges: list[tuple[str, str]], **options: str) -> tokenizers.Tokenizer:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    library = Tokenizer(models.BPE(numbers, merges, **options))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    return library
