"""The models that are analyzed, each as this package's encoder with its vocabulary."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ...base.commands import best_checkpoint, saved_checkpoints, split_label
from ...base.errors import InputError
from ...core.transformer import Encoder
from ...text.vocabulary import Vocabulary
from .embeddings import position_vectors

MIN_LENGTH = 8  # tokens of a window


@dataclass(frozen=True, eq=False)
class AnalyzedModel:
    """A model that is analyzed.

    Attributes:
        label: its name in pictures.
        encoder: with its parameters, for evaluation.
        vocabulary: None if no text is read.
        common: (E,), added to every word embedding in addition to a position's vector: BERT's vector of token type 0; or None.
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
        """Return E_P, (n, E), without what is common to all positions; None if nothing is added to the word embeddings."""
        vectors = position_vectors(self.encoder, n)
        return vectors if vectors is None or self.common is None else vectors - self.common

    def fitting_length(self, length: int) -> int:
        """Return ``length``, or as many tokens as the model takes."""
        return min(limit for limit in (length, self.encoder.max_length, self.max_length) if limit is not None)

    def windows(self, text: str, n: int, count: int) -> Tensor:
        """Return (N, n) tokens: ``<s>``, n-2 tokens of running text and ``</s>``, at most ``count``, from all over the text.

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
        chosen = ids[: number * (n - 2)].view(number, n - 2)[torch.linspace(0, number - 1, min(count, number)).long()]
        bos, eos = (torch.full((len(chosen), 1), symbol) for symbol in (dictionary.bos(), dictionary.eos()))
        return torch.cat([bos, chosen, eos], dim=1)


def read(model: str, data_bin: Path | None, with_text: bool) -> AnalyzedModel:
    """Return the model of ``MODEL`` or ``LABEL=MODEL``.

    Args:
        model: a checkpoint, the folder of a training run, or the folder or name of a model of transformers.
        data_bin: the vocabulary of checkpoints; by default the data-bin that each was trained on.
        with_text: whether it will read text, for which it needs a vocabulary.

    Raises:
        InputError, OSError: there is no such model, its vocabulary does not fit, or its parameters are not finite.
    """
    analyzed = _read(*split_label(model), data_bin, with_text)
    for name, parameter in analyzed.encoder.named_parameters():
        if not parameter.isfinite().all():
            raise InputError(
                f"{analyzed.label}: its {name} is not finite (NaN or infinity), as after training that diverged: name an earlier "
                "checkpoint, or another model"
            )
    return analyzed


def _read(label: str, name: str, data_bin: Path | None, with_text: bool) -> AnalyzedModel:
    run, path = saved_checkpoints(Path(name)), best_checkpoint(Path(name))
    if path.is_file():
        from ...plugin.checkpoint.checkpoint import Checkpoint

        checkpoint = Checkpoint(path, data_bin)
        return AnalyzedModel(label, checkpoint.encoder(), checkpoint.vocabulary if with_text else None, run=tuple(run))
    from ...huggingface.source_models import read as read_source  # imports transformers

    source = read_source(name)
    vocabulary = None
    if with_text:
        with tempfile.TemporaryDirectory() as folder:
            source.vocabulary.write(Path(folder))
            vocabulary = Vocabulary(Path(folder))
    return AnalyzedModel(label, source.encoder(), vocabulary, source.token_type, max_length=source.max_length)
