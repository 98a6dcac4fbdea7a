"""The prepare command, run as it is run, on small texts."""

import gzip
import json
import lzma
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from corpora import SMALL, copy, documents, files, load, make_text, prepare

from fairseq_posenc.base.files import partial_of
from fairseq_posenc.cli import main as cli_main
from fairseq_posenc.text.data import prepare as prepare_module
from fairseq_posenc.text.data.folder import Folder
from fairseq_posenc.text.data.text import MeteredFile
from fairseq_posenc.text.vocabulary import LineEncoder, read_files


def test_equals_fairseq_preprocess(tmp_path, text, run):
    """Byte for byte what fairseq-preprocess makes of the same pieces, dictionary included."""
    assert prepare(text, "--valid", copy(text, add="\n"), "--out", tmp_path / "ours", "--vocab-size", 40, "--workers", 1) == 0
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "ours" / "sentencepiece.model"))
    lines = text.read_text("utf-8").splitlines()
    (tmp_path / "pieces").write_text("".join(" ".join(pieces.encode(line, out_type=str)) + "\n" for line in lines), "utf-8")
    files = ("--srcdict", tmp_path / "ours" / "dict.txt", "--trainpref", tmp_path / "pieces", "--destdir", tmp_path / "theirs")
    run("fairseq-preprocess", "--only-source", *files)
    for name in ("train.bin", "train.idx", "dict.txt"):
        assert (tmp_path / "ours" / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes(), name


def test_every_task_sees_the_same_dictionary(tmp_path, text):
    """`<mask>` is last in dict.txt, so the task that adds it and the one that does not agree on every id."""
    from fairseq.data import Dictionary
    from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask

    out = tmp_path / "out"
    assert prepare(text, "--out", out, *SMALL) == 0
    plain = Dictionary.load(str(out / "dict.txt"))
    task = MaskedLMTask.setup_task(MaskedLMConfig(data=str(out)))
    assert len(plain) == len(task.dictionary) == 40
    assert plain.symbols == task.dictionary.symbols
    assert task.mask_idx == 39 == plain.index("<mask>")
    assert [plain.bos(), plain.pad(), plain.eos(), plain.unk()] == [0, 1, 2, 3]
    counts = np.bincount([i for item in load(out, "train") for i in item], minlength=40)
    assert plain.count[4:] == counts[4:].tolist()


def test_documents_are_parted_by_a_lone_eos(tmp_path):
    """Also between files, and neither before the first nor after the last; runs of blank lines count once."""
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf\r\nthe cat\r\n \t\r\n\r\nthe mat\r\na dog\r\n\r\n")
    (tmp_path / "b.txt").write_bytes(b"the birds sing")
    (tmp_path / "valid.txt").write_bytes(b"the mat")
    out = tmp_path / "out"
    texts = [tmp_path / "a.txt", tmp_path / "b.txt"]
    assert prepare(*texts, "--valid", tmp_path / "valid.txt", "--out", out, "--vocab-size", 20, "--workers", 1) == 0
    items = load(out, "train")
    assert [len(item) == 1 for item in items] == [False, True, False, False, True, False]
    assert all(item[-1] == 2 and 3 not in item for item in items)
    assert items[2] == load(out, "valid")[0]
    totals = json.loads((out / "manifest.json").read_text())["shards"]["train"]["totals"]["train"]
    assert (totals["documents"], totals["items"]) == (3, 6)


def test_a_line_of_which_nothing_is_left_does_not_end_a_document(tmp_path):
    """A tokenizer drops what has no width; white space, of any script, does end one."""
    (tmp_path / "text.txt").write_text("the cat\n\u200b\nthe mat\n\u200b\na dog\n\u00a0\u3000\nthe birds sing\n", "utf-8")
    (tmp_path / "valid.txt").write_text("the mat\n", "utf-8")
    out = tmp_path / "out"
    texts = [tmp_path / "text.txt", "--valid", tmp_path / "valid.txt"]
    assert prepare(*texts, "--out", out, "--vocab-size", 20, "--workers", 1) == 0
    assert [len(item) == 1 for item in load(out, "train")] == [False, False, False, True, False]


@pytest.mark.parametrize(("suffix", "opener"), [(".GZ", gzip.open), (".xz", lzma.open)])
def test_packed_text_is_the_same_text(tmp_path, text, suffix, opener):
    packed = tmp_path / f"text.txt{suffix}"
    with opener(packed, "wb") as stream:
        stream.write(text.read_bytes())
    assert prepare(text, "--out", tmp_path / "plain", *SMALL) == 0
    assert prepare(packed, "--out", tmp_path / "packed", *SMALL) == 0
    assert files(tmp_path / "plain") == files(tmp_path / "packed")


def test_workers_and_chunks_do_not_change_the_result(tmp_path, monkeypatch):
    monkeypatch.setattr("fairseq_posenc.text.data.shards.CHUNK_BYTES", 500)
    monkeypatch.setattr("fairseq_posenc.text.data.text.PASSAGE_BYTES", 60)  # documents longer than a passage
    text = tmp_path / "text.txt"
    text.write_text(make_text(300), "utf-8")
    assert prepare(text, "--out", tmp_path / "two", *SMALL, "--workers", 2) == 0
    monkeypatch.undo()
    assert prepare(text, "--out", tmp_path / "one", *SMALL) == 0
    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_held_out_documents_are_whole_and_not_in_training(tmp_path, text, capsys):
    out = tmp_path / "out"
    assert prepare(text, "--out", out, *SMALL) == 0

    train, valid = documents(out, "train"), documents(out, "valid")
    assert (len(train), len(valid)) == (54, 6)
    said = capsys.readouterr().err
    assert f"train: 54 documents, {sum(document.split().count('2') + 1 for document in train)} lines" in said
    assert f"valid: 6 documents, {sum(document.split().count('2') + 1 for document in valid)} lines" in said
    assert (
        prepare(text, "--valid", copy(text, add="\n"), "--out", tmp_path / "all", "--vocabulary", out / "sentencepiece.model")
        == 0
    )
    assert sorted(train + valid) == sorted(documents(tmp_path / "all", "train"))


@pytest.mark.thorough
def test_enough_is_held_out_of_little_text(tmp_path, capsys):
    """By default; and told, recorded, and the same of packed text, processes and parts, which only see some of the files."""
    for number in range(2):
        (tmp_path / f"{number}.txt").write_text(make_text(8000, seed=number), "utf-8")
    texts, flags = [tmp_path / "0.txt", tmp_path / "1.txt"], ("--vocab-size", 40, "--shards", 2)
    size = sum(path.stat().st_size for path in texts)
    one_of = size // 100_000
    assert 10 < one_of < 100
    assert prepare(*texts, "--out", tmp_path / "one", *flags, "--workers", 1) == 0
    assert f"held out {16_000 // one_of:,} of 16,000 documents, at random" in capsys.readouterr().err
    record = json.loads((tmp_path / "one" / "manifest.json").read_text())
    assert record["options"]["valid_fraction"] == 1 / one_of
    valid = record["shards"]["shard-00000"]["totals"]["valid"]
    assert valid["documents"] == 16_000 // one_of
    for shard in (1, 0):
        assert prepare(*texts, "--out", tmp_path / "two", *flags, "--workers", 2, "--only", shard) == 0
    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_rerun_does_nothing_and_changed_options_or_text_are_refused(tmp_path, text, capsys):
    out = tmp_path / "out"
    assert prepare(text, "--out", out, *SMALL) == 0
    before = {path: path.stat().st_mtime_ns for path in out.glob("*.*") if path.suffix in (".bin", ".idx", ".model")}
    assert prepare(text, "--out", out, *SMALL) == 0
    assert before == {path: path.stat().st_mtime_ns for path in before}

    assert prepare(text, "--out", out, *SMALL, "--seed", 2) == 2
    assert "--seed was 1, now 2" in capsys.readouterr().err
    os.utime(text, (1, 1))  # touched, not changed
    assert prepare(text, "--out", out, *SMALL) == 0
    content = text.read_text("utf-8")
    text.write_text(content.replace("cat", "cow"), "utf-8")
    assert prepare(text, "--out", out, *SMALL) == 2
    assert "text.txt is not what" in capsys.readouterr().err
    assert prepare(text, "--out", out, *SMALL, "--overwrite") == 0


def test_it_ends_with_a_command_that_trains_here(tmp_path, text, capsys, run):
    assert cli_main(["prepare", str(text), "--out", str(tmp_path / "data bin"), "--workers", "1"]) == 0
    *_, before, command = capsys.readouterr().err.splitlines()
    assert before.endswith("Train on it here with")
    program, *arguments = shlex.split(command)
    assert program == "fairseq-train"
    run(program, *arguments, "--max-update", "1", "--bf16", cwd=tmp_path)
    assert (tmp_path / "checkpoints" / "checkpoint_last.pt").exists()


def test_damaged_output_is_made_again(tmp_path, text):
    out = tmp_path / "out"
    assert prepare(text, "--out", out, *SMALL) == 0
    whole = files(out)
    (out / "train.bin").write_bytes(whole["train.bin"][:-2])
    (out / "valid.idx").unlink()
    assert prepare(text, "--out", out, *SMALL) == 0
    assert files(out) == whole


@pytest.mark.parametrize("damage", [lambda model: model.write_bytes(b"x"), Path.unlink])
def test_a_vocabulary_that_shards_were_encoded_with_is_not_replaced(tmp_path, text, capsys, damage):
    out = tmp_path / "out"
    assert prepare(text, "--out", out, *SMALL) == 0
    whole = files(out)
    damage(out / "sentencepiece.model")
    assert prepare(text, "--out", out, *SMALL) == 2
    assert re.search("sentencepiece.model was .*Restore it, or add --overwrite", capsys.readouterr().err)
    assert (out / "train.bin").read_bytes() == whole["train.bin"]
    assert prepare(text, "--out", out, *SMALL, "--overwrite") == 0
    assert files(out) == whole


@pytest.mark.thorough
def test_kill_leaves_nothing_that_looks_finished(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(make_text(40_000), "utf-8")
    out = tmp_path / "out"
    command = [sys.executable, "-m", "fairseq_posenc.cli", "prepare", text, "--out", out, *map(str, SMALL)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while not partial_of(out / "train.bin").exists() and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not {"dict.txt", "train.idx", "valid.idx"} & {path.name for path in out.iterdir()}
    assert prepare(text, "--out", out, *SMALL) == 0
    assert prepare(text, "--out", tmp_path / "uninterrupted", *SMALL) == 0
    assert files(out) == files(tmp_path / "uninterrupted")
    assert not list(out.glob("*.partial*"))


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        (b"fine\nalso fine\n\nnot f\xe9ne\n", (), "text.txt, line 4: not UTF-8 at byte 6"),
        (b"fine\nnot\x00fine\n", (), "text.txt, line 2: a NUL character"),
        (b"\n \n\r\n", (), "nothing but blank lines"),
        (b"the cat sat\n" * 9, (), "has 1, and --valid-fraction 0.1 holds out one of every 10"),
        (b"the cat sat\n\n" * 99, ("--vocab-size", 5000), "supports 1[0-9] symbols at most"),
        (b"the cat sat\n\n" * 99, ("--vocab-size", 8), "--vocab-size 8: too small for the characters"),
        (b"the cat sat\n\n" * 99, ("--vocab-size", -1), "--vocab-size must be at least 7"),
        (b"the cat sat\n\n" * 99, ("--character-coverage", 0.9), "--character-coverage must be at least 0.98"),
        (b"the cat sat\n\n" * 99, ("--workers", 0), "--workers must be at least 1"),
        (b"the cat sat\n\n" * 99, ("--valid-fraction", 1.5), "--valid-fraction must be at most"),
        (b"the cat sat\n\n" * 99, ("--vocabulary", "TEXT"), "--vocab-size: not with --vocabulary"),
        (b"the cat sat\rthe mat\r", (), "text.txt: CR line ends"),
        (b"BZh91AY&SY", (), "text.txt: cannot be unpacked"),
        (b"PK\x03\x04", (), "text.txt: cannot be unpacked"),
        (b"7z\xbc\xaf\x27\x1c", (), "text.txt: .* Convert it"),
    ],
)
def test_bad_input_is_named(tmp_path, capsys, content, arguments, message):
    text = tmp_path / "text.txt"
    text.write_bytes(content)
    out = tmp_path / "out"
    arguments = [text if argument == "TEXT" else argument for argument in arguments]
    assert prepare(text, "--out", out, *SMALL, *arguments) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert re.search(message, error), error
    assert not (out / "dict.txt").exists()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("suffix", ["txt", "jsonl.gz"])
def test_other_encodings_are_recognised(tmp_path, capsys, encoding, suffix):
    """And the command in the message converts them."""
    content, path = make_text(60), tmp_path / f"text.{suffix}"
    path.write_bytes((gzip.compress if suffix.endswith("gz") else bytes)(content.encode(encoding)))
    for flags in ((), ("--skip-bad",)):
        assert prepare(path, "--out", tmp_path / "out", *SMALL, *flags) == 2
        (command,) = re.findall(r"iconv -f UTF-(?:16|32)[BL]?E? -t UTF-8", capsys.readouterr().err)
    done = subprocess.run(command.split(), input=content.encode(encoding), check=True, capture_output=True)
    assert done.stdout == content.encode()


def test_many_unknown_tokens_are_warned_of(tmp_path, text, capsys):
    assert prepare(text, "--out", tmp_path / "out", *SMALL) == 0
    assert "WARNING" not in capsys.readouterr().err
    other = tmp_path / "other.txt"
    other.write_text(text.read_text().upper(), "utf-8")
    assert prepare(other, "--out", tmp_path / "other", "--vocabulary", tmp_path / "out", *SMALL[2:]) == 0
    told = capsys.readouterr().err
    assert re.search(r"WARNING: \d+% of the tokens of train are <unk>", told)
    assert "WARNING: " in told.partition("of train are <unk>")[2]  # and of valid


@pytest.mark.parametrize("name", ["cut.txt.xz", "cut.txt.gz", "cut.txt.GZ", "packed.gz", "empty.zst"])
def test_damaged_archive_is_named(tmp_path, capsys, text, name):
    packed = {".xz": lzma.compress, ".gz": gzip.compress}.get(Path(name).suffix.lower(), bytes)(text.read_bytes())
    (tmp_path / name).write_bytes({"cut": packed[:-20], "packed": text.read_bytes(), "empty": b""}[name.partition(".")[0]])
    assert prepare(tmp_path / name, "--out", tmp_path / "out", *SMALL) == 2
    assert f"{name}: cannot be unpacked" in capsys.readouterr().err


def test_bad_paths_are_named(tmp_path, capsys, text):
    for arguments, message in [
        ((tmp_path / "no.txt", "--out", tmp_path / "out"), "no.txt: no such file"),
        ((tmp_path / "empty", "--out", tmp_path / "out"), "no text in this folder"),
        ((tmp_path / "*.tx", "--out", tmp_path / "out"), "no file matches"),
        ((text, "--out", text), "text.txt lies in --out"),
        ((text, "--out", tmp_path / "strange"), "strange is not empty"),
    ]:
        (tmp_path / "strange").mkdir(exist_ok=True)
        (tmp_path / "empty").mkdir(exist_ok=True)
        (tmp_path / "strange" / "dict.txt").touch()
        assert prepare(*arguments) == 2
        assert message in capsys.readouterr().err


def test_two_at_once_are_refused(tmp_path, capsys, text):
    folder = Folder(tmp_path / "out", 1)
    folder.claim()
    with folder.lock_shard("train"):
        assert prepare(text, "--out", tmp_path / "out") == 2
    assert "another process is writing to" in capsys.readouterr().err
    assert (tmp_path / "out" / ".lock-train").exists()  # of a removed file, two could hold the lock


class TestVocabularySize:
    """Without --vocab-size, the text decides."""

    @pytest.mark.parametrize("kind", ["unigram", "bpe"])
    def test_it_is_the_largest_that_the_text_supports(self, tmp_path, text, capsys, kind):
        flags = ("--valid-fraction", 0.1, "--workers", 1, "--model-type", kind)
        assert prepare(text, "--out", tmp_path / "open", *flags) == 0
        size = len(LineEncoder(read_files(tmp_path / "open")).symbols)
        told = capsys.readouterr().err
        assert "learning up to 8,192 symbols from" in told
        assert f"vocabulary: {size:,} symbols, all that the text supports" in told
        assert prepare(text, "--out", tmp_path / "named", *flags, "--vocab-size", size) == 0
        assert LineEncoder(read_files(tmp_path / "named")).symbols == LineEncoder(read_files(tmp_path / "open")).symbols
        assert "all that the text supports" not in capsys.readouterr().err
        assert prepare(text, "--out", tmp_path / "more", *flags, "--vocab-size", size + 1) == 2
        assert f"--vocab-size {size + 1}: the training text supports {size} symbols at most" in capsys.readouterr().err

    def test_it_does_not_grow_with_the_text(self, tmp_path, capsys, monkeypatch):
        for module in ("data.prepare", "vocabulary.sentencepiece"):
            monkeypatch.setattr(f"fairseq_posenc.text.{module}.DEFAULT_SYMBOLS", 40)
        for size in (60, 240):
            (tmp_path / "text.txt").write_text(make_text(size), "utf-8")
            assert prepare(tmp_path / "text.txt", "--out", tmp_path / f"{size}", *SMALL[2:]) == 0
            assert "vocabulary: 40 symbols, the default of --vocab-size" in capsys.readouterr().err

    def test_a_folder_of_another_size_is_refused(self, tmp_path, text, capsys):
        assert prepare(text, "--out", tmp_path / "open", *SMALL[2:]) == 0
        assert prepare(text, "--out", tmp_path / "open", *SMALL[2:], "--vocab-size", 8192) == 2
        assert "--vocab-size was None, now 8192" in capsys.readouterr().err
        assert prepare(text, "--out", tmp_path / "named", *SMALL) == 0
        assert prepare(text, "--out", tmp_path / "named", *SMALL[2:]) == 2
        assert "--vocab-size was 40, now None" in capsys.readouterr().err

    def test_a_run_that_failed_for_its_size_can_be_given_without(self, tmp_path, text):
        assert prepare(text, "--out", tmp_path / "out", *SMALL, "--vocab-size", 32768) == 2
        assert prepare(text, "--out", tmp_path / "out", *SMALL[2:]) == 0


def test_text_is_opened_twice(tmp_path, text, monkeypatch):
    """To learn from it, when it is also seen to be enough, and to encode it."""
    opened, valid = [], copy(text, add="\n")
    original = MeteredFile.__init__
    monkeypatch.setattr(MeteredFile, "__init__", lambda self, path, *on: opened.append(path) or original(self, path, *on))
    for out, flags in (("out", SMALL[:2]), ("given", ("--vocabulary", tmp_path / "out"))):
        assert prepare(text, "--valid", valid, "--out", tmp_path / out, *flags, "--workers", 1) == 0
        assert sorted(opened) == sorted([str(text), str(valid)] * 2)
        opened.clear()
    assert prepare(text, "--valid", valid, "--out", tmp_path / "out", *SMALL[:2]) == 0
    assert not opened


def test_the_vocabulary_is_learned_from_short_pieces_of_lines(tmp_path, text, monkeypatch):
    """Of all text, cut before white space where there is some; the data-bin has the lines whole."""
    lines = ["word and " * 3000, "ab" * 9000, f"{'x' * 4090} {'y' * 4090}", "the　cat　" * 2500]
    text.write_text("\n\n".join([*lines, text.read_text("utf-8")]), "utf-8")
    learned = []
    original = prepare_module.train
    monkeypatch.setattr(prepare_module, "train", lambda sample, *options: learned.extend(sample) or original(sample, *options))
    assert prepare(text, "--valid", copy(text, add="the end\n"), "--out", tmp_path / "out", "--workers", 1) == 0
    assert "".join(learned) == "".join(text.read_text("utf-8").split("\n"))
    assert max(map(len, learned)) <= 4096
    whole = [piece for piece in learned if len(piece) > 3000 and piece[0] not in "ab"]
    assert all(piece.split()[-1] in {"word", "and", "the", "cat", "x" * 4090, "y" * 4090} for piece in whole)
    assert max(map(len, load(tmp_path / "out", "train"))) > 1000
