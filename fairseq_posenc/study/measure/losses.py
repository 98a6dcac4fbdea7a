"""The masked-LM loss of a model on the same text, cut into sequences of one length or another."""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from fairseq.data import data_utils
from fairseq.models import BaseFairseqModel
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from omegaconf import OmegaConf
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from ...base.errors import InputError, flag_of
from ...plugin.checkpoint.checkpoint_file import config_errors_as_input_errors
from ...plugin.models.checkpoint import Checkpoint
from ..engine.grid import Diverged, Progress
from .inference import MAX_TOKENS

SPLIT = "valid"
PARTS = 8  # of a sequence, for the loss by position
NOT_MEASURED = ("document_mask", "pack_documents", "shorten_method")  # options of tasks that change what a sample is


@dataclass(frozen=True, eq=False)
class MaskedText:
    """The running text of a validation set with the masks of validation, which do not depend on the length of the sequences.

    Attributes:
        tokens: (T,).
        inputs: (T,), the tokens with their masks.
        masked: (T,) bool, whether a token is to be predicted.
        task: cuts the text into samples.
    """

    tokens: Tensor
    inputs: Tensor
    masked: Tensor
    task: MaskedLMTask

    @property
    def digest(self) -> str:
        """The hexadecimal SHA-256 of the tokens, which identifies the text."""
        return hashlib.sha256(self.tokens.numpy().tobytes()).hexdigest()

    def sizes(self, n: int) -> list[int]:
        """Return the numbers of tokens of the sequences of length ``n``, without ``<s>``, cut as the task cuts its samples."""
        self.task.cfg.tokens_per_sample = n
        left, sizes = len(self.tokens), list[int]()
        for size in self.task._load_dataset_split(SPLIT, 1, False).sizes:
            size = min(int(size) - 1, left)
            sizes += [n - 1] * (size // (n - 1)) + [size % (n - 1)] * (size % (n - 1) > 0)  # a sentence may be longer than n
            left -= size
        return sizes

    def halves(self, n: int) -> tuple[MaskedText, MaskedText]:
        """Return the two halves of the text, the first of which consists of whole sequences of length ``n``."""
        middle = len(self.tokens) // 2 // (n - 1) * (n - 1)
        halves = slice(middle), slice(middle, None)
        first, second = (MaskedText(self.tokens[x], self.inputs[x], self.masked[x], self.task) for x in halves)
        return first, second

    def permuted(self, n: int) -> MaskedText:
        """Return the text with the visible words of each sequence of length ``n`` in another order, the same for all models.

        A model that uses no word order has the same loss on it. Samples of the task must be cut by length alone.
        """
        visible = ~self.masked
        sequence = torch.arange(len(self.tokens)) // (n - 1)
        keys = sequence[visible] + torch.rand(int(visible.sum()), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        inputs = self.inputs.clone()
        inputs[visible] = self.inputs[visible][keys.argsort()]
        return replace(self, inputs=inputs)

    def batches(self, n: int, sizes: list[int]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield tokens, inputs and masks, (B, n) each at most, of the sequences of these sizes."""
        bos, pad = self.task.dictionary.bos(), self.task.dictionary.pad()
        columns = [column.split(sizes) for column in (self.tokens, self.inputs, self.masked)]
        count = max(1, MAX_TOKENS // n)
        for first in range(0, len(sizes), count):
            tokens, inputs, masked = (
                F.pad(pad_sequence(column[first : first + count], True, padding), (1, 0), value=beginning)
                for column, padding, beginning in zip(columns, (pad, pad, False), (bos, bos, False), strict=True)
            )
            yield tokens, inputs, masked


def read(checkpoint: Checkpoint, data: Path, max_tokens: int, length: int) -> MaskedText:
    """Return the validation text of a data-bin, ``<s>`` left out, masked as the checkpoint's task masks it.

    Args:
        checkpoint: the checkpoint, whose options of the task apply where ``masked_lm`` has them.
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
    data_utils.load_indexed_dataset(str(data / SPLIT), dictionary)  # whose faults are not those of the checkpoint
    with config_errors_as_input_errors(checkpoint.path):
        names = [field.name for field in fields(MaskedLMConfig) if field.name in checkpoint.task]
        options = {name: getattr(checkpoint.task, name) for name in names}
        options |= {"data": str(data), "tokens_per_sample": checkpoint.length, "seed": 1, "shorten_method": "none"}
        task = MaskedLMTask(OmegaConf.merge(OmegaConf.structured(MaskedLMConfig), options), dictionary)
        task.load_dataset(SPLIT)
    dataset = task.dataset(SPLIT)
    dataset.set_epoch(1)  # as for validation
    samples: list[tuple[Tensor, Tensor]] = []
    size = 0
    for number in range(len(dataset)):
        sample = dataset[number]
        samples.append((sample["net_input.src_tokens"][1:], sample["target"][1:]))
        size += len(samples[-1][0])
        if size >= max_tokens:
            break
    if min(size, max_tokens) < length - 1:
        limit = f"{data / SPLIT} has {size:,} tokens" if size < max_tokens else f"--tokens is {max_tokens}"
        raise InputError(f"--lengths {length}: {limit}, fewer than one sequence needs. Name shorter lengths, or more text.")
    inputs, target = (torch.cat(column)[:max_tokens] for column in zip(*samples, strict=True))
    masked = target != dictionary.pad()
    if not masked.any():
        raise InputError(f"--tokens {max_tokens}: none of the {len(target)} tokens is masked. Name a larger number.")
    return MaskedText(torch.where(masked, target, inputs), inputs, masked, task)


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
        of_token = torch.ones_like(self.losses), self.losses, self.losses.square()
        columns = [_sums(self.position_ids, values, self.n) for values in of_token]
        edges = [round(self.n * part / PARTS) for part in range(PARTS + 1)]
        parts = [{"from": a, "to": b - 1, **_mean(*(column[a:b] for column in columns))} for a, b in pairwise(edges)]
        return {"sequences": self.sequences, **_mean(*columns), "parts": parts}


@torch.inference_mode()
def predict(model: BaseFairseqModel, text: MaskedText, n: int, progress: Progress = lambda text, share=None: None) -> Predictions:
    """Predict the masked tokens from sequences of up to ``n`` tokens: ``<s>`` and up to ``n - 1`` of the text.

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
    for tokens, inputs, masked in text.batches(n, sizes):
        if masked.any():
            logits = model(inputs.to(device), masked_tokens=masked.to(device))[0]
            losses = F.cross_entropy(logits.float(), tokens[masked].to(device), reduction="none").cpu().double() / math.log(2)
            columns.append((masked.nonzero(as_tuple=True)[1], losses))
        first += len(tokens)
        progress(f"{first:,} of {len(sizes):,} sequences")
    predictions = Predictions(n, len(sizes), *map(torch.cat, zip(*columns, strict=True)))
    if not predictions.losses.isfinite().all():
        raise Diverged("the losses are not finite")
    return predictions


def _sums(indices: Tensor, values: Tensor, size: int) -> Tensor:
    """The sum of the values of each index below ``size``."""
    return torch.zeros(size, dtype=torch.float64).index_add_(0, indices, values)


def _mean(count: Tensor, sums: Tensor, squares: Tensor) -> dict[str, Any]:
    """Return the mean loss and its standard error from sums by position, (n,) each."""
    predicted = int(count.sum())
    if not predicted:
        return {"loss": None, "error": None, "predicted": 0}
    loss = float(sums.sum()) / predicted
    variance = float(squares.sum()) / predicted - loss**2
    return {"loss": loss, "error": math.sqrt(max(variance, 0) / predicted), "predicted": predicted}
