"""The models that are looked at, each as this package's encoder with its vocabulary."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ..errors import InputError
from ..models.checkpoint import Checkpoint
from ..transformer import Encoder
from ..vocabulary import DICTIONARY, Vocabulary
from .embeddings import position_vectors

MIN_LENGTH = 8  # tokens of a window
LAST = ("checkpoint_best.pt", "checkpoint_last.pt")
"""The checkpoints that represent a run, in order of preference."""
CHECKPOINTS = "checkpoints"
"""fairseq's default --save-dir, which Hydra's runs have in their folders."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A model.

    Attributes:
        label: its name in pictures.
        encoder: with its parameters, for evaluation.
        vocabulary: None if no text is read.
        common: (E,), added to every word embedding besides a position's vector: BERT's vector of token type 0; or None.
        run: the checkpoints of its run, if a run's folder was named.
        max_length: tokens of the longest sequence on which the encoder computes the same as the model; None for any.
    """

    label: str
    encoder: Encoder
    vocabulary: Vocabulary | None = None
    common: Tensor | None = None
    run: tuple[Path, ...] = ()
    max_length: int | None = None

    def position_vectors(self, n: int) -> Tensor | None:
        """Returns E_P, (n, E), without what is common to all positions; None where nothing is added to the word embeddings."""
        added = position_vectors(self.encoder, n)
        return added if added is None or self.common is None else added - self.common

    def fitting_length(self, length: int) -> int:
        """Returns ``length``, or as many tokens as the model takes."""
        return min(limit for limit in (length, self.encoder.positions.max_length, self.max_length) if limit is not None)

    def windows(self, text: str, n: int, most: int) -> Tensor:
        """Returns (N, n) tokens: ``<s>``, n-2 tokens of running text and ``</s>``, at most so many, from all over the text.

        Raises:
            InputError: the text has not enough tokens for two, or the model takes fewer than a window needs.
        """
        assert self.vocabulary is not None
        if n < MIN_LENGTH:
            raise InputError(f"{self.label} takes {n} tokens at most, and a window of text needs {MIN_LENGTH}: leave --text out")
        ids = torch.from_numpy(self.vocabulary.encode(" ".join(text.split())).ids)
        number = len(ids) // (n - 2)
        if number < 2:
            raise InputError(
                f"--text has {len(ids)} tokens in the vocabulary of {self.label}, and two windows of --length {n} need "
                f"{2 * (n - 2)}: name a longer text, or a smaller --length"
            )
        dictionary = self.vocabulary.dictionary
        chosen = ids[: number * (n - 2)].view(number, n - 2)[torch.linspace(0, number - 1, min(most, number)).long()]
        bos, eos = (torch.full((len(chosen), 1), symbol) for symbol in (dictionary.bos(), dictionary.eos()))
        return torch.cat([bos, chosen, eos], dim=1)


def name_of(model: str) -> str:
    """Returns the file, folder or name in ``LABEL=MODEL`` or ``MODEL``."""
    return model.partition("=")[2] if "=" in model and not Path(model).exists() else model


def label_of(model: str) -> str:
    """Returns the label in ``LABEL=MODEL``, or else the name of the model's folder or its own."""
    name = name_of(model)
    if name != model:
        return model.removesuffix(f"={name}")
    path = Path(name).absolute()
    path = path.parent if path.name.startswith("checkpoint") and path.suffix == ".pt" else path
    path = path.parent if path.name == CHECKPOINTS else path
    return path.name.removesuffix(".pt")


def read(model: str, data_bin: Path | None, with_text: bool) -> Subject:
    """Returns the model of ``MODEL`` or ``LABEL=MODEL``.

    Args:
        model: a checkpoint, the folder of a training run, or the folder or name of a model of transformers.
        data_bin: the vocabulary of checkpoints; by default the data-bin that each was trained on.
        with_text: whether it will read text, for which it needs a vocabulary.

    Raises:
        InputError, OSError: there is no such model, its vocabulary does not fit, or its parameters are no numbers.
    """
    subject = _read(model, data_bin, with_text)
    for name, parameter in subject.encoder.named_parameters():
        if not parameter.isfinite().all():
            raise InputError(
                f"{subject.label}: its {name} is not finite (NaN or infinity), as after training that diverged: name an earlier "
                "checkpoint, or another model"
            )
    return subject


def _read(model: str, data_bin: Path | None, with_text: bool) -> Subject:
    label, name = label_of(model), name_of(model)
    path = Path(name)
    run = checkpoints(path)
    if run:
        path = next((file for last in LAST for file in run if file.name == last), run[-1])
    if path.is_file():
        checkpoint = Checkpoint(path, data_bin)
        return Subject(label, checkpoint.encoder(), checkpoint.vocabulary if with_text else None, run=tuple(run))
    from ..huggingface.sources import read as read_source  # which few need, with its libraries

    source = read_source(name)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        source.vocabulary.dictionary.save(str(folder / DICTIONARY))
        for file, content in source.vocabulary.files.items():
            (folder / file).write_bytes(content)
        vocabulary = Vocabulary(folder) if with_text else None
        return Subject(label, source.encoder(), vocabulary, source.token_type, max_length=source.max_length)


def follow(run: tuple[Path, ...]) -> Iterator[tuple[int, Encoder]]:
    """Each checkpoint of a run, with its number of updates."""
    for path in run:
        checkpoint = Checkpoint(path)
        yield checkpoint.updates or 0, checkpoint.encoder()


def checkpoints(folder: Path) -> list[Path]:
    """Returns what fairseq's trainer has left in a run's folder: its --save-dir, or that with ``checkpoints`` in it."""
    name = re.compile(r"checkpoint[\d_]*(_best|_last)?\.pt")
    found = (sorted(path for path in place.glob("checkpoint*.pt") if name.fullmatch(path.name))
             for place in (folder, folder / CHECKPOINTS))  # fmt: skip
    return next(filter(None, found), [])
