"""sentencepiece pieces as fairseq's ids.

fairseq's ``Dictionary`` puts four symbols of its own first and ``masked_lm`` adds ``<mask>`` after the pieces. Here
``<mask>`` is the last line of ``dict.txt`` from the start, so every task that loads the file gives every symbol the
same id:

    ======== ============================================
    id       symbol
    ======== ============================================
    0 .. 3   ``<s>``, ``<pad>``, ``</s>``, ``<unk>``
    4 ..     the pieces, in sentencepiece's order
    last     ``<mask>``
    ======== ============================================
"""

import io
import re
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
import sentencepiece

SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")
MASK = "<mask>"
EOS_ID, UNK_ID = SPECIALS.index("</s>"), SPECIALS.index("<unk>")


class Tokenizer:
    """A sentencepiece model and the dictionary it makes.

    Args:
        model: the bytes of a ``sentencepiece.model``.

    Attributes:
        symbols: every symbol of the dictionary; its index is its id.

    Raises:
        ValueError: not a sentencepiece model, or one whose pieces a fairseq dictionary cannot hold.
    """

    def __init__(self, model: bytes) -> None:
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError:
            raise ValueError("not a sentencepiece model (or one that is cut short)") from None
        pieces = range(self._processor.get_piece_size())
        ordinary = [i for i in pieces if not (self._processor.is_control(i) or self._processor.is_unknown(i))]
        self.symbols = [*SPECIALS, *map(self._processor.id_to_piece, ordinary), MASK]
        for symbol in self.symbols[len(SPECIALS) : -1]:
            if symbol in (*SPECIALS, MASK) or symbol.split() != [symbol]:
                raise ValueError(
                    f"the sentencepiece model's piece {symbol!r} cannot stand in a fairseq dictionary: it is one of "
                    "the dictionary's own symbols, or holds white space"
                )
        # One entry more than there are pieces: the mark that stands for a line's end in encode().
        self._ids = np.full(len(pieces) + 1, UNK_ID, dtype=np.int64)
        self._ids[ordinary] = np.arange(len(SPECIALS), len(self.symbols) - 1)
        self._ids[-1] = EOS_ID
        self.dtype = np.dtype(np.uint16 if len(self.symbols) < 65500 else np.uint32)  # fairseq's own choice

    def encode(self, lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """``(ids, sizes)``: the ids of all lines in a row, each line closed by ``</s>``, and how many each line has."""
        encoded = self._processor.encode(list(lines), out_type=int, num_threads=1)
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


def train(lines: Iterable[str], vocab_size: int, model_type: str, character_coverage: float) -> bytes:
    """Train sentencepiece so that the dictionary made of it has ``vocab_size`` symbols.

    The same lines give the same model on any number of cores.

    Raises:
        ValueError: the text does not support that many pieces, or needs more to cover its characters; says how many.
    """
    own = len(SPECIALS)  # symbols that sentencepiece does not count: <mask> and our four, less <unk>, which it has too
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            vocab_size=vocab_size - own,
            model_type=model_type,
            character_coverage=character_coverage,
            max_sentence_length=1 << 30,  # in bytes; longer lines would be left out without a word
            unk_id=0,
            bos_id=-1,
            eos_id=-1,
            pad_id=-1,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ValueError(_advice(str(error), vocab_size, own)) from error
    return model.getvalue()


def _advice(message: str, vocab_size: int, own: int) -> str:
    if match := re.search(r"Vocabulary size too high .* value <= (\d+)", message):
        return (
            f"--vocab-size {vocab_size}: the training text supports {int(match[1]) + own} symbols at most. "
            "Ask for no more than that, or give more text."
        )
    if match := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return (
            f"--vocab-size {vocab_size}: too small for the characters of the training text, which need more than "
            f"{int(match[1]) + own}. Raise it, or leave rare characters to <unk> with a lower --character-coverage."
        )
    return f"sentencepiece could not be trained on this text: {message}"
