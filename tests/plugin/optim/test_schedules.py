"""--lr-scheduler warmup_stable_decay and --batch-warmup-updates."""

import math
import shutil

import pytest
import torch
from fairseq.data.iterators import CountingIterator
from fairseq.logging import metrics
from fairseq.optim import build_optimizer
from fairseq.optim.lr_scheduler import build_lr_scheduler
from omegaconf import OmegaConf
from torch import nn

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.plugin.batches.batch_warmup import Groups, micro_batches

from .conftest import optimizer, schedule


def scheduler(lr=(0.5,), **options):
    config = OmegaConf.create({"_name": "warmup_stable_decay", "lr": list(lr), **options})
    return build_lr_scheduler(config, build_optimizer(optimizer("stable_adamw"), [nn.Parameter(torch.ones(1))]))


@pytest.mark.parametrize(("shape", "fall"), [("sqrt", math.sqrt), ("linear", float)])
def test_the_three_phases(shape, fall):
    phases = scheduler(warmup_updates=4, decay_updates=8, max_update=20, decay_shape=shape)
    rates = [phases.step_update(updates) for updates in range(22)]
    assert rates[:4] == pytest.approx([0.125, 0.25, 0.375, 0.5])
    assert rates[4:13] == [0.5] * 9
    assert rates[12:21] == pytest.approx([0.5 * (1 - fall(i / 8)) for i in range(9)])
    assert rates[20:] == [0, 0]
    assert phases.optimizer.get_lr() == 0


def test_without_decay_it_stays():
    phases = scheduler(max_update=0)
    assert [phases.step_update(updates) for updates in (0, 5, 10**9)] == [0.5] * 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decay_updates": 5, "max_update": 0}, "--decay-updates 5"),
        ({"decay_updates": 5, "warmup_updates": 6, "max_update": 10}, "--warmup-updates 6"),
        ({"warmup_updates": -1, "max_update": 10}, "--warmup-updates"),
        ({"lr": (0.5, 0.1), "max_update": 10}, "--lr"),
    ],
)
def test_what_the_schedule_refuses(options, message):
    with pytest.raises(InputError, match=message):
        scheduler(**options)


def test_a_decay_starts_from_a_checkpoint_of_the_stable_phase(train, tmp_path):
    train("plain", "stable", schedule(2, 0, 6))
    (tmp_path / "decayed").mkdir()
    shutil.copy(tmp_path / "stable" / "checkpoint_last.pt", tmp_path / "decayed")
    decayed, whole = train("plain", "decayed", schedule(2, 4, 10)), train("plain", "whole", schedule(2, 4, 10))
    assert [row["lr"] for row in decayed.curve if "lr" in row][-1] < 0.01
    for name, value in whole.checkpoint["model"].items():
        assert torch.equal(value, decayed.checkpoint["model"][name]), name


def test_each_number_of_micro_batches_has_as_many_updates():
    assert [micro_batches(3, 6, update) for update in range(9)] == [1, 1, 2, 2, 3, 3, 3, 3, 3]
    assert [micro_batches(2, 5, update) for update in range(6)] == [1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize(("skip", "last"), [(False, [[9, 10, 11], [12, 13]]), (True, [[9, 10, 11]])])
def test_groups_grow_and_resume(skip, last):
    whole = [[0], [1], [2, 3], [4, 5], [6, 7, 8], *last]
    batches = CountingIterator(range(14))
    groups = Groups(batches, 3, skip, warmup=6, updates=0)
    assert len(groups) == len(whole)
    assert list(groups) == whole
    assert not batches.has_next()
    batches = CountingIterator(range(14)).skip(2)
    resumed = Groups(batches, 3, skip, warmup=6, updates=2)
    assert (resumed.n, len(resumed)) == (2, len(whole))
    assert list(resumed) == whole[2:]


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("place", [3, 4, 5, 13])
def test_groups_go_on_at_a_place_that_none_ends_at(place, skip):
    batches = CountingIterator(range(16)).skip(place)
    groups = Groups(batches, 4, skip, warmup=0, updates=place)
    read = list(groups)
    full, rest = divmod(16 - place, 4)
    assert [*map(len, read)] == [4] * full + [rest] * (rest > 0 and not (skip and full))
    assert [batch for group in read for batch in group] == [*range(place, place + sum(map(len, read)))]
    assert not groups.has_next()
    assert not batches.has_next()


def test_waiting_for_growing_groups_is_logged():
    with metrics.aggregate(new_root=True) as logged:
        list(Groups(CountingIterator(range(4)), 2, warmup=2, updates=0))
    assert "data_wait" in logged.get_smoothed_values()


@pytest.mark.parametrize("step", ["plain", pytest.param("fast", marks=pytest.mark.thorough)])
def test_batches_grow_in_a_training_that_resumes(step, train):
    values = {"optimization.update_freq": [3], "optimization.batch_warmup_updates": 6, "common.log_interval": 1}
    values |= {"task.sample_break_mode": "eos", "dataset.batch_size": 2}
    whole = train(step, "whole", {**values, "optimization.max_update": 7})
    assert [row["bsz"] for row in whole.curve[:7]] == [2, 2, 4, 4, 6, 6, 6]
    train(step, "parts", {**values, "optimization.max_update": 3})
    parts = train(step, "parts", {**values, "optimization.max_update": 7})
    assert [row["bsz"] for row in parts.curve[:4]] == [4, 6, 6, 6]
    for name, value in whole.checkpoint["model"].items():
        assert torch.equal(value, parts.checkpoint["model"][name]), name
