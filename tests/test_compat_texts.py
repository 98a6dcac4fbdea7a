"""fairseq-preprocess and fairseq-score: whatever the user can mend ends in one sentence and status 2."""

import argparse
import io
import subprocess
import sys
from pathlib import Path

import pytest
from commands import environment
from fairseq_cli import preprocess, score

from fairseq_posenc.compat import texts

TEXT = "a b c d e\nb c d e a\nc d e a b\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("train.src", "train.tgt", "three.txt"):
        Path(name).write_text(TEXT)
    Path("two.txt").write_text(TEXT[:20])
    Path("latin.txt").write_bytes(b"a b\nc caf\xe9\n")
    Path("empty.txt").touch()
    Path("dict.txt").write_text("a 1\na 1\n")
    (tmp_path / "used").mkdir()
    (tmp_path / "used/dict.src.txt").touch()
    return tmp_path


@pytest.fixture
def said(folder, monkeypatch, capsys):
    """``said(module, flags)``: the program's status, and the last line of its standard error, without its name."""

    def said(module, flags):
        name = f"fairseq-{module.__name__.rpartition('.')[2]}"
        monkeypatch.setattr(sys, "argv", [f"/anywhere/{name}", *flags.split()])
        status = 0
        try:
            module.cli_main()
        except SystemExit as left:
            status = left.code
        shown = capsys.readouterr()
        if not status:
            return 0, shown.out
        own, _, sentence = shown.err.splitlines()[-1].partition(": ")
        assert own == name
        return status, sentence

    return said


BOTH = "-s src -t tgt --trainpref train"
NOT_UTF8 = "latin.txt, line 2, byte 6: not UTF-8 (invalid continuation byte, 0xe9). Convert the file first"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--destdir out", "--trainpref must be set if --srcdict is not specified"),
        (f"{BOTH} --destdir out --validpref none", "--validpref none: there is no file none.src"),
        (f"{BOTH} --destdir used", "used/dict.src.txt is there already: remove it, name another --destdir, or use it, with"),
        (f"{BOTH} --destdir three.txt", "three.txt: File exists"),
        (f"{BOTH} --destdir three.txt/out", "three.txt/out: Not a directory"),
        (f"{BOTH} --destdir out --srcdict none", "There is no dictionary none"),
        (f"{BOTH} --destdir out --srcdict dict.txt", "dict.txt cannot be read as a dictionary: Duplicate word found"),
        (f"{BOTH} --destdir out --joined-dictionary --srcdict a --tgtdict b", "cannot use both --srcdict and --tgtdict"),
        (f"{BOTH} --destdir out --workers 0", "--workers 0: at least 1 is needed"),
        ("--only-source --trainpref latin.txt --destdir out", NOT_UTF8),
        ("--only-source --trainpref . --destdir out", ".: Is a directory"),
        ("--only-source --trainpref three.txt --destdir out --user-dir none", "--user-dir /"),
    ],
)
def test_what_preprocess_cannot_use(flags, message, said, folder):
    before = preprocess.main
    status, sentence = said(preprocess, flags)
    assert (status, sentence[: len(message)]) == (2, message)
    assert preprocess.main is before


def test_preprocess_leaves_no_half_of_a_data_bin_behind(said, folder):
    said(preprocess, f"{BOTH} --destdir out --validpref none")
    assert not (folder / "out").exists()
    assert said(preprocess, f"{BOTH} --destdir out --validpref none --dict-only")[0] == 0
    assert (folder / "out/dict.src.txt").exists()


@pytest.fixture
def scoring(monkeypatch):
    """fairseq-score as it is where it is the program."""
    for name, value in {"argparse": argparse, "sys": sys, "open": open}.items():
        monkeypatch.setattr(score, name, value, raising=False)
    texts.score_in_sentences()
    return score


@pytest.mark.parametrize("flags", ["", " --sentence-bleu", " --sacrebleu"])
@pytest.mark.parametrize(
    ("files", "message"),
    [
        ("--sys none.txt --ref three.txt", "none.txt: No such file or directory"),
        ("--sys three.txt --ref none.txt", "none.txt: No such file or directory"),
        ("--sys three.txt --ref .", ".: Is a directory"),
        ("--sys two.txt --ref three.txt", "--sys two.txt has 2 lines, and --ref three.txt has 3: each line needs its reference"),
        ("--sys three.txt --ref two.txt", "--sys three.txt has 3 lines, and --ref two.txt has 2: each line needs its reference"),
        ("--sys empty.txt --ref empty.txt", "--sys empty.txt has 0 lines, and"),
        ("--sys latin.txt --ref two.txt", NOT_UTF8),
        ("--sys two.txt --ref latin.txt", NOT_UTF8),
    ],
)
def test_what_score_cannot_use(files, flags, message, said, scoring):
    status, sentence = said(scoring, files + flags)
    assert (status, sentence[: len(message)]) == (2, message)


def test_what_score_has_no_score_for(said, scoring):
    assert said(scoring, "--sys two.txt --ref two.txt --order 5") == (2, "BLEU scores for order > 4 aren't supported")


@pytest.mark.parametrize("flags", ["", " --sentence-bleu", " --sacrebleu", " --ignore-case"])
def test_score_gives_the_score(flags, said, scoring):
    status, shown = said(scoring, f"--sys three.txt --ref three.txt{flags}")
    assert status == 0
    assert "100.00" in shown


def test_score_reads_its_standard_input(said, scoring, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(TEXT))
    assert "BLEU4 = 100.00" in said(scoring, "--ref three.txt")[1]
    monkeypatch.setattr(scoring, "argparse", argparse)
    texts.score_in_sentences()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9"), encoding="utf-8"))
    assert said(scoring, "--ref three.txt") == (2, "standard input is not UTF-8: convert it first")


@pytest.mark.parametrize("program", [["fairseq-score"], ["python", "-m", "fairseq_cli.score"]])
def test_score_as_a_program(program, folder):
    command = [Path(sys.executable).parent / program[0], *program[1:], "--sys", "two.txt", "--ref", "three.txt"]
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert ended.returncode == 2
    assert "--sys two.txt has 2 lines, and --ref three.txt has 3" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr
