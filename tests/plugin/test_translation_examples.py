"""The scripts of examples/translation: what they write, and what they refuse."""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import environment
from fairseq.data import data_utils
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder
from fairseq.tasks.translation import TranslationTask

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.base.files import LOCK, partial_of, sha256
from fairseq_posenc.base.record import RESULT
from fairseq_posenc.text.vocabulary import train

FOLDER = Path(__file__).parents[2] / "examples" / "translation"
WORDS = ["one", "two", "three", "four", "five", "six"]


def script(name: str):
    """The module of a script."""
    spec = importlib.util.spec_from_file_location(f"translation_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where pydantic looks up the names of its types
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def text(tmp_path) -> Path:
    """Two languages of 40, 3 and 3 sentences, and a vocabulary of both."""
    folder = tmp_path / "text"
    folder.mkdir()
    for split, count in (("train", 40), ("valid", 3), ("test", 3)):
        lines = [" ".join(WORDS[(i + j) % 6] for j in range(1 + i % 4)) for i in range(count)]
        (folder / f"{split}.en").write_text("".join(f"{line}\n" for line in lines))
        (folder / f"{split}.de").write_text("".join(f"{line[::-1]}\n" for line in lines))
    both = [line for language in ("en", "de") for line in (folder / f"train.{language}").read_text().splitlines()]
    (folder / "sentencepiece.model").write_bytes(train(both, 28, "unigram", 1.0))
    return folder


def test_both_sides_are_cut_into_pieces_of_one_vocabulary(text, tmp_path, capsys):
    (text / "train.en").open("a").write("\n" + "one " * 300 + "\n")
    (text / "train.de").open("a").write("eno\neno\n")
    script("prepare").prepare(text, text, "en", "de", tmp_path / "bin", max_pieces=250)
    assert "train: 40 pairs, 2 left out" in capsys.readouterr().out
    task = TranslationTask.setup_task(Namespace(data=str(tmp_path / "bin"), source_lang=None, target_lang=None))
    assert (task.cfg.source_lang, task.cfg.target_lang) == ("en", "de")
    for language in ("en", "de"):
        data = data_utils.load_indexed_dataset(str(tmp_path / f"bin/valid.en-de.{language}"), task.src_dict)
        assert len(data) == 3
        expected = (text / f"valid.{language}").read_text().splitlines()
        assert [task.src_dict.string(line, "sentencepiece") for line in data] == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: (text / "valid.de").open("a").write("more\n"), "different numbers of lines"),
        (lambda text: (text / "train.de").open("ab").write(b"\xff\n"), "not UTF-8"),
        (lambda text: (text / "sentencepiece.model").unlink(), "has no sentencepiece.model"),
        (lambda text: (text.parent / "bin").joinpath("mine").write_text(""), "is not empty"),
        (lambda text: [(text / f"test.{language}").write_text("") for language in ("en", "de")], "no pair of sentences"),
    ],
)
def test_text_that_makes_no_data_is_refused(change, message, text, tmp_path):
    (tmp_path / "bin").mkdir()
    change(text)
    with pytest.raises(InputError, match=message):
        script("prepare").prepare(text, text, "en", "de", tmp_path / "bin", max_pieces=250)


def test_a_killed_preparation_leaves_no_data_bin(text, tmp_path, monkeypatch):
    module, out = script("prepare"), tmp_path / "bin"

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module.shutil, "copy", killed)
        with pytest.raises(KeyboardInterrupt):
            module.prepare(text, text, "en", "de", out, max_pieces=250)
    assert not out.exists()
    module.prepare(text, text, "en", "de", out, max_pieces=250)
    assert (out / "sentencepiece.model").exists()
    assert [path.name for path in tmp_path.glob("bin*")] == ["bin"]


def test_an_average_has_the_mean_of_each_parameter(tmp_path):
    module, paths = script("average"), [tmp_path / f"checkpoint_1_{n}.pt" for n in (10, 20)]
    for number, path in enumerate(paths):
        content = {
            "model": {"weight": torch.full((2, 3), 1 + number / 128, dtype=torch.bfloat16), "version": torch.tensor([3])},
            "last_optimizer_state": {"step": 1},
        }
        torch.save(content | {"optimizer_history": [{"num_updates": 10 * number}], "args": Namespace(arch="x")}, path)
    module.average(paths, tmp_path / "average.pt")
    found = torch.load(tmp_path / "average.pt", weights_only=False)
    assert torch.equal(found["model"]["weight"], torch.full((2, 3), 1 + 1 / 256))  # which bfloat16 does not have
    assert torch.equal(found["model"]["version"], torch.tensor([3]))
    assert found["last_optimizer_state"] is None
    torch.save({"model": {"weight": torch.zeros(3)}}, paths[0])
    with pytest.raises(InputError, match=r"has other parameters than .*checkpoint_1_10.pt"):
        module.average(paths, tmp_path / "another.pt")


def test_tables_show_what_was_run_beside_the_papers(tmp_path):
    module = script("ablations")
    assert {name for rows in module.TABLES.values() for _, name, _ in rows} == module.RUNS.keys()

    def run(bleu: float) -> dict:
        return {"status": "finished", "bleu": bleu, "signature": "version:2"}

    results = {name: [] for name in module.RUNS} | {"k0": [run(1.0), run(2.0)], "keys": [{"status": "diverged", "reason": "nan"}]}
    lines = module.report(results).splitlines()
    assert "| 0 | 1.50 ± 0.71 (2 of 2 runs) | 12.5 |" in lines
    assert "| a^K alone | diverged | 25.8 |" in lines
    assert "| both | not run | 25.8 |" in lines
    assert lines[-1] == "sacreBLEU: version:2"


@pytest.fixture
def ablation(tmp_path):
    """A command for one run, in ``tmp_path/out/runs/k16/seed-1``, and what it asks of its data: one sentence in each split."""
    for language in ("en", "de"):
        (tmp_path / f"dict.{language}.txt").write_text("one 1\n")
        (tmp_path / f"valid.{language}").write_text("one\u2028two\r\n")
        for split in ("train", "valid"):
            prefix = tmp_path / f"{split}.en-de.{language}"
            builder = MMapIndexedDatasetBuilder(f"{prefix}.bin", dtype=np.uint16)
            builder.add_item(torch.tensor([4, 2]))
            builder.finalize(f"{prefix}.idx")
    out = str(tmp_path / "out")
    return ["ablations.py", str(tmp_path), "--text", str(tmp_path), "--out", out, "--seeds", "1", "--only", "k16"]


def test_a_finished_run_is_not_repeated_and_other_flags_are_refused(ablation, tmp_path, monkeypatch, capsys):
    module, out, command = script("ablations"), tmp_path / "out", ablation
    monkeypatch.setattr(module.Experiment, "run", lambda self, cell, folder, progress: {"bleu": 20.0, "signature": "version:2"})
    monkeypatch.setattr(sys, "argv", [*command, "--", "--max-update", "5"])
    module.main()
    assert "| both | 20.00 (1 of 1 runs) | 25.8 |" in capsys.readouterr().out
    record = json.loads((out / "runs/k16/seed-1" / RESULT).read_text())
    assert record["configuration"]["flags"][:2] == ["--arch", "transformer_shaw"]
    monkeypatch.setattr(module.Experiment, "run", None)
    module.main()
    monkeypatch.setattr(sys, "argv", [*command, "--", "--max-update", "6"])
    with pytest.raises(SystemExit, match=r"^ablations\.py: .*is of another configuration"):
        module.main()


def test_other_data_and_text_are_refused_before_training(ablation, tmp_path, monkeypatch):
    module = script("ablations")
    monkeypatch.setattr(module.Experiment, "run", lambda self, cell, folder, progress: {"bleu": 20.0, "signature": "version:2"})
    monkeypatch.setattr(sys, "argv", ablation)
    module.main()
    monkeypatch.setattr(module.Experiment, "run", None)
    for name in ("train.en-de.en.bin", "valid.en-de.de.bin", "dict.en.txt"):
        before = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(before[:-1] + b"\1")
        with pytest.raises(SystemExit, match=rf"of another configuration: data\.{name} was"):
            module.main()
        (tmp_path / name).write_bytes(before)
    (tmp_path / "valid.de").write_text("one\ntwo\n")
    with pytest.raises(SystemExit, match=r"valid\.de has 2 lines, and .* has 1 sentences of valid"):
        module.main()


def test_a_run_that_another_command_is_at_is_left_to_it(ablation, tmp_path, monkeypatch):
    module, folder = script("ablations"), tmp_path / "out/runs/k16/seed-1"

    def another(command: list[str], pass_fds: list[int], **flags) -> None:
        """The second command, where the first one starts fairseq-train, which holds the lock as well."""
        assert [os.path.samestat(os.fstat(file), (folder / LOCK).stat()) for file in pass_fds] == [True]
        (folder / "train.log").write_text("epoch 1")
        monkeypatch.setattr(module.subprocess, "run", None)
        with pytest.raises(SystemExit, match=rf"^ablations\.py: another process is writing to {folder}"):
            module.main()
        raise KeyboardInterrupt

    monkeypatch.setattr(module.subprocess, "run", another)
    monkeypatch.setattr(sys, "argv", ablation)
    with pytest.raises(KeyboardInterrupt):
        module.main()
    assert (folder / "train.log").read_text() == "epoch 1"


PIECES, LINES = 40, 300  # of the vocabulary, and of each archive
CURL = """#!/bin/bash
while [[ $# -gt 1 ]]; do [[ $1 == -o ]] && out=$2; shift; done
echo "$1" >> fetched
cp "served/${1##*/}" "$out" 2> /dev/null || exit 22
"""
SACREBLEU = """#!/bin/bash
printf 'one two\\nthree\\n'
"""


@pytest.fixture
def wmt14(tmp_path):
    """``wmt14(language, sums_of_ours)`` runs the script where small archives of the right layout are served.

    With ``sums_of_ours`` it is a copy that knows their checksums, and wants fewer pieces.
    """
    served, bin_folder = tmp_path / "served", tmp_path / "bin"
    served.mkdir()
    bin_folder.mkdir()
    for name, program in (("curl", CURL), ("sacrebleu", SACREBLEU)):
        (bin_folder / name).write_text(program)
        (bin_folder / name).chmod(0o755)
    code, sums = (FOLDER / "wmt14.sh").read_text(), {}
    for path, published in re.findall(r"^(wmt\S+) (\S+) ", code, re.M):
        archive = served / path.rpartition("/")[2]
        with tarfile.open(archive, "w:gz" if archive.suffix == ".tgz" else "w") as tar:
            for language in ("de", "fr"):
                for side in ("en", language):
                    name, content = f"training/{archive.stem}.{language}-en.{side}", text_of(side, archive.stem)
                    if "giga" in path:
                        name, content = f"giga-fren.release2.fixed.{side}.gz", gzip.compress(content)
                    entry = tarfile.TarInfo(name)
                    entry.size = len(content)
                    tar.addfile(entry, io.BytesIO(content))
        sums[published] = sha256(archive)
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(FOLDER / "prepare.py", copy)
    for published, ours in sums.items():
        code = code if published == "-" else code.replace(published, ours)
    (copy / "wmt14.sh").write_text(code.replace("32768", str(PIECES)))

    def run(language, sums_of_ours):
        script = (copy if sums_of_ours else FOLDER) / "wmt14.sh"
        variables = environment(PATH=f"{bin_folder}:{Path(sys.executable).parent}:{os.environ['PATH']}")
        command = ["bash", script, language, "data"]
        return subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True)

    return run


def text_of(language: str, seed: str) -> bytes:
    words = [f"{word}{language}" for word in WORDS]
    return "".join(f"{words[i % 6]} {words[i // 6 % 6]} {seed}\n" for i in range(LINES)).encode()


def test_an_archive_of_another_checksum_is_refused(wmt14, tmp_path):
    done = wmt14("de", sums_of_ours=False)
    assert done.returncode == 1
    refusal = "wmt14.sh: data/archives/training-parallel-europarl-v7.tgz is damaged: remove it and start again"
    assert done.stderr.splitlines()[-1] == refusal
    assert not (tmp_path / "data/data-bin").exists()


def test_an_archive_that_is_not_served_is_named(wmt14, tmp_path):
    (tmp_path / "served/training-parallel-commoncrawl.tgz").unlink()
    done = wmt14("de", sums_of_ours=True)
    assert done.returncode == 1
    address = "https://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz"
    assert done.stderr.splitlines()[-1] == f"wmt14.sh: {address} cannot be downloaded"
    assert not (tmp_path / "data/archives/training-parallel-commoncrawl.tgz").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("language", "archives"), [("de", 3), ("fr", 5)])
def test_wmt14_becomes_a_data_bin(language, archives, wmt14, tmp_path):
    """And started again, it downloads nothing and changes nothing; what a killed start has left is no obstacle."""
    partial_of(tmp_path / "data/data-bin").mkdir(parents=True)
    (partial_of(tmp_path / "data/data-bin") / "train").write_text("")
    for _ in range(2):
        done = wmt14(language, sums_of_ours=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert len((tmp_path / "fetched").read_text().splitlines()) == archives
    task = TranslationTask.setup_task(Namespace(data=str(tmp_path / "data/data-bin"), source_lang="en", target_lang=language))
    assert len(task.src_dict) == PIECES
    for split, count in (("train", LINES * archives), ("valid", 2), ("test", 2)):
        for side in ("en", language):
            prefix = tmp_path / f"data/data-bin/{split}.en-{language}.{side}"
            assert len(data_utils.load_indexed_dataset(str(prefix), task.src_dict)) == count


def test_a_download_needs_a_language():
    done = subprocess.run(["bash", FOLDER / "wmt14.sh", "nl", "/nowhere"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "wmt14.sh: nl: name de or fr\n")
