"""Dropout's random bits: how many entries are kept, and that each is as likely as every other, and apart from them."""

import pytest
import torch
from torch import Tensor

from fairseq_posenc.core.attention.dropout import draw, kept_scale


def drawn(*shape: int, rate: float) -> Tensor:
    kept = torch.empty(shape, dtype=torch.bool)
    draw(kept, rate)
    return kept


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_the_share_that_is_kept(rate: float) -> None:
    torch.manual_seed(0)
    kept = drawn(41, 37, 29, rate=rate)  # an odd number of entries
    assert abs(kept.double().mean() - (1 - rate)) < 4 * (rate * (1 - rate) / kept.numel()) ** 0.5
    assert abs(kept_scale(rate) * (1 - rate) - 1) < 2e-4


def test_entries_are_independent() -> None:
    """Four entries come of one random number."""
    torch.manual_seed(0)
    kept = drawn(200_000, 4, rate=0.5).double()
    torch.testing.assert_close(torch.corrcoef(kept.T), torch.eye(4, dtype=torch.float64), rtol=0, atol=0.01)
    torch.testing.assert_close(kept.mean(0), torch.full((4,), 0.5, dtype=torch.float64), rtol=0, atol=0.01)


def test_at_the_ends() -> None:
    assert drawn(1000, rate=1e-9).all()
    assert kept_scale(1e-9) == 1
    assert drawn(1000, rate=1.0).sum() <= 1  # and these are multiplied by 0
    assert kept_scale(1.0) == 0


def test_the_same_seed_draws_the_same() -> None:
    torch.manual_seed(1)
    first = drawn(7, 5, rate=0.5)
    assert not drawn(7, 5, rate=0.5).equal(first)
    torch.manual_seed(1)
    assert drawn(7, 5, rate=0.5).equal(first)
