"""Probes of positions: what models without positions, or with nothing else, must give."""

import pytest
import torch
from encoders import encoder_of

from fairseq_posenc.study.analyze.probes import batch_size, identical_words, linear_probes, locality, swap_sensitivity, symmetry

N = 24


@pytest.fixture
def sequences():
    torch.manual_seed(1)
    return torch.randint(3, 30, (16, N))


def test_locality_and_symmetry_by_hand():
    p = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.6, 0.3], [0.0, 0.0, 1.0]])
    rows = [0.5 + 0.25 / 2 + 0.25 / 4, 0.1 / 2 + 0.6 + 0.3 / 2, 1.0]
    assert locality(p).item() == pytest.approx(sum(rows) / 3)
    assert symmetry(p).item() == pytest.approx(1 - 0.2 / 0.4)  # only the middle word has one on either side


def test_without_positions_identical_words_get_the_same():
    found = identical_words(encoder_of("none", max_positions=N), torch.tensor([5, 9]), (0, 2), N)
    assert found["symmetry"].flatten().tolist() == pytest.approx([1] * 4)
    assert found["invariance"].flatten().tolist() == pytest.approx([1] * 4)


def test_translation_invariance_is_seen_where_it_is():
    """With a bias of the offset alone, a row is the same function but for what softmax leaves out at the borders."""
    words, ends = torch.tensor([5, 9]), (0, 2)
    relative = identical_words(encoder_of("t5", max_positions=N), words, ends, N)
    absolute = identical_words(encoder_of("absolute", max_positions=N), words, ends, N)
    assert relative["invariance"][0].min() > 0.8
    assert absolute["invariance"][0].max() < 0.5


def test_a_swap_changes_nothing_without_positions(sequences):
    assert swap_sensitivity(encoder_of("none", max_positions=N), sequences) == pytest.approx({1: 0, 4: 0, 16: 0}, abs=1e-9)
    changes = swap_sensitivity(encoder_of("absolute", max_positions=N), sequences)
    assert min(changes.values()) > 1e-3


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
