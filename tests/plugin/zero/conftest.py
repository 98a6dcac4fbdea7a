"""Training runs that the tests of this folder share; each costs seconds, so that one serves many assertions.

Launchers, 16 bits, offloading, Hydra, every pair of stages, and kills at many moments take longer, and run with

    bash scripts/test.sh tests/plugin/zero -m slow
"""

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
from training_runs import OPTIONS, PLAIN, UPDATES, Training, call, launcher, make_english

WORDS = 7750  # of text, which gives 31 updates per epoch: an odd number, so that one of --update-freq 2 is shorter

Train = Callable[..., Training]


@pytest.fixture(scope="session")
def english_data_bin(tmp_path_factory) -> Path:
    return make_english(tmp_path_factory.mktemp("english"), WORDS)


@pytest.fixture(scope="session")
def train(english_data_bin, tmp_path_factory) -> Train:
    """``train(*flags, launch=..., save_dir=..., updates=..., status=0, data=...)`` trains on English and waits for the end."""

    def train(*flags, launch=PLAIN, save_dir=None, updates=UPDATES, status=0, options=OPTIONS, data=english_data_bin):
        save_dir = save_dir or tmp_path_factory.mktemp("checkpoints")
        done = call(*launch, data, *options, "--save-dir", save_dir, "--max-update", updates, *flags)
        assert done.returncode == status, done.stdout[-20000:]
        return Training(done.stdout, save_dir)

    return train


@pytest.fixture(scope="session")
def fairseq_run(train) -> Training:
    """fairseq's own data-parallel training by two processes, without DeepSpeed."""
    return train("--no-save")


@pytest.fixture(scope="session")
def sharded_run(train) -> Callable[..., Training]:
    """``sharded_run(stage, *flags)``: the same by ZeRO, with a checkpoint halfway."""

    @functools.cache
    def run(stage, *flags):
        flags = ("--deepspeed-config", f"zero{stage}", "--save-interval-updates", UPDATES // 2, *flags)
        return train(*flags, launch=launcher())

    return run
