"""A small vocabulary and checkpoints of small models, which the fine-tuning tests share."""

from collections.abc import Callable
from pathlib import Path

import fairseq  # noqa: F401 - registers the plugin
import fork_server
import pytest
from commands import environment

from fairseq_posenc.study.engine import grid


@pytest.fixture(autouse=True)
def forked(monkeypatch):
    """The commands of runs in processes that are forked for them, which need no time to import PyTorch."""

    def execute(command, log, variables=None, locks=(), watch=None):
        done = fork_server.run(command[1:], environment=environment(**(variables or {})), timeout=600)
        with log.open("a") as stream:
            stream.write(done.stdout)
        return done.returncode, done.stdout

    monkeypatch.setattr(grid, "execute", execute)


@pytest.fixture
def untrained(monkeypatch):
    """No run's command is started; raises an error where one would be."""

    def execute(*_, **__):
        raise AssertionError("a run is trained")

    monkeypatch.setattr(grid, "execute", execute)


@pytest.fixture(scope="session")
def data_bin(world) -> Path:
    """dict.txt, sentencepiece.model and a little text."""
    return world.english


@pytest.fixture(scope="session")
def pretrain(world) -> Callable[..., Path]:
    """``pretrain(arch, *flags)``: a checkpoint of one update of fairseq's trainer on a two-layer model of width 32."""
    return lambda arch="roberta_tisa_tiny", *flags: world.checkpoint(arch, *flags)


@pytest.fixture(scope="session")
def checkpoint(pretrain) -> Path:
    """A checkpoint of a TISA model."""
    return pretrain()
