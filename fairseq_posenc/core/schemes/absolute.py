"""Learned absolute positions, as in BERT and RoBERTa (Devlin et al. 2019)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..terms import Window
from .base import Scheme, Settings, register


@register
class Absolute(Scheme):
    """``x_i = w_i + p_i``: one learned vector per position, added to the word embeddings.

    ``weight`` is (n, D). Positions count the tokens that are not padding, from 0. It decays, as in BERT's code, which exempts
    norms and biases alone.
    """

    name = "absolute"
    equation = "x_i = w_i + p_i"
    source = "Devlin et al. 2019"
    family, advice = "added to word embeddings", "the positions of released BERT and RoBERTa; learns word order late from scratch"
    honours = ()
    inductive = translation_invariant = interpretable = False
    position_vectors = decays = ("weight",)

    def __init__(self, settings: Settings, options: Scheme.Options) -> None:
        super().__init__(settings, options)
        self.weight = nn.Parameter(torch.empty(settings.max_positions, settings.embedding_dim))
        nn.init.normal_(self.weight, std=0.02)

    def embed(self, window: Window, tokens: Tensor | None) -> Tensor:
        self.require_rows(window)
        return F.embedding(window.query_positions, self.weight)
