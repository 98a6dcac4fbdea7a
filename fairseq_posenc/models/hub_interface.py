"""Checkpoints from Python: the encoder alone, the vocabulary, and fairseq's hub interface with both."""

import os
from contextlib import suppress
from pathlib import Path

from fairseq.data import Dictionary
from fairseq.models.roberta.hub_interface import RobertaHubInterface
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from omegaconf import open_dict

from ..errors import InputError
from ..transformer import Encoder
from ..vocabulary import Vocabulary
from .checkpoint import Checkpoint


def load_encoder(path: str | os.PathLike) -> Encoder:
    """Load a checkpoint's encoder as a plain PyTorch module, for evaluation; raises InputError or OSError if there is none."""
    return Checkpoint(Path(path)).encoder()


def load_vocabulary(folder: str | os.PathLike) -> Vocabulary:
    """Load the vocabulary of a data-bin, or of a folder of import-hf; raises InputError or OSError if parts are missing."""
    return Vocabulary(Path(folder))


def load_hub_interface(path: Path, data: Path | None = None) -> RobertaHubInterface:
    """Return the result of :meth:`PosencRobertaModel.from_pretrained`; raises what :class:`.checkpoint.Checkpoint` raises."""
    checkpoint = Checkpoint(path, data)
    vocabulary, cfg = checkpoint.vocabulary, checkpoint.configuration
    with open_dict(cfg):
        cfg.bpe = None  # it would be downloaded
    task = MaskedLMTask(MaskedLMConfig(data=str(vocabulary.folder)), vocabulary.dictionary)
    with suppress(InputError):  # one of several heads is not chosen
        labels, task.label_dictionary = checkpoint.labels, Dictionary()  # as of the task that trained the head
        for label in labels:
            task.label_dictionary.add_symbol(label)
    interface = RobertaHubInterface(cfg, task, checkpoint.model)
    interface.bpe = Subwords(vocabulary)
    return interface.eval()


class Subwords:
    """A vocabulary with the interface of fairseq's hub: text to symbols, separated by spaces, and back."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def encode(self, text: str) -> str:
        return " ".join(self._vocabulary.dictionary[number] for number in self._vocabulary.encode(text).ids.tolist())

    def decode(self, symbols: str) -> str:
        return self._vocabulary.decode(map(self._vocabulary.dictionary.index, symbols.split()))
