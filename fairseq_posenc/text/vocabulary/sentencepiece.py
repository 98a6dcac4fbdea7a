"""sentencepiece's unigram and BPE models, whose pieces are the dictionary's symbols, and their training."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import sentencepiece
from sentencepiece import sentencepiece_pb2

from ...base.errors import InputError
from . import normalization
from .normalization import JOINT, characters, longest_of
from .tokenizer import MASK, SPECIALS, UNK_ID, UNKNOWN, Encoding, Tokenizer

if TYPE_CHECKING:
    import tokenizers
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

SENTENCEPIECE = "sentencepiece.model"
SPACE = "▁"
RESERVED = "▅"
"""Lines with it would be silently left out of the training of sentencepiece, which uses it itself."""
PREFIX = "\U000e0dff"
FIRST_NAME = 0xE0E00
"""The first of characters of no text that stand for pieces which are not normalised; ``PREFIX`` stands for the dummy prefix."""
DEFAULT_SYMBOLS = 8192
"""For text of any size: about a hundred tokens per symbol in 3 MB, and enough for the characters of Chinese and Japanese."""
UNCOUNTED = len(SPECIALS)
"""Symbols that sentencepiece does not count: ``<mask>`` and our four without ``<unk>``, which it has too."""


class Sentencepiece(Tokenizer):
    """A sentencepiece model, unigram or BPE, whose pieces are numbered as in the model."""

    FILES = (SENTENCEPIECE,)

    def __init__(self, model: bytes) -> None:
        self._model = model
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
            pieces = [self._processor.id_to_piece(number) for number in range(self._processor.get_piece_size())]
        except (RuntimeError, UnicodeDecodeError):
            pieces = []
        if not pieces:  # an empty file becomes a processor that fails only when it is used
            raise InputError("not a sentencepiece model, or one that is damaged or cut short: copy it again")
        unknown, control = self._processor.is_unknown, self._processor.is_control
        self._number(None if unknown(number) or control(number) else piece for number, piece in enumerate(pieces))
        self._known = {piece for piece in self.symbols if piece and len(piece) == 1}
        self.pieces |= {piece for number, piece in enumerate(pieces) if not unknown(number)}
        self._bytes = any(map(self._processor.is_byte, range(len(pieces))))
        self._runs: dict[str, int] = {}

    def adopt(self, symbols: Iterable[str]) -> list[str]:
        """Take runs of unknown characters, which ``spm_encode`` writes as they are, so that fairseq-preprocess counts them."""
        foreign = super().adopt(symbols)
        runs = [name for name in foreign if self._known.isdisjoint(name)]
        self._runs = {name: number for number, name in enumerate(runs, start=len(self.symbols))}
        self.symbols += runs
        return [name for name in foreign if name not in self._runs]

    def _marked(self, text: str) -> str:
        """Return the text in which what spells <unk> is unknown, as long as it was."""
        return text if self._bytes else text.replace(UNKNOWN, JOINT * len(UNKNOWN))

    def encode_lines(self, lines: Sequence[str]) -> list[list[int]]:
        if self._runs:
            return [self.encode(line).ids.tolist() for line in lines]
        return self._processor.encode(list(map(self._marked, lines)), out_type=int, num_threads=1)

    def encode(self, text: str) -> Encoding:
        # The only form that every release has with offsets in bytes.
        text = self._marked(text)
        serialized = self._processor.encode(text, out_type="serialized_proto")
        pieces = sentencepiece_pb2.SentencePieceText.FromString(serialized).pieces
        numbers = [self._runs.get(piece.piece.strip(JOINT), piece.id) for piece in pieces]
        begins, ends = np.array([(piece.begin, piece.end) for piece in pieces], np.int64).reshape(-1, 2).T
        if not text.isascii():
            starts = np.cumsum([0, *(len(character.encode("utf-8")) for character in text)])  # first byte of each character
            begins = np.searchsorted(starts, begins, side="right") - 1
            ends = np.searchsorted(starts, ends, side="left")
        return Encoding(np.array(numbers, np.int64), begins, ends)

    def decode(self, symbols: Sequence[str]) -> str:
        return self._processor.decode_pieces(self.tokens(symbols))

    def spelling(self, symbol: str) -> str:
        return spelling(symbol)

    def renumbered(self, symbols: Sequence[str]) -> tokenizers.Tokenizer:
        from sentencepiece import sentencepiece_model_pb2
        from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

        model = sentencepiece_model_pb2.ModelProto.FromString(self._model)
        trainer, rules = model.trainer_spec, model.normalizer_spec
        kinds = (trainer.UNIGRAM, trainer.BPE)
        if trainer.treat_whitespace_as_suffix or trainer.model_type not in kinds or not rules.escape_whitespaces:
            raise InputError(f"{self.FILES[0]} is not a unigram or BPE model with spaces before words: it cannot be converted")
        tokens = self.tokens(symbols)
        typed = (piece.piece for piece in model.pieces if piece.type in (piece.BYTE, piece.CONTROL, piece.UNUSED))
        names = [*SPECIALS, *(name for name in typed if name in tokens and len(name) > 1)]
        whole = [piece.piece for piece in model.pieces if piece.type == piece.USER_DEFINED and piece.piece in tokens]
        # Text passes the normaliser as a whole, with the names of these, which are found in what it gives. So text that is one of
        # these names and nothing else has no dummy prefix, unlike in sentencepiece.
        added = [token for token in [*whole, *self._runs] if len(token) > 1 and trainer.model_type == trainer.BPE]
        added.sort(key=len, reverse=True)
        whole_texts, kept = longest_of([MASK, UNKNOWN, *added]), longest_of([MASK, UNKNOWN, *whole])
        cuts = []
        if trainer.model_type == trainer.UNIGRAM:
            normal = [piece.score for piece in model.pieces if piece.type == piece.NORMAL]
            scores = {piece.piece: piece.score for piece in model.pieces if piece.type != piece.UNKNOWN}
            best = max(0.0, *normal)
            # As sentencepiece prefers them, in its precision, in which equal sums are equal.
            scores |= {piece: float(np.float32(len(piece.encode("utf-8")) * best - 0.1)) for piece in whole}
            # Symbols that are no pieces get the score of the least likely piece, from which the cost of <unk> derives.
            pieces = [(token, scores.get(token, min(normal))) for token in tokens]
            tokenizer = Tokenizer(models.Unigram(pieces, UNK_ID, trainer.byte_fallback))
            for first in sorted({name[0] for name in names}):  # text that becomes <0x41> or <s> is no byte and no <s>
                rest = longest_of(name[1:] for name in names if name[0] == first)
                cuts.append(pre_tokenizers.Split(Regex(f"[{characters(first)}](?={rest})"), "merged_with_previous"))
        else:
            vocab = {token: i for i, token in enumerate(tokens)}
            options = dict(unk_token=symbols[UNK_ID], fuse_unk=True, byte_fallback=trainer.byte_fallback)
            tokenizer = Tokenizer(models.BPE(vocab, self.known_merges(_merges(model), vocab), **options))
            if single := [token for token in whole if len(token) == 1]:
                cuts.append(pre_tokenizers.Split(Regex(f"[{characters(single)}]"), "isolated"))

        steps = normalization.steps(rules.precompiled_charsmap) if rules.precompiled_charsmap else []
        changed = [piece for piece in whole if normalizers.Sequence(steps).normalize_str(piece) != piece]
        marks = {piece: chr(FIRST_NAME + number) for number, piece in enumerate(changed)}
        steps = [normalizers.Replace(piece, mark) for piece, mark in marks.items()] + steps
        steps += [normalizers.Replace(mark, piece) for piece, mark in marks.items()]
        if rules.remove_extra_whitespaces:
            steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Replace(Regex(rf"\A +|[ {SPACE}]+\z"), "")]
        if self._runs:
            known = f"[ {PREFIX}{characters(self._known)}]"
            end = rf"(?={kept}|{known}|\z)"
            skipped = rf"\G(?>{kept}|{known}|{longest_of(self._runs)}{end})*+\K"
            steps.append(normalizers.Replace(Regex(rf"{skipped}(?:(?!{kept}){known[0]}^{known[1:]})+"), JOINT))
        if rules.add_dummy_prefix:
            if rules.remove_extra_whitespaces:
                steps.append(normalizers.Prepend(" "))
            else:  # also before text of which nothing is left
                steps = [normalizers.Prepend(PREFIX), *steps, normalizers.Replace(PREFIX, " ")]
            steps.append(normalizers.Replace(Regex(rf"\A (?={whole_texts}\z)"), ""))
        for token in added:
            if SPACE in token:  # as which the model reads a space
                pattern = "".join(f"[{characters({c, ' '} if c == SPACE else c)}]" for c in token)
                steps.append(normalizers.Replace(Regex(pattern), token))
        tokenizer.normalizer = normalizers.Sequence(steps)
        # The library looks for these in what the normaliser gives.
        if unlike := [token for token in added if tokenizer.normalizer.normalize_str(token) != token]:
            raise InputError(f"the normaliser of {self.FILES[0]} changes its piece {unlike[0]!r}: it cannot be converted")
        inside = [token for token in tokens if SPACE in token[1:]]
        split = SPACE in self.pieces and not inside
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(SPACE, "never", split), *cuts])
        # Metaspace would leave out every space of the first piece.
        bytes_, prefix = [decoders.ByteFallback()] * trainer.byte_fallback, [decoders.Strip(" ", 1, 0)] * rules.add_dummy_prefix
        tokenizer.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), *bytes_, decoders.Fuse(), *prefix])
        tokenizer.add_tokens([AddedToken(token, normalized=True) for token in added])
        return tokenizer


class XlmrSentencepiece(Sentencepiece):
    """The same under the name that fairseq's XLM-R has."""

    FILES = ("sentencepiece.bpe.model",)


def spelling(piece: str) -> str:
    """Return the text of a piece, or of one byte where the vocabulary lacks a character, as :mod:`.words` reads it."""
    byte = re.fullmatch("<0x([0-9A-F]{2})>", piece)
    return bytes.fromhex(byte[1]).decode("utf-8", "surrogateescape") if byte else piece.replace(SPACE, " ")


def _merges(model: ModelProto) -> list[tuple[str, str]]:
    """Return every way to put a piece together from two others, best pieces first, as sentencepiece's BPE tries them."""
    scores = {piece.piece: piece.score for piece in model.pieces if piece.type == piece.NORMAL}
    merges = []
    for piece in sorted(scores, key=scores.__getitem__, reverse=True):
        splits = ((piece[:i], piece[i:]) for i in range(1, len(piece)))
        merges += [split for split in splits if split[0] in scores and split[1] in scores]
    return merges


def train(lines: Iterable[str], vocab_size: int | None, model_type: str, character_coverage: float) -> bytes:
    """Train sentencepiece so that the dictionary made of it has ``vocab_size`` symbols.

    Without a size, it has ``DEFAULT_SYMBOLS``, or as many as the text supports if these are fewer. The same lines give the same
    model on any number of cores.

    Raises:
        InputError: the text does not support that many pieces, or needs more to cover its characters; names the number.
    """
    size = vocab_size or DEFAULT_SYMBOLS
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(line.replace(RESERVED, " ") for line in lines),
            model_writer=model,
            vocab_size=size - UNCOUNTED,
            hard_vocab_limit=vocab_size is not None,
            model_type=model_type,
            character_coverage=character_coverage,
            max_sentence_length=1 << 30,  # in bytes; longer lines would be silently left out
            unk_id=0,
            bos_id=-1,
            eos_id=-1,
            pad_id=-1,
            minloglevel=2,
        )
    except RuntimeError as error:
        advice = f"sentencepiece could not be trained on this text: {error}"
        if match := re.search(r"Vocabulary size too high .* value <= (\d+)", str(error)):
            advice = (
                f"--vocab-size {size}: the training text supports {int(match[1]) + UNCOUNTED} symbols at most. "
                "Ask for no more than that, or give more text."
            )
        elif match := re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error)):
            advice = (
                f"--vocab-size {size}: too small for the characters of the training text, which need at least "
                f"{int(match[1]) + UNCOUNTED}. Raise it, or leave rare characters to <unk> with a lower --character-coverage."
            )
        raise InputError(advice) from error
    return model.getvalue()
