"""Whether two models are the same function: the greatest difference of their outputs on real token batches with padding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.data import Dictionary, data_utils
from torch import Tensor

from ..errors import InputError

BATCHES = 2
SAMPLES = 4  # per batch
MASKED = 0.15
TOLERANCE = 1e-4  # greatest difference of an output


@dataclass(frozen=True)
class Parity:
    """The result of a comparison.

    Attributes:
        difference: the greatest absolute difference of an output at a token that is not padding.
        scale: the greatest absolute output.
        tokens: tokens compared.
        padding: padding symbols beside them.
    """

    difference: float
    scale: float
    tokens: int
    padding: int

    def __str__(self) -> str:
        return (
            f"{self.difference:.2g} at most, of outputs up to {self.scale:.3g}, on {self.tokens:,} tokens beside "
            f"{self.padding:,} of padding"
        )


def token_batches(data: Path, dictionary: Dictionary, length: int) -> list[Tensor]:
    """A few batches (B, n) of a data-bin's text: ``<s>``, sentences that each end in ``</s>``, some ``<mask>``, padding.

    The samples of a batch grow up to ``length``. They are spread over the split ``valid``, or ``train`` where that is not there,
    and the same each time.

    Raises:
        FileNotFoundError: the folder has neither.
    """
    sentences = next(filter(None, (_load(data / split, dictionary) for split in ("valid", "train"))), None)
    if sentences is None:
        raise FileNotFoundError(
            f"{data} has neither valid.bin and .idx nor train.bin and .idx, whose sentences the two models are compared on: "
            "name the data-bin that the checkpoint was trained on"
        )
    generator = torch.Generator().manual_seed(0)
    starts = np.linspace(0, len(sentences) - 1, num=BATCHES * SAMPLES, dtype=np.int64).tolist()
    samples = []
    for i, start in enumerate(starts):
        words = _text(sentences, start, max(1, length * (i % SAMPLES + 1) // SAMPLES - 1))
        masked = (torch.rand(len(words), generator=generator) < MASKED) & words.ne(dictionary.eos())
        words = words.masked_fill(masked, dictionary.index("<mask>"))
        samples.append(torch.cat([torch.tensor([dictionary.bos()]), words]))
    return [data_utils.collate_tokens(samples[i : i + SAMPLES], dictionary.pad()) for i in range(0, len(samples), SAMPLES)]


def random_batches(dictionary: Dictionary, lengths: list[int]) -> list[Tensor]:
    """For each length, 4 samples of random symbols with padding at the right: (4, n)."""
    generator = torch.Generator().manual_seed(0)
    batches = []
    for length in lengths:
        tokens = torch.randint(dictionary.nspecial, len(dictionary), (4, length), generator=generator)
        tokens[:, 0] = dictionary.bos()
        for row in range(1, 4):
            end = max(2, length * row // 4)
            tokens[row, end - 1], tokens[row, end:] = dictionary.eos(), dictionary.pad()
        batches.append(tokens)
    return batches


def compare(first: Callable[[Tensor], Tensor], second: Callable[[Tensor], Tensor], batches: list[Tensor], pad: int) -> Parity:
    """Run both on every batch. Outputs are (B, …), or (B, n, …) and then compared where there is no padding."""
    differences, scales = [0.0], [0.0]
    for tokens in batches:
        with torch.no_grad():
            a, b = first(tokens).double(), second(tokens).double()
        if a.shape != b.shape:
            raise InputError(f"the two models' outputs have the shapes {tuple(a.shape)} and {tuple(b.shape)}")
        if a.shape[:2] == tokens.shape:
            real = tokens.ne(pad)
            a, b = a[real], b[real]
        differences.append((a - b).abs().nan_to_num(nan=torch.inf).max().item())
        scales.append(a.abs().max().item())
    real_tokens = sum(int(tokens.ne(pad).sum()) for tokens in batches)
    return Parity(max(differences), max(scales), real_tokens, sum(map(torch.numel, batches)) - real_tokens)


def _load(path: Path, dictionary: Dictionary) -> Any:
    if not path.with_suffix(".idx").exists():
        return None
    sentences = data_utils.load_indexed_dataset(str(path), dictionary)
    return sentences if sentences is not None and len(sentences) else None


def _text(sentences: Any, start: int, length: int) -> Tensor:
    """So many tokens from a sentence on, in a circle."""
    found, size = [], 0
    for i in range(start, start + length):  # none is empty: each ends in </s>
        found.append(sentences[i % len(sentences)].long())
        size += len(found[-1])
        if size >= length:
            break
    return torch.cat(found)[:length]
