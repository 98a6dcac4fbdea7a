"""Sinusoidal absolute positions (Vaswani et al. 2017, section 3.5)."""

import math

import torch
from torch import Tensor

from ..terms import Window
from .base import Scheme, option, register


def vaswani(positions: Tensor, dim: int) -> Tensor:
    """``PE(p, 2t) = sin(p / 10000^(2t/D))``, ``PE(p, 2t+1) = cos(p / 10000^(2t/D))``; (…) -> (…, D), float64."""
    even = torch.arange(0, dim, 2, device=positions.device, dtype=torch.float64)
    angles = positions.to(torch.float64)[..., None] * 10000 ** (-even / dim)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[..., :dim]


def fairseq(positions: Tensor, dim: int) -> Tensor:
    """fairseq's own table: sines in the first half, cosines in the second, ``D/2 - 1`` for ``D/2``, first position 2."""
    half = dim // 2
    exponents = torch.arange(half, device=positions.device, dtype=torch.float64) / max(half - 1, 1)
    angles = (positions + 2).to(torch.float64)[..., None] * torch.exp(-math.log(10000) * exponents)
    return torch.cat([angles.sin(), angles.cos(), angles.new_zeros(*positions.shape, dim % 2)], dim=-1)


LAYOUTS = {"vaswani": vaswani, "fairseq": fairseq}


@register
class Sinusoidal(Scheme):
    """``x_i = w_i·√D + PE(i)`` up to a common factor, which the LayerNorm of the embeddings removes.

    The paper multiplies the word embeddings by √D before it adds the table; encoders like BERT do not, and a table
    of sines is far larger than word embeddings of standard deviation 0.02. So the table is divided by √D instead,
    which is the same model after the embedding's LayerNorm, and where the sum is multiplied by √D (``transformer_…``). With
    ``--no-layernorm-embedding`` alone, the first layer's input is √D times smaller than the paper's. No parameters.
    """

    name = "sinusoidal"
    equation = "x_i = w_i + PE(i)/√D"
    source = "Vaswani et al. 2017, §3.5"
    family, advice = "added to word embeddings", "no parameters; loses much beyond the length of training"
    honours = ()
    data_driven = translation_invariant = interpretable = False

    class Options:
        layout: str = option("order and frequencies of the sinusoids", "vaswani", choices=tuple(LAYOUTS))

    def embed(self, window: Window, tokens: Tensor | None) -> Tensor:
        table = self.of_positions(self._table, window)
        return (table[None] if table.dim() == 2 else table)[:, window.start :]

    def _table(self, positions: Tensor) -> Tensor:
        dim = self.settings.embedding_dim
        return LAYOUTS[self.options.layout](positions, dim) / math.sqrt(dim)
