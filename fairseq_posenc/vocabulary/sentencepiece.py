"""sentencepiece's unigram and BPE models, whose pieces are the dictionary's symbols, and their training."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import sentencepiece
from sentencepiece import sentencepiece_pb2

from ..errors import InputError
from .tokenizer import SPECIALS, UNK_ID, Encoding, Tokenizer

if TYPE_CHECKING:
    import tokenizers
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

SENTENCEPIECE = "sentencepiece.model"
SPACE = "▁"
DEFAULT_SYMBOLS = 8192
"""For text of any size: about a hundred tokens per symbol in 3 MB, and enough for the characters of Chinese and Japanese."""
UNCOUNTED = len(SPECIALS)
"""Symbols that sentencepiece does not count: ``<mask>`` and our four without ``<unk>``, which it has too."""


class Sentencepiece(Tokenizer):
    """A sentencepiece model."""

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
        self.pieces = {piece for number, piece in enumerate(pieces) if not self._processor.is_unknown(number)}
        of_text = self.pieces - {piece for number, piece in enumerate(pieces) if self._processor.is_control(number)}
        self.symbols = [piece if piece in of_text else None for piece in pieces]

    def encode_lines(self, lines: Sequence[str]) -> list[list[int]]:
        return self._processor.encode(list(lines), out_type=int, num_threads=1)

    def encode(self, text: str) -> Encoding:
        # The only form that every release has with offsets in bytes.
        serialized = self._processor.encode(text, out_type="serialized_proto")
        pieces = sentencepiece_pb2.SentencePieceText.FromString(serialized).pieces
        ids, begins, ends = np.array([(piece.id, piece.begin, piece.end) for piece in pieces], np.int64).reshape(-1, 3).T
        if not text.isascii():
            starts = np.cumsum([0, *(len(character.encode("utf-8")) for character in text)])  # first byte of each character
            begins = np.searchsorted(starts, begins, side="right") - 1
            ends = np.searchsorted(starts, ends, side="left")
        return Encoding(ids, begins, ends)

    def decode(self, symbols: Sequence[str]) -> str:
        return self._processor.decode_pieces(list(symbols))

    def spelling(self, symbol: str) -> str:
        return spelling(symbol)

    def renumbered(self, symbols: Sequence[str]) -> tokenizers.Tokenizer:
        from sentencepiece import sentencepiece_model_pb2
        from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

        model = sentencepiece_model_pb2.ModelProto.FromString(self._model)
        trainer, rules = model.trainer_spec, model.normalizer_spec
        if trainer.treat_whitespace_as_suffix or trainer.model_type not in (trainer.UNIGRAM, trainer.BPE):
            raise InputError(f"{SENTENCEPIECE} is not a unigram or BPE model with spaces before words: it cannot be converted")
        if trainer.model_type == trainer.UNIGRAM:
            # Symbols that are no pieces get the score of the least likely piece, from which the cost of <unk> derives.
            scores = {piece.piece: piece.score for piece in model.pieces if piece.type != piece.UNKNOWN}
            least = min(piece.score for piece in model.pieces if piece.type == piece.NORMAL)
            pieces = [(symbol, scores.get(symbol, least)) for symbol in symbols]
            tokenizer = Tokenizer(models.Unigram(pieces, UNK_ID, trainer.byte_fallback))
        else:
            vocab = {symbol: i for i, symbol in enumerate(symbols)}
            options = dict(unk_token=symbols[UNK_ID], fuse_unk=True, byte_fallback=trainer.byte_fallback)
            tokenizer = Tokenizer(models.BPE(vocab, _merges(model), **options))

        steps: list[normalizers.Normalizer] = []
        if rules.precompiled_charsmap:
            steps.append(normalizers.Precompiled(rules.precompiled_charsmap))
        if rules.remove_extra_whitespaces:
            # A space at the left stays: it may follow <mask>, and at the beginning it becomes the dummy prefix.
            steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip(left=False, right=True)]
        tokenizer.normalizer = normalizers.Sequence(steps)
        scheme = "first" if rules.add_dummy_prefix else "never"
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme=scheme, split=trainer.split_by_whitespace)
        metaspace = decoders.Metaspace(SPACE, prepend_scheme=scheme)
        if trainer.byte_fallback:
            tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), metaspace])
        else:
            tokenizer.decoder = metaspace
        return tokenizer


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
            sentence_iterator=iter(lines),
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
