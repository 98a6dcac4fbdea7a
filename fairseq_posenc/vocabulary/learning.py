"""Training of a tokenizer."""

import io
import re
from collections.abc import Iterable

import sentencepiece

from ..errors import InputError
from .dictionary import SPECIALS

DEFAULT_SYMBOLS = 8192
"""Whatever the text's size: about a hundred tokens per symbol in 3 MB, and enough for the characters of Chinese and Japanese."""


def train(lines: Iterable[str], vocab_size: int | None, model_type: str, character_coverage: float) -> bytes:
    """Train sentencepiece so that the dictionary made of it has ``vocab_size`` symbols.

    Without a size, it has ``DEFAULT_SYMBOLS``, or as many as the text supports if these are fewer. The same lines give the same
    model on any number of cores.

    Raises:
        InputError: the text does not support that many pieces, or needs more to cover its characters; names the number.
    """
    uncounted = len(SPECIALS)  # symbols that sentencepiece does not count: <mask> and our four, less <unk>, which it has too
    size = vocab_size or DEFAULT_SYMBOLS
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            vocab_size=size - uncounted,
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
        raise _advised(str(error), size, uncounted) from error
    return model.getvalue()


def _advised(message: str, vocab_size: int, uncounted: int) -> InputError:
    if match := re.search(r"Vocabulary size too high .* value <= (\d+)", message):
        return InputError(
            f"--vocab-size {vocab_size}: the training text supports {int(match[1]) + uncounted} symbols at most. "
            "Ask for no more than that, or give more text."
        )
    if match := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return InputError(
            f"--vocab-size {vocab_size}: too small for the characters of the training text, which need more than "
            f"{int(match[1]) + uncounted}. Raise it, or leave rare characters to <unk> with a lower --character-coverage."
        )
    return InputError(f"sentencepiece could not be trained on this text: {message}")
