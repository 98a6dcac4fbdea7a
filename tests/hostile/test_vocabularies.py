"""A dictionary or tokenizer that is damaged ends every command that reads it in a sentence about it."""

import json
import os
import shutil

import pytest
import torch

from fairseq_posenc.cli import main
from fairseq_posenc.text.vocabulary import Sentencepiece

READING = ("glue", "squad", "export-hf")


@pytest.fixture
def damaged_bin(data_bin, tmp_path):
    """A copy of the data-bin, to be damaged."""
    return shutil.copytree(data_bin, tmp_path / "damaged", ignore=shutil.ignore_patterns("*.pt"))


@pytest.fixture
def refused(contents, damaged_bin, commands, data_bin, refusal, tmp_path):
    """``refused(command)``: what it says of the damaged data-bin."""

    def refused(command):
        torch.save(contents("roberta_tisa_tiny"), tmp_path / "whole.pt")
        arguments = commands[command](tmp_path / "whole.pt")
        return refusal(command, *[str(damaged_bin) if argument == str(data_bin) else argument for argument in arguments])

    return refused


DICTIONARIES = {
    "a symbol twice": lambda text: text + text.splitlines(keepends=True)[3],
    "not UTF-8": lambda text: text.encode() + b"\xe9\xe8 1\n",
    "a line without a count": lambda text: text + "word\n",
    "a count that is no number": lambda text: text + "word many\n",
    "an empty line": lambda text: "\n" + text,
    "other bytes": lambda text: os.urandom(999),
}


def write_damaged(folder, case):
    path = folder / "dict.txt"
    content = DICTIONARIES[case](path.read_text("utf-8"))
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.parametrize("command", READING)
@pytest.mark.parametrize("case", DICTIONARIES)
def test_dictionaries(command, case, damaged_bin, refused):
    write_damaged(damaged_bin, case)
    said = refused(command)
    assert "dict.txt cannot be read as a dictionary: " in said
    assert "copy the file again" in said


@pytest.mark.parametrize("case", DICTIONARIES)
def test_the_dictionary_of_a_released_model(case, contents, damaged_bin, refusal, tmp_path):
    torch.save(contents("roberta_base"), damaged_bin / "model.pt")
    write_damaged(damaged_bin, case)
    assert "dict.txt cannot be read" in refusal("import-hf", damaged_bin, "--out", tmp_path / "out" / "model.pt")


def test_an_empty_dictionary(damaged_bin, refused):
    (damaged_bin / "dict.txt").write_text("")
    assert "another vocabulary" in refused("glue")


SENTENCEPIECES = {
    "empty": lambda model: b"",
    "cut": lambda model: model[: len(model) // 2],
    "cut at its end": lambda model: model[:-1],
    "zeros": lambda model: bytes(999),
    "text": lambda model: b"the cat sat\n",
}


@pytest.mark.parametrize("command", READING)
@pytest.mark.parametrize("case", SENTENCEPIECES)
def test_sentencepiece(command, case, damaged_bin, refused):
    path = damaged_bin / "sentencepiece.model"
    path.write_bytes(SENTENCEPIECES[case](path.read_bytes()))
    assert "sentencepiece.model: not a sentencepiece model" in refused(command)


@pytest.mark.parametrize("case", SENTENCEPIECES)
def test_sentencepiece_for_prepare(case, damaged_bin, refusal, tmp_path):
    path = damaged_bin / "sentencepiece.model"
    path.write_bytes(SENTENCEPIECES[case](path.read_bytes()))
    with pytest.raises(ValueError, match="sentencepiece"):
        Sentencepiece(path.read_bytes())
    assert "not a sentencepiece model" in prepare(path, refusal, tmp_path)


def preparation(vocabulary, tmp_path) -> list[str]:
    """What follows ``prepare``, to prepare a little text with a vocabulary."""
    text, valid = tmp_path / "text.txt", tmp_path / "valid.txt"
    for path, documents in ((text, 9), (valid, 8)):
        path.write_text("red ball\n\n" * documents)
    return [str(text), "--valid", str(valid), "--vocabulary", str(vocabulary), "--out", str(tmp_path / "out"), "--workers", "1"]


def prepare(vocabulary, refusal, tmp_path) -> str:
    return refusal("prepare", *preparation(vocabulary, tmp_path))


@pytest.fixture
def library_bin(damaged_bin):
    """The data-bin with BERT's WordPiece in the place of sentencepiece."""
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed: pip install -e '.[hf]'")
    pieces = [line.split()[0] for line in (damaged_bin / "dict.txt").read_text("utf-8").splitlines()]
    model = tokenizers.models.WordPiece({piece: i for i, piece in enumerate(["[UNK]", *pieces])}, unk_token="[UNK]")
    tokenizers.Tokenizer(model).save(str(damaged_bin / "tokenizer.json"))
    (damaged_bin / "sentencepiece.model").unlink()
    return damaged_bin


PANICKING = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}  # the library's Rust code panics
LIBRARIES = {
    "a panic": {"normalizer": PANICKING},
    "another model": {"model": {"type": "Unigram", "unk_id": 5, "vocab": [["a", -1.0]]}},
    "no model": {"model": None},
    "an expression without an end": {
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(("}, "behavior": "Isolated", "invert": False}
    },
}


LIBRARY_CASES = [("a panic", command) for command in (*READING, "prepare")]
LIBRARY_CASES += [(case, command) for case in LIBRARIES if case != "a panic" for command in ("glue", "prepare")]


@pytest.mark.parametrize(("case", "command"), LIBRARY_CASES)
def test_tokenizers_library(case, command, library_bin, refused, refusal, tmp_path):
    path = library_bin / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **LIBRARIES[case]}))
    said = prepare(library_bin, refusal, tmp_path) if command == "prepare" else refused(command)
    assert "tokenizer.json cannot be read: " in said


def test_a_tokenizer_that_cannot_cut(library_bin, capsys, tmp_path):
    path = library_bin / "tokenizer.json"
    described = json.loads(path.read_text())
    described["model"]["unk_token"] = "nowhere"
    path.write_text(json.dumps(described))
    assert main(["prepare", *preparation(library_bin, tmp_path)]) == 2
    assert "cannot cut the text" in capsys.readouterr().err.splitlines()[-1]


@pytest.fixture
def gpt2_bin(damaged_bin):
    """The data-bin with GPT-2's byte-level BPE in the place of sentencepiece."""
    from fairseq.data.encoders.gpt2_bpe_utils import bytes_to_unicode

    pieces = [*bytes_to_unicode().values(), "re", "red"]
    (damaged_bin / "encoder.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
    (damaged_bin / "vocab.bpe").write_text("#version: 0.2\nr e\nre d\n", encoding="utf-8")
    symbols = (damaged_bin / "dict.txt").read_text("utf-8").splitlines()
    (damaged_bin / "dict.txt").write_text("".join(f"{i} 1\n" for i in range(len(symbols) - 1)) + "<mask> 1\n")
    (damaged_bin / "sentencepiece.model").unlink()
    return damaged_bin


@pytest.mark.parametrize("command", ["glue", "prepare"])
@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("encoder.json", b""),
        ("encoder.json", b"[]"),
        ("encoder.json", b'{"a": "b"}'),
        ("encoder.json", b"\xff"),
        ("encoder.json", b"{}"),
        ("vocab.bpe", b"#version\nr e d\n"),
        ("vocab.bpe", b"#version\nx y\n"),
        ("vocab.bpe", b"\xff\n\xfe"),
    ],
)
def test_gpt2_files(command, file, content, gpt2_bin, refused, refusal, tmp_path):
    (gpt2_bin / file).write_bytes(content)
    said = prepare(gpt2_bin, refusal, tmp_path) if command == "prepare" else refused(command)
    assert "encoder.json" in said or "vocab.bpe" in said


def test_gpt2_files_that_are_whole(gpt2_bin, tmp_path):
    assert main(["prepare", *preparation(gpt2_bin, tmp_path)]) == 0
