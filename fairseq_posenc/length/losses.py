"""The masked-LM loss of a model on the same text, cut into sequences of one length or another."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary, data_utils
from fairseq.models import BaseFairseqModel
from torch import Tensor
from torch.nn import functional as F

from ..errors import InputError
from ..runs.grid import Diverged, Progress
from ..vocabulary import MASK

SPLIT = "valid"
MASKED, REPLACED, KEPT = 0.15, 0.1, 0.1  # of all tokens; and of those, as fairseq's masked_lm has them
PARTS = 16  # of a sequence, for the loss by position
TOKENS_PER_BATCH = 8192
SEED = 1


@dataclass(frozen=True, eq=False)
class MaskedText:
    """Running text of which 15% are to be predicted: the same tokens, whatever the length of the sequences.

    Of those, 80% are masked, 10% another word, 10% as they are. All are (T,).
    """

    tokens: Tensor
    inputs: Tensor
    asked: Tensor  # bool

    @property
    def digest(self) -> str:
        """SHA-256 of the tokens."""
        return hashlib.sha256(self.tokens.numpy().tobytes()).hexdigest()


def read(data: Path, dictionary: Dictionary, most: int, longest: int) -> MaskedText:
    """The beginning of a data-bin's validation text, ``<s>`` left out: ``most`` tokens at most, whole sequences of ``longest``.

    Raises:
        InputError, FileNotFoundError: there is none, or it is shorter than one sequence.
    """
    if not (data / f"{SPLIT}.idx").exists():
        raise FileNotFoundError(f"--data {data} has no {SPLIT}.bin and {SPLIT}.idx, whose text is read: name a data-bin that has")
    lines = data_utils.load_indexed_dataset(str(data / SPLIT), dictionary)
    found: list[Tensor] = []
    size = 0
    for number in range(0 if lines is None else len(lines)):
        found.append(lines[number].long())
        size += len(found[-1])
        if size >= most:
            break
    whole = min(size, most) // (longest - 1) * (longest - 1)
    if whole < 1:
        what = f"{data / SPLIT} has {size:,} tokens" if size < most else f"--tokens is {most}"
        raise InputError(f"--lengths {longest}: {what}, fewer than one sequence needs. Name shorter lengths, or more text.")
    tokens = torch.cat(found)[:whole]
    generator = torch.Generator().manual_seed(SEED)
    asked, kind = (torch.rand(whole, generator=generator) for _ in range(2))
    others = torch.randint(dictionary.nspecial, len(dictionary), (whole,), generator=generator)
    hidden = torch.where(kind < REPLACED, others, dictionary.index(MASK))
    asked = asked < MASKED
    if not asked.any():
        raise InputError(f"--lengths {longest}: of the {whole} tokens that are read, none is masked. Name a greater --tokens.")
    return MaskedText(tokens, torch.where(asked & (kind < 1 - KEPT), hidden, tokens), asked)


@torch.inference_mode()
def measure(model: BaseFairseqModel, text: MaskedText, n: int, progress: Progress = lambda text: None) -> dict[str, Any]:
    """The loss on sequences of ``n`` tokens: ``<s>`` and ``n - 1`` of the text. The last one may be shorter.

    Args:
        model: with a language model's head, for evaluation.

    Returns:
        In JSON's types: ``sequences``, their number; ``loss``, bits per predicted token, and its standard ``error``, were the
        tokens independent; ``predicted``, their number; and ``parts``, :data:`PARTS` equal parts of a sequence from left to
        right, each with its positions ``from`` and ``to``, its loss, and the number of tokens predicted in it.

    Raises:
        Diverged: a loss is not finite.
    """
    device = next(model.parameters()).device
    total = -(-len(text.tokens) // (n - 1))
    count, sums, squares = (torch.zeros(n, dtype=torch.float64) for _ in range(3))  # by position
    done = 0
    for tokens, inputs, asked in _batches(text, n, model.encoder.dictionary.bos()):
        logits = model(inputs.to(device), masked_tokens=asked.to(device))[0]
        losses = F.cross_entropy(logits.float(), tokens[asked].to(device), reduction="none").double().cpu() / math.log(2)
        places = asked.nonzero()[:, 1]
        for values, into in ((torch.ones_like(losses), count), (losses, sums), (losses.square(), squares)):
            into.index_add_(0, places, values)
        done += len(tokens)
        progress(f"{done:,} of {total:,} sequences")
    if not sums.isfinite().all():
        raise Diverged("the losses are not finite")
    predicted, mean = int(count.sum()), float(sums.sum() / count.sum())
    variance = float(squares.sum() / count.sum()) - mean**2
    error = math.sqrt(max(variance, 0) / predicted)
    return {"sequences": total, "loss": mean, "error": error, "predicted": predicted, "parts": _parts(count, sums)}


def _batches(text: MaskedText, n: int, bos: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Tokens, inputs and what is asked for, (B, n) each."""
    rows = max(1, TOKENS_PER_BATCH // n)
    pieces = (part.split(rows * (n - 1)) for part in (text.tokens, text.inputs, text.asked))
    for piece in zip(*pieces, strict=True):
        whole = len(piece[0]) // (n - 1) * (n - 1)
        for some, width in ((slice(None, whole), n - 1), (slice(whole, None), len(piece[0]) - whole)):
            if len(piece[0][some]):
                tokens, inputs, asked = (x[some].view(-1, width) for x in piece)
                if asked.any():
                    yield F.pad(tokens, (1, 0), value=bos), F.pad(inputs, (1, 0), value=bos), F.pad(asked, (1, 0), value=False)


def _parts(count: Tensor, sums: Tensor) -> list[dict[str, Any]]:
    """From sums by position, (n,)."""
    edges = [round(len(count) * part / PARTS) for part in range(PARTS + 1)]
    found = []
    for start, end in pairwise(edges):
        number = int(count[start:end].sum())
        loss = float(sums[start:end].sum()) / number if number else None
        found.append({"from": start, "to": end - 1, "loss": loss, "predicted": number})
    return found
