"""Shards: where documents go, who writes what, and going on after a kill."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc
from itertools import chain
from pathlib import Path

import fork_server
import numpy as np
import pytest
from commands import environment
from corpora import SMALL, documents, files, load, make_text, prepare

from fairseq_posenc.base import files as files_module
from fairseq_posenc.base.files import partial_of
from fairseq_posenc.text.data import prepare as prepare_module
from fairseq_posenc.text.data import shards
from fairseq_posenc.text.data import split as split_module
from fairseq_posenc.text.data.split import Split
from fairseq_posenc.text.data.text import Layout, MeteredFile, Passage, read_passages
from fairseq_posenc.text.data.text_sources import VALID


@pytest.fixture
def corpus(tmp_path):
    """Five files."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    for number in range(5):
        (folder / f"{number}.txt").write_text(make_text(40 + 7 * number, seed=number), "utf-8")
    return folder


@pytest.fixture
def whole(tmp_path, corpus):
    """The corpus in one piece, from whose vocabulary the others are made."""
    out = tmp_path / "whole"
    assert prepare(corpus, "--out", out, *SMALL) == 0
    return out


def shards_of(out):
    paths = (out / "shards.txt").read_text().strip().split(":")
    return [out / path.rsplit("/", 1)[1] for path in paths]


def test_documents_are_dealt_to_shards(tmp_path, corpus, whole):
    out = tmp_path / "out"
    assert prepare(corpus, "--out", out, *SMALL, "--shards", 4) == 0
    shards = shards_of(out)
    assert [shard.name for shard in shards] == [f"shard-0000{index}" for index in range(4)]
    dealt = [documents(shard, "train") for shard in shards]
    assert sorted(chain.from_iterable(dealt)) == sorted(documents(whole, "train"))
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 12
    assert documents(shards[0], "valid") == documents(whole, "valid")
    assert not (shards[1] / "valid.bin").exists()
    in_order = documents(whole, "train")
    assert not any(shard == in_order[start : start + len(shard)] for shard in dealt for start in range(len(in_order)))
    for shard in shards:
        dictionary = (shard / "dict.txt").read_text("utf-8").split("\n")
        counts = np.bincount(np.concatenate(load(shard, "train")), minlength=40)[4:]
        assert [line.rsplit(" ")[-1] for line in dictionary[:-1]] == [str(count) for count in counts]
        assert (shard / "sentencepiece.model").read_bytes() == (whole / "sentencepiece.model").read_bytes()


def test_hosts_do_the_work_of_one(tmp_path, corpus, whole, capsys):
    """Each writes some of the shards, with the same bytes; the last ends the job, whichever it is."""
    out, at_once = tmp_path / "out", tmp_path / "at-once"
    assert prepare(corpus, "--out", at_once, *SMALL, "--shards", 6) == 0
    capsys.readouterr()
    for numbers in ("4-5", "0-1", "2-3"):
        assert not (out / "shards.txt").exists()
        assert prepare(corpus, "--out", out, *SMALL, "--shards", 6, "--only", numbers) == 0
    assert "4 shards are still to be written, from shard-00000" in capsys.readouterr().err
    assert files(out) == files(at_once)
    shards = shards_of(out)
    assert sorted(chain.from_iterable(documents(shard, "train") for shard in shards)) == sorted(documents(whole, "train"))
    manifests = [json.loads((folder / "manifest.json").read_text()) for folder in (out, at_once)]
    assert manifests[0] == manifests[1]
    assert all(source["sha256"] for source in manifests[0]["inputs"]["train"])
    before = (out / "shard-00001" / "train.bin").stat()
    assert prepare(corpus, "--out", out, *SMALL, "--shards", 6, "--only", "1-3") == 0
    assert (out / "shard-00001" / "train.bin").stat() == before


def test_hosts_at_the_same_time(tmp_path, corpus):
    """One learns the vocabulary while the others wait."""
    together, apart = tmp_path / "together", tmp_path / "apart"
    arguments = ["prepare", corpus, *SMALL, "--shards", 2, "--out", together, "--only"]
    command = ["-m", "fairseq_posenc.cli", *map(str, arguments)]
    with (tmp_path / "said").open("wb") as said:
        processes = [fork_server.start([*command, str(shard)], said, environment=environment()) for shard in range(2)]
        assert [process.wait(600) for process in processes] == [0, 0]
    assert prepare(corpus, "--out", apart, *SMALL, "--shards", 2) == 0
    assert files(together) == files(apart)


def test_many_files_are_divided_among_the_shards(tmp_path, monkeypatch):
    """A group of shards reads its own files alone, all of them together make all of the text."""
    monkeypatch.setattr(split_module, "MIN_FILES", 2)
    corpus, out = tmp_path / "corpus", tmp_path / "out"
    corpus.mkdir()
    for number in range(9):
        (corpus / f"{number}.txt").write_text(make_text(30, seed=number), "utf-8")
    assert Split([*"abcdef"], 0.1, 1, 9).groups == 3
    read = []
    original = MeteredFile.__init__
    monkeypatch.setattr(MeteredFile, "__init__", lambda self, path, *on: read.append(path[-5]) or original(self, path, *on))
    for shard in range(6):
        read.clear()
        assert prepare(corpus, "--out", out, *SMALL, "--shards", 6, "--only", shard) == 0
        if shard:
            assert read == [str(number) for number in range(shard % 3, 9, 3)]
    dealt = [documents(shard, "train") for shard in shards_of(out)]
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 6
    valid = documents(out / "shard-00000", "valid")
    assert len(valid) == 9  # a tenth of the first group's
    assert prepare(corpus, "--out", tmp_path / "whole", *SMALL[2:], "--vocabulary", out) == 0
    whole = documents(tmp_path / "whole", "train") + documents(tmp_path / "whole", "valid")
    assert sorted([*chain.from_iterable(dealt), *valid]) == sorted(whole)


def test_enough_is_held_out_of_the_first_group(tmp_path, monkeypatch, capsys):
    """Of which alone documents are held out, so that the default share is that of its text."""
    monkeypatch.setattr(split_module, "MIN_FILES", 2)
    monkeypatch.setattr(prepare_module, "estimated_text", lambda sources: 5_400_000)
    corpus, out = tmp_path / "corpus", tmp_path / "out"
    corpus.mkdir()
    for number in range(6):
        (corpus / f"{number}.txt").write_text(make_text(30, seed=number), "utf-8")
    assert prepare(corpus, "--out", out, "--vocab-size", 40, "--shards", 3) == 0
    assert json.loads((out / "manifest.json").read_text())["options"]["valid_fraction"] == 1 / 18
    held = len(documents(out / "shard-00000", "valid"))
    assert held < 180 / 18
    assert f"held out {held} of 180 documents, at random (--valid-fraction 0.0556)" in capsys.readouterr().err


def test_the_numbers_of_a_vocabulary_stay_those_that_it_was_given(tmp_path, corpus):
    """Also where it is read from the folder around shards."""
    assert prepare(corpus, "--out", tmp_path / "own", *SMALL) == 0
    given = tmp_path / "given"
    given.mkdir()
    for name in ("sentencepiece.bpe.model", "sentencepiece.model"):
        if (tmp_path / "own" / name).exists():
            shutil.copy(tmp_path / "own" / name, given / name)
    lines = [line for line in (tmp_path / "own/dict.txt").read_text("utf-8").splitlines() if not line.startswith("<mask>")]
    (given / "dict.txt").write_text("\n".join(lines[::-1]) + "\n", "utf-8")
    assert prepare(corpus, "--out", tmp_path / "shards", *SMALL[2:], "--vocabulary", given, "--shards", 2) == 0
    assert prepare(corpus, "--out", tmp_path / "again", *SMALL[2:], "--vocabulary", tmp_path / "shards") == 0
    found = [
        [line.split(" ")[0] for line in (tmp_path / name / "dict.txt").read_text("utf-8").splitlines()][: len(lines)]
        for name in ("given", "shards/shard-00000", "again")
    ]
    assert found[1] == found[0] == found[2]


class Killed(BaseException):
    pass


def test_an_interrupted_run_goes_on(tmp_path, corpus, monkeypatch):
    """From the shards that it has completed: after a kill at each file that is written, in turn."""
    flags = (corpus, *SMALL, "--shards", 3)
    monkeypatch.setattr(shards, "MAX_AT_ONCE", 1)
    assert prepare(*flags, "--out", tmp_path / "expected") == 0
    written, kill, out = [], 0, tmp_path / "out"
    original = files_module.os.replace

    def dying(source, target):
        written.append(Path(target).name)
        if len(written) == kill:
            raise Killed
        return original(source, target)

    monkeypatch.setattr(files_module.os, "replace", dying)
    while True:
        written.clear()
        kill += 1
        try:
            assert prepare(*flags, "--out", out) == 0
            break
        except Killed:
            for folder in out.glob("shard-*"):
                assert not (folder / "dict.txt").exists() or (folder / "train.idx").exists()
    assert kill > 5
    assert files(out) == files(tmp_path / "expected")
    assert not list(out.rglob("*.partial"))


def test_complete_shards_stay(tmp_path, corpus):
    """And those that are missing or cut short are written again."""
    flags, out = (corpus, "--out", tmp_path / "out", *SMALL, "--shards", 3), tmp_path / "out"
    assert prepare(*flags) == 0
    before, state = files(out), (out / "shard-00001" / "train.bin").stat()
    (out / "shard-00000" / "dict.txt").unlink()
    os.truncate(out / "shard-00002" / "train.idx", 10)
    assert prepare(*flags) == 0
    assert files(out) == before
    assert (out / "shard-00001" / "train.bin").stat() == state


@pytest.mark.thorough
def test_a_real_kill(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(make_text(30_000), "utf-8")
    out = tmp_path / "out"
    flags = ("--out", out, *SMALL, "--shards", 2)
    command = [sys.executable, "-m", "fairseq_posenc.cli", "prepare", text, *flags]
    process = subprocess.Popen([*map(str, command)], stderr=subprocess.DEVNULL, env=environment())
    partial = partial_of(out / "shard-00000" / "train.bin")
    while process.poll() is None and not (partial.exists() and partial.stat().st_size):
        time.sleep(0.001)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not list(out.rglob("dict.txt"))
    assert prepare(text, *flags) == 0
    assert prepare(text, "--out", tmp_path / "expected", *flags[2:]) == 0
    assert files(out) == files(tmp_path / "expected")
    assert not list(out.rglob("*.partial"))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--only", "3-2"), "'3-2' is not of the form A-B"),
        (("--only", "a"), "'a' is not of the form A-B"),
        (("--only", "1"), "--only: shard 1 of --shards 1"),
        (("--shards", 0), "--shards must be at least 1"),
        (("--shards", 2, "--only", "0-2"), "--only: shard 2 of --shards 2"),
        (("--shards", 2, "--only", 0, "--overwrite"), "--overwrite: not with --only"),
    ],
)
def test_bad_shards(tmp_path, corpus, capsys, flags, message):
    with pytest.raises(SystemExit, match="2"):  # some are argparse's own
        sys.exit(prepare(corpus, "--out", tmp_path / "out", *SMALL, *flags))
    assert message in capsys.readouterr().err


def test_every_shard_is_seen_to_have_enough_before_any_begins(tmp_path, capsys, monkeypatch):
    """And in one look at the text, whichever shard comes first."""
    monkeypatch.setattr(split_module, "MIN_FILES", 1)
    paths = [tmp_path / f"{name}.txt" for name in "ab"]
    paths[0].write_text(make_text(60), "utf-8")
    for content, message in (
        ("the cat sat\n", f"no document for shard-0000[13]: {paths[1]} has 1, dealt to 2 shards"),
        ("\n \n", f"no text for train in {paths[1]}: nothing but blank lines"),
    ):
        paths[1].write_text(content, "utf-8")
        for shard in (0, 1):
            assert prepare(*paths, "--out", tmp_path / "out", *SMALL, "--shards", 4, "--only", shard) == 2
            assert re.search(message, capsys.readouterr().err)
        assert not list((tmp_path / "out").rglob("*.bin"))


def passages(number: int) -> list[Passage]:
    return [Passage(b"x\n", opens_document=True)] * number


def test_files_of_one_document_are_held_out_evenly():
    split = Split(["a", "b", "c"], 0.05, 3, 2)
    where = [destination for file in range(2000) for destination, _ in split.route(passages(1), file)]
    assert where.count(VALID) == 100
    counts = [where.count(shard) for shard in split.shards]
    assert sum(counts) == 1900
    assert min(counts) > 550


def test_a_long_document_stays_whole():
    split = Split(["a", "b"], 0.3, 0, 1)
    stretches = [Passage(b"x\n", opens_document=number % 4 == 0) for number in range(400)]
    where = [destination for destination, _ in split.route(stretches, 0)]
    assert all(len({*where[start : start + 4]}) == 1 for start in range(0, 400, 4))
    assert {*where} == {"a", "b", VALID}


@pytest.mark.slow
def test_memory_does_not_grow_with_the_text(tmp_path):
    """Reading, dealing and cutting into chunks: 4 and 12 MB of text hold the same."""

    def peak(documents):
        path = tmp_path / "text.txt"
        path.write_bytes(b"the cat sat on the mat, and the mat lay on the floor of the kitchen.\n\n" * documents)
        tracemalloc.start()
        split = Split([f"{shard}" for shard in range(64)], 0.01, 1, 1)
        with MeteredFile(str(path)) as raw:
            for _ in shards.in_chunks(split.route(read_passages(raw, str(path), Layout()), 0)):
                pass
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    small = peak(4_000_000 // 71)
    assert peak(12_000_000 // 71) < 1.1 * small


def test_throughput_is_told(tmp_path, text, capsys):
    assert prepare(text, "--out", tmp_path / "out", *SMALL) == 0
    assert re.search(r"0\.0 MB of text encoded in [\d.]+ s, [\d.]+ MB/s, [\d.]+ per process", capsys.readouterr().err)
