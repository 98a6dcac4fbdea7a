"""The loss of a language model on the same text, cut into sequences of one length or another."""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.data import data_utils
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from omegaconf import OmegaConf
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from ...base.errors import InputError, flag_of
from ...plugin.batches import word_order
from ...plugin.batches.blocks import CutLinesBlockDataset
from ...plugin.checkpoint.checkpoint import Checkpoint
from ...plugin.checkpoint.checkpoint_file import config_errors_as_input_errors
from ..engine.grid import Diverged, Progress
from .inference import MAX_TOKENS

SPLIT = "valid"
PARTS = 8  # of a sequence, for the loss by position
NOT_MEASURED = ("document_mask", "pack_documents", "shorten_method", "add_bos_token")
"""Options of tasks that change what a sample is."""


@dataclass(frozen=True, eq=False)
class Text:
    """The running text of a validation set, and what a model reads to predict it, whatever the length of the sequences.

    Attributes:
        tokens: (T,).
        inputs: (T,), the tokens with the masks of validation; of a model that reads from left to right, the tokens before them.
        predicted: (T,) bool, whether a token is to be predicted.
        first: what precedes the inputs of each sequence, as one of its tokens: ``<s>`` before masked ones, or nothing.
        pad: the padding symbol.
        blocks: a number of tokens -> the sizes of the task's samples with that limit, without ``first``.
    """

    tokens: Tensor
    inputs: Tensor
    predicted: Tensor
    first: tuple[int, ...]
    pad: int
    blocks: Callable[[int], np.ndarray]

    @property
    def digest(self) -> str:
        """The hexadecimal SHA-256 of the tokens, which identifies the text."""
        return hashlib.sha256(self.tokens.numpy().tobytes()).hexdigest()

    def sizes(self, n: int) -> list[int]:
        """Return the numbers of inputs of the sequences of length ``n``, without ``first``, cut as the task cuts its samples."""
        ends = np.cumsum(self.blocks(n - len(self.first)), dtype=np.int64).clip(max=len(self.tokens))
        return [size for size in np.diff(ends, prepend=0).tolist() if size]

    def halves(self, n: int) -> tuple[Text, Text]:
        """Return the two halves of the text, the first of which consists of whole sequences of length ``n``."""
        size = n - len(self.first)
        middle = len(self.tokens) // 2 // size * size
        halves = slice(middle), slice(middle, None)
        first, second = (replace(self, tokens=self.tokens[x], inputs=self.inputs[x], predicted=self.predicted[x]) for x in halves)
        return first, second

    def permuted(self, n: int) -> Text:
        """Return the text with the visible words of each sequence of length ``n`` in another order, the same for all models.

        A model that uses no word order has the same loss on it. Samples of the task must be cut by length alone. If it is read
        from left to right, only the words after blocks are predicted: see :mod:`...plugin.batches.word_order`.
        """
        places, size = torch.arange(len(self.tokens)), n - len(self.first)
        predicted, groups = self.predicted, places // size
        if not self.first:
            predicted = predicted & word_order.ends_block(places % size)
            groups = groups * size + places % size // word_order.BLOCK
        return replace(self, inputs=word_order.permuted(self.inputs, ~predicted, groups, 1), predicted=predicted)

    def batches(self, n: int, sizes: list[int]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield tokens, inputs and what is predicted, (B, n) each at most, of the sequences of these sizes."""
        width, symbol = len(self.first), next(iter(self.first), 0)
        columns = [column.split(sizes) for column in (self.tokens, self.inputs, self.predicted)]
        count = max(1, MAX_TOKENS // n)
        for first in range(0, len(sizes), count):
            tokens, inputs, predicted = (
                F.pad(pad_sequence(column[first : first + count], True, padding), (width, 0), value=beginning)
                for column, padding, beginning in zip(columns, (self.pad, self.pad, False), (symbol, symbol, False), strict=True)
            )
            yield tokens, inputs, predicted


def read(checkpoint: Checkpoint, data: Path, max_tokens: int, length: int) -> Text:
    """Return the validation text of a data-bin, masked as the task of a checkpoint masks it, or to be read from left to right.

    Args:
        checkpoint: the checkpoint, whose options of the task apply where ``masked_lm`` or ``language_modeling`` has them.
        data: the data-bin.
        max_tokens: tokens that are read, at most.
        length: tokens of the longest sequence, of which the text has at least one.

    Raises:
        InputError, FileNotFoundError: there is no such text, or it is shorter than one sequence.
    """
    if not (data / f"{SPLIT}.idx").exists():
        raise FileNotFoundError(f"--data {data} has no {SPLIT}.bin and {SPLIT}.idx, whose text is read: name a data-bin that has")
    dictionary = checkpoint.vocabulary.dictionary
    without = [flag_of(name) for name in NOT_MEASURED if getattr(checkpoint.task, name, None) not in (None, False, "none")]
    without += ["--task masked_lm_sentence_order"] if "sentence_order" in str(getattr(checkpoint.task, "_name", "")) else []
    if without:
        message = f"{checkpoint.path} was trained with {', '.join(without)}; its loss is measured without, on running text"
        logging.getLogger(__name__).warning(message)
    lines = data_utils.load_indexed_dataset(str(data / SPLIT), dictionary)  # whose faults are not those of the checkpoint
    pad, eos = dictionary.pad(), dictionary.eos()
    kind, described, source, first = (
        (LanguageModelingTask, LanguageModelingConfig, "source", ())
        if checkpoint.is_causal
        else (MaskedLMTask, MaskedLMConfig, "net_input.src_tokens", (dictionary.bos(),))
    )
    with config_errors_as_input_errors(checkpoint.path):
        names = [field.name for field in fields(described) if field.name in checkpoint.task and field.name != "add_bos_token"]
        options = {name: getattr(checkpoint.task, name) for name in names}
        options |= {"data": str(data), "tokens_per_sample": checkpoint.length, "seed": 1, "shorten_method": "none"}
        cfg = OmegaConf.merge(OmegaConf.structured(described), options)
        task = kind(cfg, dictionary)
        task.load_dataset(SPLIT)

    def blocks(size: int) -> np.ndarray:
        return CutLinesBlockDataset(lines, lines.sizes, size, pad, eos, break_mode=cfg.sample_break_mode).sizes

    dataset = task.dataset(SPLIT)
    dataset.set_epoch(1)  # as for validation
    samples: list[tuple[Tensor, Tensor]] = []
    size = 0
    for number in range(len(dataset)):
        sample = dataset[number]
        samples.append((sample[source][len(first) :], sample["target"][len(first) :]))
        size += len(samples[-1][0])
        if size >= max_tokens:
            break
    if min(size, max_tokens) < length - len(first):
        limit = f"{data / SPLIT} has {size:,} tokens" if size < max_tokens else f"--tokens is {max_tokens}"
        raise InputError(f"--lengths {length}: {limit}, fewer than one sequence needs. Name shorter lengths, or more text.")
    inputs, target = (torch.cat(column)[:max_tokens] for column in zip(*samples, strict=True))
    predicted = target != pad
    if not predicted.any():
        raise InputError(f"--tokens {max_tokens}: none of the {len(target)} tokens is masked. Name a larger number.")
    return Text(torch.where(predicted, target, inputs), inputs, predicted, first, pad, blocks)


@dataclass(frozen=True, eq=False)
class Predictions:
    """The losses of the predicted tokens of a text that was cut into sequences.

    Attributes:
        n: tokens of a sequence, at most.
        sequences: their number, S.
        position_ids: (M,) the place of each predicted token in its sequence.
        losses: (M,) float64, in bits.
    """

    n: int
    sequences: int
    position_ids: Tensor
    losses: Tensor

    def summary(self) -> dict[str, Any]:
        """Return in JSON's types the following entries.

        ``sequences``; ``predicted``, the number of predicted tokens; ``loss``, bits per predicted token, and its standard
        ``error``, were the tokens independent; and ``parts``, :data:`PARTS` equal parts of a sequence from left to right, with
        their positions ``from`` and ``to`` and the same numbers, None where nothing is predicted.
        """
        edges, places = [round(self.n * part / PARTS) for part in range(PARTS + 1)], self.position_ids
        parts = [{"from": a, "to": b - 1, **_mean(self.losses[(a <= places) & (places < b)])} for a, b in pairwise(edges)]
        return {"sequences": self.sequences, **_mean(self.losses), "parts": parts}


@torch.inference_mode()
def predict(model: nn.Module, text: Text, n: int, progress: Progress = lambda text, share=None: None) -> Predictions:
    """Predict a text from sequences of up to ``n`` tokens: ``<s>`` and up to ``n - 1`` of it with masks, or up to ``n`` of it.

    Args:
        model: with a language model's head, for evaluation.
        text: the text.
        n: the length.
        progress: receives the number of sequences that are done.

    Raises:
        Diverged: a loss is not finite.
    """
    sizes, device, first = text.sizes(n), next(model.parameters()).device, 0
    columns: list[tuple[Tensor, Tensor]] = []
    for tokens, inputs, predicted in text.batches(n, sizes):
        if predicted.any():
            logits = model(inputs.to(device), predicted.to(device))
            losses = F.cross_entropy(logits.float(), tokens[predicted].to(device), reduction="none").cpu().double() / math.log(2)
            columns.append((predicted.nonzero(as_tuple=True)[1], losses))
        first += len(tokens)
        progress(f"{first:,} of {len(sizes):,} sequences")
    predictions = Predictions(n, len(sizes), *map(torch.cat, zip(*columns, strict=True)))
    if not predictions.losses.isfinite().all():
        raise Diverged("the losses are not finite")
    return predictions


def _mean(losses: Tensor) -> dict[str, Any]:
    """Return the mean loss of some tokens, its standard error, and their number."""
    if not len(losses):
        return {"loss": None, "error": None, "predicted": 0}
    error = losses.std(correction=0) / math.sqrt(len(losses))
    return {"loss": float(losses.mean()), "error": float(error), "predicted": len(losses)}
