"""Absolute positions that restart at every sentence of a packed sample (Huang et al. 2021, section 5.2)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import InputError
from ..terms import Sample, Window
from .absolute import Absolute
from .base import option, register


def within_sentences(tokens: Tensor, positions: Tensor, separator: int, first: int) -> Tensor:
    """(B, n) tokens and their positions in the document -> (B, n) positions in their sentences.

    Positions restart with every document and after every separator, which ends its sentence: at ``first``, or at 0 where a
    document begins with the symbol that the row begins with, ``<s>``.
    """
    index = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    begins = F.pad(tokens[:, :-1] == separator, (1, 0)) | (positions == 0)
    starts = torch.where(begins, index, 0).cummax(dim=1).values
    from_zero = (positions == 0) & (tokens == tokens[:, :1])
    return index - starts + first * ~from_zero.gather(1, starts)


@register
class SentenceAbsolute(Absolute):
    """``x_i = w_i + p_t`` where t is the position within the sentence. ``weight`` is (n, D).

    The first word of every sentence is at 1: in the first sentence of a sample, or of an example in a row of several, ``<s>`` is
    at 0.
    """

    name = "sentence_absolute"
    equation = "x_i = w_i + p_{position in sentence}"
    source = "Huang et al. 2021, §5.2"
    decoder = False

    @dataclass(frozen=True)
    class Options:
        first: int = option("position of the word after a separator", 1, minimum=0, maximum=1)

    def embed(self, window: Window, sample: Sample) -> Tensor:
        if sample.tokens is None or self.settings.separator is None:
            raise InputError("sentence_absolute finds sentences by their separator token, so it needs tokens, not embeddings")
        self.require_length(window.keys)
        position_ids = within_sentences(sample.tokens, sample.positions, self.settings.separator, self.options.first)
        return F.embedding(position_ids, self.weight)
