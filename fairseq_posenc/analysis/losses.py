"""The masked-LM loss of a model on the same text, cut into sequences of one length or another."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models import BaseFairseqModel
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from omegaconf import OmegaConf
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from ..errors import InputError
from ..models.checkpoint import Checkpoint, explained
from ..runs.grid import Diverged, Progress

SPLIT = "valid"
PARTS = 8  # of a sequence, for the loss by position
TOKENS_PER_BATCH = 8192


@dataclass(frozen=True, eq=False)
class MaskedText:
    """The running text of a validation set, with the masks of validation: the same, whatever the length of the sequences.

    Attributes:
        tokens: (T,).
        inputs: (T,), the tokens with their masks.
        asked: (T,) bool, whether a token is to be predicted.
        samples: the task that cuts the text into samples.
    """

    tokens: Tensor
    inputs: Tensor
    asked: Tensor
    samples: MaskedLMTask

    @property
    def digest(self) -> str:
        """SHA-256 of the tokens."""
        return hashlib.sha256(self.tokens.numpy().tobytes()).hexdigest()

    def rows(self, n: int) -> list[int]:
        """The numbers of tokens of the sequences of length ``n``, without ``<s>``: they are cut as the task cuts its samples."""
        self.samples.cfg.tokens_per_sample = n
        left, rows = len(self.tokens), list[int]()
        for size in self.samples._load_dataset_split(SPLIT, 1, False).sizes:
            size = min(int(size) - 1, left)
            rows += [n - 1] * (size // (n - 1)) + [size % (n - 1)] * (size % (n - 1) > 0)  # a sentence may be longer than n
            left -= size
        return rows


def read(checkpoint: Checkpoint, data: Path, most: int, longest: int) -> MaskedText:
    """The first ``most`` tokens of a data-bin's validation text, ``<s>`` left out, masked as the checkpoint's task masks them.

    Args:
        checkpoint: the checkpoint, whose options of the task apply where ``masked_lm`` has them.
        data: the data-bin.
        most: tokens that are read at most.
        longest: tokens of the longest sequence, of which the text has at least one.

    Raises:
        InputError, FileNotFoundError: there is no such text, or it is shorter than one sequence.
    """
    if not (data / f"{SPLIT}.idx").exists():
        raise FileNotFoundError(f"--data {data} has no {SPLIT}.bin and {SPLIT}.idx, whose text is read: name a data-bin that has")
    task, dictionary = checkpoint.task, checkpoint.vocabulary.dictionary
    with explained(checkpoint.path):
        given = {declared.name: getattr(task, declared.name) for declared in fields(MaskedLMConfig) if declared.name in task}
        given |= {"data": str(data), "tokens_per_sample": checkpoint.length, "seed": 1}
        samples = MaskedLMTask(OmegaConf.merge(OmegaConf.structured(MaskedLMConfig), given), dictionary)
        samples.load_dataset(SPLIT)
    masked = samples.dataset(SPLIT)
    masked.set_epoch(1)  # as for validation
    found: list[tuple[Tensor, Tensor]] = []
    size = 0
    for number in range(len(masked)):
        sample = masked[number]
        found.append((sample["net_input.src_tokens"][1:], sample["target"][1:]))
        size += len(found[-1][0])
        if size >= most:
            break
    if min(size, most) < longest - 1:
        what = f"{data / SPLIT} has {size:,} tokens" if size < most else f"--tokens is {most}"
        raise InputError(f"--lengths {longest}: {what}, fewer than one sequence needs. Name shorter lengths, or more text.")
    inputs, target = (torch.cat(column)[:most] for column in zip(*found, strict=True))
    asked = target != dictionary.pad()
    if not asked.any():
        raise InputError(
            f"--lengths {longest}: of the {len(target)} tokens that are read, none is masked. Name a greater --tokens."
        )
    return MaskedText(torch.where(asked, target, inputs), inputs, asked, samples)


@torch.inference_mode()
def measure(
    model: BaseFairseqModel, text: MaskedText, n: int, progress: Progress = lambda text, share=None: None
) -> dict[str, Any]:
    """The loss on sequences of up to ``n`` tokens: ``<s>`` and up to ``n - 1`` of the text.

    Args:
        model: with a language model's head, for evaluation.

    Returns:
        In JSON's types: ``sequences``, their number; ``predicted``, the number of predicted tokens; ``loss``, bits per predicted
        token, and its standard ``error``, were the tokens independent; and ``parts``, :data:`PARTS` equal parts of a sequence
        from left to right, with their positions ``from`` and ``to`` and the same numbers, None where nothing is predicted.

    Raises:
        Diverged: a loss is not finite.
    """
    device = next(model.parameters()).device
    rows = text.rows(n)
    count, sums, squares = (torch.zeros(n, dtype=torch.float64) for _ in range(3))  # by position
    done = 0
    for tokens, inputs, asked in _batches(text, rows, n, model.encoder.dictionary):
        logits = model(inputs.to(device), masked_tokens=asked.to(device))[0]
        losses = F.cross_entropy(logits.float(), tokens[asked].to(device), reduction="none").cpu().double() / math.log(2)
        places = asked.nonzero()[:, 1]
        for values, into in ((torch.ones_like(losses), count), (losses, sums), (losses.square(), squares)):
            into.index_add_(0, places, values)
        done += len(tokens)
        progress(f"{done:,} of {len(rows):,} sequences")
    if not sums.isfinite().all():
        raise Diverged("the losses are not finite")
    edges = [round(n * part / PARTS) for part in range(PARTS + 1)]
    parts = [{"from": a, "to": b - 1, **_mean(count[a:b], sums[a:b], squares[a:b])} for a, b in pairwise(edges)]
    return {"sequences": len(rows), **_mean(count, sums, squares), "parts": parts}


def _batches(text: MaskedText, rows: list[int], n: int, dictionary: Dictionary) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Tokens, inputs and what is asked for, (B, n) each at most."""
    bos, pad = dictionary.bos(), dictionary.pad()
    columns = [x.split(rows) for x in (text.tokens, text.inputs, text.asked)]
    for first in range(0, len(rows), most := max(1, TOKENS_PER_BATCH // n)):
        rows_of = slice(first, first + most)
        tokens, inputs = (pad_sequence(x[rows_of], batch_first=True, padding_value=pad) for x in columns[:2])
        asked = pad_sequence(columns[2][rows_of], batch_first=True)
        if asked.any():
            yield F.pad(tokens, (1, 0), value=bos), F.pad(inputs, (1, 0), value=bos), F.pad(asked, (1, 0))


def _mean(count: Tensor, sums: Tensor, squares: Tensor) -> dict[str, Any]:
    """The mean loss and its standard error from sums by position, (n,) each."""
    predicted = int(count.sum())
    if not predicted:
        return {"loss": None, "error": None, "predicted": 0}
    loss = float(sums.sum()) / predicted
    variance = float(squares.sum()) / predicted - loss**2
    return {"loss": loss, "error": math.sqrt(max(variance, 0) / predicted), "predicted": predicted}
