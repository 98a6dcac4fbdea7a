"""The two configs of examples/pretraining: the second goes on where the first ends."""

import pytest
import readme
import yaml

SHORT, LONG = (yaml.safe_load((readme.ROOT / f"examples/pretraining/{name}.yaml").read_text()) for name in ("short", "then_long"))


def test_they_are_one_run_but_for_the_length():
    changed = {
        "task": {"tokens_per_sample": (128, 512)},
        "dataset": {"batch_size": (48, 12), "required_batch_size_multiple": (None, 1)},
        "checkpoint": {"save_dir": ("checkpoints", "checkpoints-long"), "finetune_from_model": (None, "???")},
        "common": {"tensorboard_logdir": ("tensorboard", "tensorboard-long")},
        "optimization": {"lr": ([1e-4], [1e-5]), "max_update": (450_000, 50_000)},
        "lr_scheduler": {"warmup_updates": (10_000, 0), "total_num_update": (500_000, 50_000)},
    }
    for section, short in SHORT.items():
        long = LONG[section]
        if isinstance(short, dict):
            names = short.keys() | long.keys()
            found = {name: (short.get(name), long.get(name)) for name in names if short.get(name) != long.get(name)}
            assert found == changed.get(section, {}), section
        else:
            assert short == long
    assert SHORT.keys() == LONG.keys()


def test_tokens_per_update_and_the_learning_rate_go_on():
    sizes = [config["task"]["tokens_per_sample"] * config["dataset"]["batch_size"] for config in (SHORT, LONG)]
    assert sizes[0] == sizes[1]
    schedule, done = SHORT["lr_scheduler"], SHORT["optimization"]["max_update"]
    left = (schedule["total_num_update"] - done) / (schedule["total_num_update"] - schedule["warmup_updates"])
    assert LONG["optimization"]["lr"][0] == pytest.approx(SHORT["optimization"]["lr"][0] * left, rel=0.05)
    assert done + LONG["optimization"]["max_update"] == schedule["total_num_update"]
