"""A data-bin with a tokenizer, and training runs on it, each made once."""

import functools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import environment
from gpu_runs import OPTIONS, Trained
from on_device import FLAGS

Train = Callable[..., Trained]


@pytest.fixture(scope="session")
def data(world) -> Path:
    """dict.txt, sentencepiece.model and a little text."""
    return world.english


@pytest.fixture(scope="session")
def run() -> Callable[..., subprocess.CompletedProcess]:
    """``run(command, *arguments)`` in a process that is not forked, for a forked one cannot use a GPU."""

    def run(command, *arguments):
        words = [*map(str, (Path(sys.executable).with_name(command), *arguments))]
        done = subprocess.run(words, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, done.stdout
        return done

    return run


@pytest.fixture(scope="session")
def train(data, run, tmp_path_factory) -> Train:
    """``train(*flags, command=..., device=...)``: fairseq-train on the device of these tests."""

    @functools.cache
    def train(*flags, command=("fairseq-train",), device=tuple(FLAGS)):
        save_dir = tmp_path_factory.mktemp("checkpoints")
        return Trained(run(*command, data, *OPTIONS, *device, "--save-dir", save_dir, *flags).stdout, save_dir)

    return train


@pytest.fixture(scope="session")
def expected(train) -> Train:
    """``expected(*flags)``: the same in float32 on the CPU."""
    return functools.partial(train, "--no-save", device=("--cpu",))
