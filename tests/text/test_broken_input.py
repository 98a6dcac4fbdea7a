"""What prepare refuses, so that nothing is lost: text in its way, files that are not what they were, odd names."""

import functools
import json
import multiprocessing
import operator
import os
import re
import shutil
import signal
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from corpora import SMALL, copy, documents, files, make_text, prepare, sources

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.text.data import folder, shards
from fairseq_posenc.text.data.databin import DatabinWriter
from fairseq_posenc.text.vocabulary import GIVEN_DICTIONARY, SENTENCEPIECE, LineEncoder, TokenizerJson

PAIR = (*SMALL, "--shards", 2)


@pytest.fixture
def pair(tmp_path) -> list[Path]:
    """Two files."""
    paths = [tmp_path / f"{name}.txt" for name in "ab"]
    for seed, path in enumerate(paths):
        path.write_text(make_text(40, seed), "utf-8")
    return paths


def every_place(value, place=()):
    """The path to every value in a structure of JSON."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*place, key)
        yield from every_place(item, (*place, key))


class TestPlaces:
    @pytest.mark.parametrize("where", ["parts", "shard-00000", "."])
    def test_text_in_the_way_is_not_removed(self, tmp_path, capsys, where):
        text = tmp_path / "out" / where / "dict.txt"
        text.parent.mkdir(parents=True)
        text.write_text(make_text(40), "utf-8")
        given = text.parent if where == "." else text
        for flags in ((), ("--overwrite",)):
            assert prepare(given, "--out", tmp_path / "out", *SMALL, *flags) == 2
            assert f"TEXT {given} lies in --out" in " ".join(capsys.readouterr().err.split())
            assert text.read_text("utf-8") == make_text(40)

    @pytest.mark.parametrize(
        "name", ["parts/0-of-1/a.txt", "shard-00001/train.bin", "dict.txt", "train.bin.partial", "manifest.json"]
    )
    def test_what_is_not_ours_is_not_removed(self, tmp_path, capsys, text, name):
        """Neither silently nor by --overwrite, though it has a name that is written to."""
        path = tmp_path / "out" / name
        path.parent.mkdir(parents=True)
        path.write_text("mine")
        for flags in ((), ("--overwrite",)):
            assert prepare(text, "--out", tmp_path / "out", *PAIR, *flags) == 2
            error = capsys.readouterr().err
            assert "Name another --out" in error or "name another folder" in error
            assert "add --overwrite" not in error
            assert path.read_text() == "mine"

    def test_overwrite_keeps_what_others_put_into_the_folder(self, tmp_path, text):
        out = tmp_path / "out"
        assert prepare(text, "--out", out, *PAIR) == 0
        mine = (
            "shard-00003/a.txt",
            "shard-00001/notes.txt",
            "parts/0-of-1/a.txt",
            "parts/mine",
            ".lock-of-mine",
            "notes.txt",
        )
        for name in mine:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_text("mine")
        assert prepare(text, "--out", out, *PAIR, "--overwrite") == 0
        assert [(out / name).read_text() for name in mine] == ["mine"] * len(mine)

    @pytest.mark.parametrize("flags", [(), ("--overwrite",)])
    def test_a_link_in_place_of_a_shard_is_not_followed(self, tmp_path, text, capsys, flags):
        out, other = tmp_path / "out", tmp_path / "other"
        for place in (out, other):
            assert prepare(text, "--out", place, *PAIR) == 0
        shutil.rmtree(out / "shard-00001")
        (out / "shard-00001").symlink_to(other / "shard-00001")
        before = files(other)
        assert prepare(text, "--out", out, *PAIR, *flags) == 2
        assert f"{out / 'shard-00001'} is a link" in " ".join(capsys.readouterr().err.split())
        assert files(other) == before

    def test_a_kill_while_it_begins_anew(self, tmp_path, text, monkeypatch):
        out = tmp_path / "out"
        assert prepare(text, "--out", out, *PAIR) == 0
        before = files(out)

        def killed(path, **_):
            if path.name == "train.idx":
                raise KeyboardInterrupt
            os.unlink(path) if path.exists() else None

        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", killed)
            assert prepare(text, "--out", out, *PAIR, "--overwrite") == 130
        assert files(out) != before
        assert prepare(text, "--out", out, *PAIR) == 0
        assert files(out) == before

    def test_out_within_the_text_is_refused(self, tmp_path, capsys, text):
        assert prepare(text.parent, "--out", tmp_path / "below" / "out", *SMALL) == 2
        assert "lies in" in capsys.readouterr().err

    def test_overwrite_keeps_the_vocabulary_that_it_needs(self, tmp_path, capsys, text):
        out = tmp_path / "out"
        assert prepare(text, "--out", out, *SMALL) == 0
        before = files(out)
        for vocabulary, problem in (
            (out, "which --overwrite empties"),
            (out / "sentencepiece.model", "which --overwrite empties"),
            (text, "not a sentencepiece model"),
        ):
            assert prepare(text, "--out", out, "--vocabulary", vocabulary, "--overwrite") == 2
            assert problem in capsys.readouterr().err
        assert files(out) == before

    @pytest.mark.parametrize("name", ["a:b", "new\nline", "\udcff"])
    def test_names_that_fairseq_cannot_read(self, tmp_path, capsys, text, name):
        for flags in (SMALL, PAIR):
            assert prepare(text, "--out", tmp_path / name, *flags) == 2
            assert "fairseq takes ':' for the end of a path" in capsys.readouterr().err

    def test_overwrite_leaves_nothing_of_more_shards(self, tmp_path, text, monkeypatch):
        out = tmp_path / "out"
        assert prepare(text, "--out", out, *SMALL, "--shards", 5) == 0
        with monkeypatch.context() as patch:
            patch.setattr(DatabinWriter, "finish", lambda writer: (_ for _ in ()).throw(KeyboardInterrupt))
            assert prepare(text, "--out", out, *SMALL, "--shards", 4, "--overwrite") == 130
        assert prepare(text, "--out", out, *PAIR, "--overwrite") == 0
        assert sorted(path.name for path in out.glob("shard-*")) == ["shard-00000", "shard-00001"]
        assert not list(out.rglob("*.partial"))

    def test_overwrite_waits_for_no_writer(self, tmp_path, text, capsys):
        out = tmp_path / "out"
        assert prepare(text, "--out", out, *PAIR) == 0
        before = files(out)
        with folder.Folder(out, 2).lock_shard("shard-00001"):
            assert prepare(text, "--out", out, *SMALL, "--overwrite") == 2
        assert "another process is writing to" in capsys.readouterr().err
        assert files(out) == before


class TestSources:
    def test_text_that_changes_while_it_is_read(self, tmp_path, text, monkeypatch, capsys):
        """As a text does that is still being downloaded; the next command says no more than that."""
        finish, out = DatabinWriter.finish, tmp_path / "out"

        def grow_and_finish(writer):
            with text.open("a", encoding="utf-8") as stream:
                stream.write("one more\n")
            finish(writer)

        with monkeypatch.context() as patch:
            patch.setattr(DatabinWriter, "finish", grow_and_finish)
            assert prepare(text, "--out", out, *SMALL) == 2
        said = capsys.readouterr().err.splitlines()[-1]
        assert f"{text} has changed while it was read" in said
        assert "prepared differently" not in said
        assert prepare(text, "--out", out, *SMALL, "--overwrite") == 0

    def test_pipes_are_refused(self, tmp_path, capsys):
        os.mkfifo(tmp_path / "pipe")
        assert prepare(tmp_path / "pipe", "--out", tmp_path / "out") == 2
        assert "not a file but a pipe" in capsys.readouterr().err

    def test_links_in_a_folder(self, tmp_path, capsys):
        folder = tmp_path / "corpus"
        (folder / "below").mkdir(parents=True)
        (folder / "below" / "a.txt").touch()
        (folder / "loop").symlink_to(folder)
        assert [source.name for source in sources(folder)] == [str(folder / "below" / "a.txt")]
        assert f"{folder / 'loop'}: a link to a folder is not followed" in capsys.readouterr().err
        (folder / "broken.txt").symlink_to("nowhere")
        assert prepare(folder, "--out", tmp_path / "out") == 2
        assert "broken.txt: No such file" in capsys.readouterr().err

    @pytest.mark.parametrize("name", ["./text.txt", "sub/../text.txt", "link.txt", "hard.txt", ".", "*.txt"])
    def test_text_that_is_named_twice(self, tmp_path, monkeypatch, capsys, text, name):
        """Whether it would be trained on and validated with, or only count twice; and both mentions are told."""
        monkeypatch.chdir(tmp_path)
        (tmp_path / "sub").mkdir()
        if name in ("link.txt", "hard.txt"):
            (os.symlink if name == "link.txt" else os.link)(text, name)
        for flags, consequence in (((name, "--valid", "text.txt"), "be trained on"), (("text.txt", name), "count twice")):
            assert prepare(*flags, "--out", "out") == 2
            told = capsys.readouterr().err
            assert re.search(rf"is the same text as .*, and would {consequence}", told)
            assert name in told
            assert "text.txt" in told
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize("flag", ["--valid ", ""])
    def test_a_copy_of_the_training_text_is_refused(self, tmp_path, capsys, text, flag):
        assert prepare(text, *flag.split(), copy(text), "--out", tmp_path / "out", "--vocab-size", 40) == 2
        assert f"{flag}{tmp_path}/copy.txt is the same text as {text}, and would " in capsys.readouterr().err
        assert not (tmp_path / "out").exists()

    def test_a_folder_that_cannot_be_read(self, tmp_path, monkeypatch, capsys):
        (tmp_path / "a.txt").touch()
        (tmp_path / "closed").mkdir()
        original = os.scandir

        def scandir(path):
            if Path(path).name == "closed":  # root may read every folder
                raise PermissionError(13, "Permission denied", str(path))
            return original(path)

        monkeypatch.setattr(os, "scandir", scandir)
        assert prepare(tmp_path, "--out", tmp_path.parent / "out") == 2
        assert "closed: Permission denied" in capsys.readouterr().err

    def test_any_name_of_a_file(self, tmp_path):
        odd = tmp_path / "odd"
        odd.mkdir()
        for seed, name in enumerate((b"a b.txt", b"c:d.txt", b"new\nline.txt", b"\xff.txt")):
            Path(os.fsdecode(os.path.join(os.fsencode(odd), name))).write_text(make_text(60, seed), "utf-8")
        for _ in range(2):
            assert prepare(odd, "--out", tmp_path / "out", *SMALL) == 0

    @pytest.mark.parametrize("flags", [(), ("--shards", 2, "--only", 1)])
    def test_empty_validation_text(self, tmp_path, capsys, pair, flags):
        (tmp_path / "empty").write_text("\n \n")
        assert prepare(*pair, "--valid", tmp_path / "empty", "--out", tmp_path / "out", "--vocab-size", 40, *flags) == 2
        assert "--valid" in (told := capsys.readouterr().err)
        assert "nothing but blank lines" in told

    def test_validation_text_without_tokens(self, tmp_path, capsys, text):
        (tmp_path / "valid").write_text("\u200b\n", "utf-8")
        for _ in range(2):
            assert prepare(text, "--valid", tmp_path / "valid", "--out", tmp_path / "out", "--vocab-size", 40) == 2
            assert "no text for valid" in capsys.readouterr().err

    def test_validation_text_goes_to_the_first_shard(self, tmp_path, pair, text):
        flags = ("--valid", text, copy(pair[0], add="\n"), "--vocab-size", 40, "--workers", 1, "--shards", 2)
        for shard in (1, 0):
            assert prepare(*pair, "--out", tmp_path / "out", *flags, "--only", shard) == 0
        assert len(documents(tmp_path / "out" / "shard-00000", "valid")) == 60 + 40
        assert not (tmp_path / "out" / "shard-00001" / "valid.bin").exists()


class TestLeftovers:
    @pytest.mark.parametrize(
        "content",
        [
            b"\xff", b"[]", b'{"stages": {}}', b'{"format": 3}', b"[" * 100_000, b'{"format":' * 100_000,
            b'{"format": 3, "options": {}, "inputs": [], "tokenizer": {}, "shards": {"train": {"totals": []}}}',
        ],
    )  # fmt: skip
    def test_damaged_manifest(self, tmp_path, capsys, text, content):
        out = tmp_path / "out"
        assert prepare(text, "--out", out, *SMALL) == 0
        (out / "manifest.json").write_bytes(content)
        assert prepare(text, "--out", out, *SMALL) == 2
        assert f"{out / 'manifest.json'} is damaged" in capsys.readouterr().err
        assert (out / "dict.txt").exists()

    def test_a_damaged_manifest_is_named_by_exports(self, tmp_path, text):
        """With any of its values replaced or missing, the card can be written or the file is named."""
        card = pytest.importorskip("fairseq_posenc.huggingface.card")
        assert prepare(text, "--out", tmp_path / "out", *SMALL) == 0
        path = tmp_path / "out" / "manifest.json"
        content, refused = path.read_text(), 0
        places = list(every_place(json.loads(content)))
        assert len(places) > 40
        for place in places:
            for value in (None, 3, [], {"a": [1]}, "gone"):
                record = json.loads(content)
                holder = functools.reduce(operator.getitem, place[:-1], record)
                if value == "gone":
                    del holder[place[-1]]
                else:
                    holder[place[-1]] = value
                path.write_text(json.dumps(record))
                try:
                    card._describe(path.parent)
                except InputError as error:
                    refused += str(path) in str(error)
        assert refused > 40

    def test_the_list_of_shards_is_written_again(self, tmp_path, text):
        assert prepare(text, "--out", tmp_path / "out", *PAIR) == 0
        (tmp_path / "out").rename(tmp_path / "moved")
        assert prepare(text, "--out", tmp_path / "moved", *PAIR) == 0
        assert str(tmp_path / "moved" / "shard-00001") in (tmp_path / "moved" / "shards.txt").read_text()


class TestProcesses:
    def test_a_full_disk_is_named(self, tmp_path, text, capsys, monkeypatch):
        def full(*_, **__):
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(DatabinWriter, "add", full)
            assert prepare(text, "--out", tmp_path / "out", *SMALL) == 2
        assert f"{tmp_path / 'out'}: No space left on device. " in capsys.readouterr().err
        assert prepare(text, "--out", tmp_path / "out", *SMALL) == 0

    def test_workers_leave_an_interrupt_to_their_parent(self, tmp_path, text):
        assert prepare(text, "--out", tmp_path / "out", *SMALL) == 0
        files = folder.Folder(tmp_path / "out", 1).tokenizer_files()
        with ProcessPoolExecutor(2, multiprocessing.get_context("spawn"), shards._start_worker, (files,)) as executor:
            assert executor.submit(signal.getsignal, signal.SIGINT).result() == signal.SIG_IGN


class TestVocabulary:
    @pytest.fixture
    def model(self, tmp_path, text) -> bytes:
        assert prepare(text, "--out", tmp_path / "out", *SMALL) == 0
        return (tmp_path / "out" / "sentencepiece.model").read_bytes()

    @pytest.mark.parametrize(
        ("dictionary", "message"),
        [(b"\xff\xfe", "dict.txt cannot be read"), ("▁the 1\n▁the 1\n".encode(), "dict.txt .* it has '▁the' twice")],
    )
    def test_damaged_dictionaries(self, model, dictionary, message):
        with pytest.raises(ValueError, match=message):
            LineEncoder({SENTENCEPIECE: model, GIVEN_DICTIONARY: dictionary})

    def test_damaged_model(self, model):
        for damaged in (model[:1000], model.replace("▁".encode(), b"\xff\xff\xff")):
            with pytest.raises(ValueError, match="not a sentencepiece model"):
                LineEncoder({SENTENCEPIECE: damaged})

    @staticmethod
    def word_level(numbers: dict[str, int]) -> bytes:
        tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed: pip install -e '.[hf]'")
        library = tokenizers.Tokenizer(tokenizers.models.WordLevel(numbers, unk_token="[UNK]"))
        library.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        return library.to_str().encode()

    def test_absurd_numbers(self):
        library = self.word_level({"[UNK]": 0, "the": 20_000_000})
        with pytest.raises(ValueError, match="a token has the number 20000000"):
            LineEncoder({TokenizerJson.FILES[0]: library, GIVEN_DICTIONARY: b"the 1\n"})

    def test_text_that_the_library_cannot_cut(self):
        tokenizer = LineEncoder({TokenizerJson.FILES[0]: self.word_level({"the": 0}), GIVEN_DICTIONARY: b"the 1\n"})
        with pytest.raises(ValueError, match=r"cannot cut the text: .*Missing \[UNK\] token"):
            tokenizer.encode(["the cat"])

    def test_numbers_with_gaps(self):
        library = self.word_level({"[UNK]": 0, "the": 7, "cat": 9000})
        tokenizer = LineEncoder({TokenizerJson.FILES[0]: library, GIVEN_DICTIONARY: b"cat 1\n[UNK] 1\nthe 1\n"})
        ids, sizes = tokenizer.encode(["the cat dog", "cat"])
        assert np.split(ids, sizes[:1])[0].tolist() == [6, 4, 5, 2]
        assert ids.tolist()[-2:] == [4, 2]
