"""A small vocabulary and checkpoints of small models, which the fine-tuning tests share."""

import json
from collections.abc import Callable
from pathlib import Path

import fairseq  # noqa: F401 - registers the plugin
import fork_server
import pytest
from commands import environment
from fairseq.data import Dictionary

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
def gpt2_bin(tmp_path_factory) -> Path:
    """A byte-level vocabulary with the two merges that make ``red`` and `` ball`` partly one piece."""
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


@pytest.fixture(scope="session")
def pretrain(world) -> Callable[..., Path]:
    """``pretrain(arch, *flags)``: a checkpoint of one update of fairseq's trainer on a two-layer model of width 32."""
    return lambda arch="roberta_tisa_tiny", *flags: world.checkpoint(arch, *flags)


@pytest.fixture(scope="session")
def checkpoint(pretrain) -> Path:
    """A checkpoint of a TISA model."""
    return pretrain()
