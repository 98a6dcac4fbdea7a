"""What several tests share: running commands as a user does, and a small data-bin to run them on."""

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import fork_server
import pytest
import readme
import torch
from commands import environment

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is imported, which runs kernels on the CPU then

Run = Callable[..., subprocess.CompletedProcess]


@pytest.fixture
def nan_memory() -> Iterator[None]:
    """Uninitialised memory holds NaN, so that reading it cannot pass unseen."""
    torch.use_deterministic_algorithms(True, warn_only=True)  # see torch.utils.deterministic.fill_uninitialized_memory
    assert all(x.isnan().all() for x in (torch.empty(3), torch.empty_like(torch.ones(3)), torch.ones(()).new_empty(3)))
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="session")
def run() -> Run:
    """``run(command, *arguments, processes=1, cwd=..., check=..., limit=..., **environment variables)``

    runs a command of this environment in a process forked for it, or in several as torchrun does; see :mod:`fork_server`. What it
    writes, to either stream, is in ``stdout``. ``limit`` is in seconds.
    """
    scripts = Path(sys.executable).parent

    def run(command, *arguments, processes=1, cwd=None, check=True, limit=600, **variables):
        program = [fork_server.RANKS, processes] if processes > 1 else []
        program += [scripts / command] if command != "python" else []
        completed = fork_server.run([*program, *arguments], cwd=cwd, environment=environment(**variables), timeout=limit)
        if check:
            assert completed.returncode == 0, completed.stdout
        return completed

    return run


def write_sentences(path: Path, count: int, seed: int) -> None:
    """``count`` lines of a language of 40 words in which each word is followed by one of three."""
    rng = random.Random(seed)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(count):
            word = rng.randrange(40)
            words = []
            for _ in range(rng.randint(4, 12)):
                words.append(f"w{word}")
                word = (2 * word + rng.randrange(3)) % 40
            print(*words, file=file)


@pytest.fixture(scope="session")
def toy_text(tmp_path_factory) -> Path:
    """A folder with train.txt (200 sentences) and valid.txt (40)."""
    folder = tmp_path_factory.mktemp("text")
    write_sentences(folder / "train.txt", 200, seed=0)
    write_sentences(folder / "valid.txt", 40, seed=1)
    return folder


@pytest.fixture(scope="session")
def data_bin(toy_text, tmp_path_factory, run) -> Path:
    """The toy text as a data-bin for masked language modelling."""
    folder = tmp_path_factory.mktemp("data") / "data-bin"
    texts = ["--trainpref", toy_text / "train.txt", "--validpref", toy_text / "valid.txt"]
    run("fairseq-preprocess", "--only-source", *texts, "--destdir", folder)
    return folder


@pytest.fixture
def as_program(monkeypatch) -> None:
    """``call_main`` reports errors as in a program of fairseq's."""
    from fairseq_posenc import pipeline

    monkeypatch.setattr(pipeline, "_name_of_program", lambda: "fairseq-program")


@pytest.fixture(params=["", "from __future__ import annotations\n\n"], ids=["", "annotations-are-text"])
def my_schemes(request, tmp_path, monkeypatch) -> Iterator[Path]:
    """The README's scheme as a package of its own, for ``--user-dir``; what a test imports of it is forgotten afterwards."""
    from fairseq.utils import import_user_module

    from fairseq_posenc.models.architectures import update_configs
    from fairseq_posenc.schemes.base import REGISTRY

    code = readme.blocks("### Add a scheme", "python")[0]
    code = code.replace("from ..terms", "from fairseq_posenc.terms").replace("from .base", "from fairseq_posenc.schemes")
    folder = tmp_path / "my_schemes"
    folder.mkdir()
    (folder / "__init__.py").write_text(request.param + code, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(import_user_module, "memo", {*import_user_module.memo})
    yield folder
    REGISTRY.pop("decay", None)
    sys.modules.pop("my_schemes", None)
    update_configs()
