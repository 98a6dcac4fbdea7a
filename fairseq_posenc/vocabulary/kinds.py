"""The kinds of tokenizers, and which of them a folder holds."""

import os
from collections.abc import Container
from pathlib import Path

from .dictionary import DICTIONARY, GIVEN_DICTIONARY
from .library import GPT2, TokenizerJson
from .sentencepiece import SENTENCEPIECE, Sentencepiece
from .tokenizer import Tokenizer

KINDS: tuple[type[Tokenizer], ...] = (Sentencepiece, GPT2, TokenizerJson)
"""Of several in one folder, the first counts."""

TOKENIZER_FILES = tuple(name for kind in KINDS for name in kind.FILES)
"""Those in the folder of a dict.txt cut text into its symbols."""


def kind_of(names: Container[str]) -> type[Tokenizer] | None:
    """The kind whose files all have one of these names."""
    return next((kind for kind in KINDS if all(name in names for name in kind.FILES)), None)


def read_files(path: Path) -> dict[str, bytes]:
    """What :class:`.lines.LineEncoder` takes, of a sentencepiece model or of a folder with a vocabulary.

    Raises:
        FileNotFoundError: there is none.
    """
    if not path.is_dir():
        return {SENTENCEPIECE: path.read_bytes()}
    kind = kind_of(os.listdir(path))
    if kind is None:
        needed = ", nor ".join(" and ".join(kind.FILES) for kind in KINDS)
        raise FileNotFoundError(f"{path}: this folder has neither {needed}")
    files = {name: (path / name).read_bytes() for name in kind.FILES}
    if (path / DICTIONARY).exists():
        files[GIVEN_DICTIONARY] = (path / DICTIONARY).read_bytes()
    elif kind is not Sentencepiece:
        raise FileNotFoundError(f"{path / DICTIONARY}: no such file, which has the id of each piece of {kind.FILES[0]}")
    return files
