"""The task and the criterion ``squad``."""

import math

import numpy as np
import pytest
import torch
from fairseq import metrics
from fairseq.data import Dictionary
from torch.nn import functional as F

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.plugin.batches.squad import SquadConfig, SquadCriterion, SquadTask, mask_scores
from fairseq_posenc.text.data.databin import DatabinWriter

WINDOWS = [[0, 5, 2, 2, 6, 7, 8, 2], [0, 5, 2, 2, 6, 2]]
SPANS = np.array([[4, 5, 6], [4, 0, 0]], dtype=np.int32)


@pytest.fixture
def data(tmp_path):
    dictionary = Dictionary()
    for letter in "abcdef":
        dictionary.add_symbol(letter)
    dictionary.save(str(tmp_path / "dict.txt"))
    with DatabinWriter(tmp_path / "train", np.dtype(np.uint16), len(dictionary)) as writer:
        for window in WINDOWS:
            writer.add(np.array(window), np.array([len(window)]))
        writer.finish()
    np.save(tmp_path / "train.spans.npy", SPANS)
    return tmp_path


@pytest.fixture
def task(data):
    return SquadTask.setup_task(SquadConfig(data=str(data), seed=1))


def test_batches(task):
    dataset = task.load_dataset("train")
    batch = dataset.collater([dataset[0], dataset[1]])
    assert batch["net_input"]["src_tokens"].tolist() == [WINDOWS[0], [*WINDOWS[1], 1, 1]]
    assert batch["target"].tolist() == SPANS.tolist()


def test_files_that_do_not_belong_together(task, data):
    with pytest.raises(FileNotFoundError, match=r"valid\.bin"):
        task.load_dataset("valid")
    outside = SPANS + np.array([[0, 0, 2], [0, 0, 0]])
    for wrong in (SPANS[:1], SPANS + 0.5, -SPANS, outside.astype(np.int32), None):
        np.save(data / "train.spans.npy", SPANS if wrong is None else wrong)
        if wrong is None:
            (data / "train.spans.npy").write_bytes(b"\x93NUMPY")
        with pytest.raises(InputError, match=r"train\.spans\.npy .* 2 windows"):
            task.load_dataset("train")


def test_only_the_context_and_the_start_can_be_answers():
    lengths = torch.tensor([len(window) for window in WINDOWS])
    masked = mask_scores(torch.zeros(2, 8, 2), lengths, torch.tensor([4, 4]))
    allowed = [[i for i in range(8) if masked[row, i, 0] == 0] for row in range(2)]
    assert allowed == [[0, 4, 5, 6], [0, 4]]
    assert torch.equal(masked[..., 0], masked[..., 1])


def test_empty_batches_of_validation_count_nothing(task):
    """As fairseq-validate gives them to processes among which the batches do not divide evenly."""
    empty = task.valid_step({}, None, SquadCriterion(task))
    assert empty == (0, 0, {})
    logged = {"loss": torch.tensor(math.log(2)), "ncorrect": torch.tensor(1), "ntokens": 8, "nsentences": 2, "sample_size": 2}
    with metrics.aggregate(new_root=True) as values:
        task.reduce_metrics([logged, empty[2]], SquadCriterion(task))
    assert values.get_smoothed_values()["accuracy"] == 50
    assert values.get_smoothed_values()["loss"] == 0.5


def test_criterion_against_a_sum_by_hand(task):
    dataset = task.load_dataset("train")
    sample = dataset.collater([dataset[0], dataset[1]])
    torch.manual_seed(0)
    scores = torch.randn(2, 8, 2)
    loss, size, logged = SquadCriterion(task)(lambda src_tokens, src_lengths: (scores, None), sample)
    expected = 0.0
    for row, places, (_, first, last) in zip(range(2), ([0, 4, 5, 6], [0, 4]), SPANS.tolist(), strict=True):
        for side, answer in ((0, first), (1, last)):
            chances = F.softmax(scores[row, places, side], dim=0)
            expected -= math.log(chances[places.index(answer)]) / 2
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert size == 2
    assert logged["nsentences"] == 2
