"""The comparison of two models: the greatest difference of their outputs on batches of tokens with padding."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ..base.errors import InputError
from ..text.data.databin import files_of, read
from ..text.vocabulary import Dictionary

BATCHES = 2
SAMPLES = 4  # per batch
MASKED = 0.15


@dataclass(frozen=True)
class Parity:
    """The result of a comparison.

    Attributes:
        difference: the greatest absolute difference of an output at a token that is not padding.
        scale: the greatest absolute output.
    """

    difference: float
    scale: float
    tokens: int
    padding: int

    def __str__(self) -> str:
        return (
            f"{self.difference:.2g} at most, of outputs up to {self.scale:.3g}, on {self.tokens:,} tokens and "
            f"{self.padding:,} of padding"
        )


def head_output(output: Any) -> Tensor:
    """Return what the head of a model of transformers computes: its scores, which are (B, n, 2) for question answering.

    Of a model without a head it returns the hidden states (B, n, D).
    """
    if "start_logits" in output:
        return torch.stack([output.start_logits, output.end_logits], dim=-1)
    return output.logits if "logits" in output else output.last_hidden_state


def token_batches(
    data: Path, dictionary: Dictionary, length: int, start: int = 0, share: float = MASKED, sides: Iterable[str] = ("",)
) -> list[Tensor]:
    """Return a few batches (B, n) of a data-bin's text: ``start``, sentences that end in ``</s>``, ``<mask>``, padding.

    The samples of a batch grow up to ``length``. They are spread over the split ``valid``, or ``train`` if there is no ``valid``,
    and are the same each time. One of ``sides`` follows the split in the names of files of languages, as in ``valid.en-de.en``.

    Raises:
        FileNotFoundError: the folder has neither.
    """
    splits = [f"{split}{side}" for split in ("valid", "train") for side in sides]
    split = next((split for split in splits if all(file.exists() for file in files_of(data / split))), None)
    if split is None:
        raise FileNotFoundError(
            f"{data} has neither {' nor '.join(f'{split}.bin and .idx' for split in splits)}, on whose sentences the two models "
            "are compared: name the data-bin that the checkpoint was trained on"
        )
    ids, offsets = read(data / split, dictionary)
    generator = torch.Generator().manual_seed(0)
    samples = []
    items = np.linspace(0, len(offsets) - 1, num=BATCHES * SAMPLES, dtype=np.int64)
    for i, place in enumerate((offsets[items] // ids.itemsize).tolist()):
        count = max(1, length * (i % SAMPLES + 1) // SAMPLES - 1)
        words = torch.from_numpy(ids.take(range(place, place + count), mode="wrap").astype(np.int64))
        masked = (torch.rand(len(words), generator=generator) < share) & words.ne(dictionary.eos())
        words = words.masked_fill(masked, dictionary.index("<mask>"))
        samples.append(torch.cat([torch.tensor([start]), words]))
    return [pad_sequence(samples[i : i + SAMPLES], True, dictionary.pad()) for i in range(0, len(samples), SAMPLES)]


def random_batches(dictionary: Dictionary, lengths: list[int]) -> list[Tensor]:
    """Return, for each length n, 4 samples of random symbols with padding on the right: (4, n)."""
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
    """Compare two models on batches. Outputs are (B, …), or (B, n, …), which are compared where there is no padding."""
    differences, scales = [0.0], [0.0]
    for tokens in batches:
        with torch.no_grad():
            a, b = first(tokens).double(), second(tokens).double()
        if a.shape != b.shape:
            raise InputError(f"the two models' outputs have the shapes {tuple(a.shape)} and {tuple(b.shape)}")
        if a.dim() > 2 and a.shape[:2] == tokens.shape:
            real = tokens.ne(pad)
            a, b = a[real], b[real]
        differences.append((a - b).abs().nan_to_num(nan=torch.inf).max().item())
        scales.append(a.abs().max().item())
    real_tokens = sum(int(tokens.ne(pad).sum()) for tokens in batches)
    return Parity(max(differences), max(scales), real_tokens, sum(map(torch.numel, batches)) - real_tokens)
