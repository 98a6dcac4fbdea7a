"""Every scheme's tiny model learns a small batch by heart."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairseq_posenc.core.transformer import Encoder, EncoderConfig

from .table import ROWS, Row, thoroughly

VOCABULARY, MASK = 32, 3
STEPS, RATE = 200, 5e-3
NEAR_ZERO = 0.1  # nats; chance is log(8) = 2.08


def masked_words() -> tuple[Tensor, Tensor]:
    """4 sequences of 16 distinct tokens, every other one masked; what was there is to be told from the order of the rest."""
    words = sequences()
    masked = torch.zeros(16, dtype=torch.bool)
    masked[1::2] = True
    return words.masked_fill(masked, MASK), words.masked_fill(~masked, -100)


def next_words() -> tuple[Tensor, Tensor]:
    """The same sequences, each token's label the one that follows; a bag of words can be learned by heart here."""
    words = sequences()
    return words, F.pad(words[:, 1:], (0, 1), value=-100)


def sequences() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    words = torch.arange(MASK + 1, VOCABULARY)
    return torch.stack([words[torch.randperm(len(words), generator=generator)[:16]] for _ in range(4)])


def best_loss(row: Row, batch: tuple[Tensor, Tensor], autocast: bool = False) -> float:
    """The lowest loss of a short training, which ends where the batch is known by heart."""
    torch.manual_seed(0)
    config = EncoderConfig(
        VOCABULARY,
        layers=2,
        dim=64,
        ffn_dim=128,
        heads=4,
        max_positions=16,
        positions=row.expression,
        position_options=row.options,
        dropout=0.0,
        attention_dropout=0.0,
    )
    encoder, output = Encoder(config), nn.Linear(64, VOCABULARY)
    of_positions = list(encoder.positions.parameters())
    others = [p for name, p in encoder.named_parameters() if not name.startswith("positions.")]
    groups = [{"params": [*others, *output.parameters()]}, {"params": of_positions, "lr": RATE * row.rate}]
    optimizer = torch.optim.Adam([group for group in groups if group["params"]], lr=RATE, fused=True)
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=10)
    tokens, labels = batch
    lowest = math.inf
    for _ in range(STEPS):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            logits = output(encoder(tokens).last_hidden_state)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        warm_up.step()
        lowest = min(lowest, loss.item())
        if lowest < NEAR_ZERO:
            break
    return lowest


@pytest.mark.parametrize(
    "row",
    thoroughly(
        (row for row in ROWS if row.tells_apart and "rope_factors" not in row.options),
        ["absolute", "tisa", "untied+t5+reset"],
    ),
)
def test_overfits(row: Row) -> None:
    assert best_loss(row, masked_words()) < NEAR_ZERO


@pytest.mark.parametrize("row", thoroughly((row for row in ROWS if not row.tells_apart), ["none"]))
def test_overfits_what_needs_no_order(row: Row) -> None:
    """At best, the 8 tokens of 8 masked positions that nothing distinguishes are equally likely at each."""
    assert best_loss(row, masked_words()) > 0.9 * math.log(8)
    assert best_loss(row, next_words()) < NEAR_ZERO


@pytest.mark.parametrize("row", [row for row in ROWS if "m4m" in row.expression], ids=lambda row: row.id)
def test_triple_product_overfits_under_bfloat16(row: Row) -> None:
    assert best_loss(row, masked_words(), autocast=True) < NEAR_ZERO
