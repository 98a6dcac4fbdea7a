"""What several tests share: running commands as a user does, and a small data-bin to run them on."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import fork_server
import pytest
import readme
import torch
from commands import environment
from world import World

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


@pytest.fixture(scope="session")
def world(tmp_path_factory) -> World:
    """What all tests share, in a folder that is the same for every worker of a run."""
    base = tmp_path_factory.getbasetemp()
    return World((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "world")


@pytest.fixture(scope="session")
def toy_text(world) -> Path:
    """A folder with train.txt (200 sentences) and valid.txt (40)."""
    return world.text


@pytest.fixture(scope="session")
def data_bin(world) -> Path:
    """The toy text as a data-bin for masked language modelling."""
    return world.data_bin


@pytest.fixture(scope="session")
def gpt2_bin(tmp_path_factory) -> Path:
    """A byte-level vocabulary with the two merges that make ``red`` and `` ball`` partly one piece."""
    from fairseq.data import Dictionary
    from fairseq.data.encoders.gpt2_bpe_utils import bytes_to_unicode

    folder = tmp_path_factory.mktemp("gpt2")
    pieces = [*bytes_to_unicode().values(), "re", "red"]
    (folder / "encoder.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
    (folder / "vocab.bpe").write_text("#version: 0.2\nr e\nre d\n", encoding="utf-8")
    dictionary = Dictionary()
    for number in range(len(pieces)):
        dictionary.add_symbol(str(number))
    dictionary.save(str(folder / "dict.txt"))
    return folder


@pytest.fixture(scope="session")
def wordpiece_bin(tmp_path_factory) -> Path:
    """BERT's cutting of words: letters, and letters inside a word, in lower case and without accents."""
    from fairseq.data import Dictionary

    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed: pip install -e '.[hf]'")
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    pieces = ["red", "ball", *letters, *(f"##{letter}" for letter in letters), *"“”,.€𝔘²"]
    model = tokenizers.models.WordPiece({piece: i for i, piece in enumerate(["[UNK]", *pieces])}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.enable_truncation(4)
    folder = tmp_path_factory.mktemp("wordpiece")
    tokenizer.save(str(folder / "tokenizer.json"))
    dictionary = Dictionary()
    for piece in reversed(pieces):
        dictionary.add_symbol(piece)
    dictionary.save(str(folder / "dict.txt"))
    return folder


@pytest.fixture
def as_program(monkeypatch, tmp_path) -> None:
    """``call_main`` reports errors as in a program of fairseq's, in a folder of its own, in which ``--save-dir`` is."""
    from fairseq_posenc.plugin.run import program_run

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(program_run, "_name_of_program", lambda: "fairseq-program")


@pytest.fixture(params=["", "from __future__ import annotations\n\n"], ids=["", "annotations-are-text"])
def my_schemes(request, tmp_path, monkeypatch) -> Iterator[Path]:
    """The scheme of docs/add_a_scheme.md as a package for ``--user-dir``; what a test imports of it is forgotten afterwards."""
    from fairseq.utils import import_user_module

    from fairseq_posenc.core.schemes.base import REGISTRY
    from fairseq_posenc.plugin.options.architectures import update_configs

    code = readme.blocks("# Add a scheme", "python", file="docs/add_a_scheme.md")[0]
    code = code.replace("from ..terms", "from fairseq_posenc").replace("from .base", "from fairseq_posenc")
    monkeypatch.delitem(REGISTRY, "decay", raising=False)  # in this package as well, where the document was followed
    folder = tmp_path / "my_schemes"
    folder.mkdir()
    (folder / "__init__.py").write_text(request.param + code, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(import_user_module, "memo", {*import_user_module.memo})
    yield folder
    REGISTRY.pop("decay", None)
    sys.modules.pop("my_schemes", None)
    update_configs()
