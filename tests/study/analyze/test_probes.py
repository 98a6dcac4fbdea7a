"""Linear probes of positions: what states that hold nothing, or the position itself, must give."""

import pytest
import torch

from fairseq_posenc.study.analyze.probes import batch_size, linear_probes

N = 24


def test_linear_probes_read_what_is_there():
    """A state that holds the position tells it and the order; noise tells neither."""
    torch.manual_seed(0)
    noise = torch.randn(40, N, 4)
    told = torch.cat([noise, torch.arange(float(N)).expand(40, N)[..., None]], dim=-1)
    found = linear_probes([noise, told])
    assert found["position"][0] < 0.05
    assert found["position"][1] == pytest.approx(1, abs=1e-3)
    assert found["error"][1] < 0.1
    assert abs(found["order"][0] - 0.5) < 0.2
    assert found["order"][1] > 0.95


def test_longer_sequences_are_read_in_smaller_batches():
    assert [batch_size(n) for n in (8, 128, 256, 2048)] == [8, 8, 2, 1]
