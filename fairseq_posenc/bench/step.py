"""A training step of masked language modelling, by models of this package, of fairseq and of others."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .work import Shape, Work

FAIRSEQS = "roberta_base"  # fairseq's own
WORDS = 4  # the first symbol after fairseq's own: <s>, padding, </s>, unknown

Loss = Callable[[Tensor, Tensor], Tensor]
"""Tokens (B, n) and where they are predicted (B, n) -> the mean loss there."""


class Step(Work):
    """One model, its optimizer and a batch: zeroed gradients, loss, backward pass, Adam."""

    def __init__(self, model: nn.Module, loss: Loss, shape: Shape, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self.device, self.loss = device, loss
        self.model = model.to(device, dtype).train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4)
        generator = torch.Generator().manual_seed(1)
        tokens = torch.randint(WORDS, shape.symbols, (shape.sequences, shape.tokens), generator=generator)
        order = torch.randperm(shape.batch, generator=generator)
        self.tokens, self.masked = tokens.to(device), (order < shape.masked).view_as(tokens).to(device)

    def compute(self) -> Tensor:
        return self.loss(self.tokens, self.masked)

    def run(self) -> None:
        self.optimizer.zero_grad()
        self.compute().backward()
        self.optimizer.step()


def roberta(arch: str, shape: Shape, backend: str | None = None) -> tuple[nn.Module, Loss]:
    """Returns an architecture that fairseq knows, in its own class, and its loss; ``backend`` is for those of this package."""
    from ..models.building import build, dictionary_of

    options = Namespace(
        encoder_layers=shape.layers,
        encoder_embed_dim=shape.dim,
        encoder_ffn_embed_dim=shape.ffn_dim,
        encoder_attention_heads=shape.heads,
        max_positions=shape.tokens,
        **({} if backend is None else {"attention_backend": backend}),
    )
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = build(arch, options, dictionary_of(shape.symbols))

    def loss(tokens: Tensor, masked: Tensor) -> Tensor:
        logits, _ = model(tokens, masked_tokens=masked)
        return F.cross_entropy(logits.float(), tokens[masked])

    return model, loss
