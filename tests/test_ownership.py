"""The record of an output folder: a command writes to no folder of others, and over no input of its own."""

import errno
import json
import os
from pathlib import Path

import pytest

from fairseq_posenc.base import files
from fairseq_posenc.base.ownership import (
    RECORD,
    claim,
    made_by,
    output,
    require_apart,
    require_free,
)


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def made(tmp_path) -> Path:
    """A folder that glue made, with a file, and a folder outside."""
    folder = tmp_path / "made"
    claim(folder, "glue")
    (folder / "b.txt").write_text("made")
    (tmp_path / "outside").mkdir()
    return folder


class TestClaim:
    @pytest.mark.parametrize("left", [[], [".lock"], [files.partial_of(RECORD).name]], ids=str)
    def test_what_is_new_or_empty(self, tmp_path, left):
        """Also after a kill before the record was there."""
        folder = tmp_path / "a" / "b"
        for name in left:
            folder.mkdir(parents=True)
            (folder / name).touch()
        claim(folder, "glue")
        assert json.loads((folder / RECORD).read_text()) == {"made_by": "glue"}

    def test_what_was_made_before(self, made):
        before = tree(made)
        claim(made, "glue")
        assert tree(made) == before

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (None, "is not empty, and glue has not made it"),
            ('{"made_by": "squad"}', "was made by squad, not by glue"),
            ('{"made_by": ["glue"]}', "has not made it"),
            ('["glue"]', "has not made it"),
            ("[" * 100_000, "has not made it"),
            ("\xff", "has not made it"),
        ],
    )
    def test_what_is_somebody_elses(self, tmp_path, content, message):
        (tmp_path / "precious.txt").write_text("mine")
        if content is not None:
            (tmp_path / RECORD).write_text(content)
        before = tree(tmp_path)
        with pytest.raises(ValueError, match=message):
            claim(tmp_path, "glue")
        assert tree(tmp_path) == before

    def test_files_and_closed_folders(self, tmp_path, monkeypatch):
        (tmp_path / "file").touch()
        for folder in (tmp_path / "file", tmp_path / "file" / "below" / "it"):
            with pytest.raises(NotADirectoryError, match=f"{tmp_path / 'file'} is a file"):
                claim(folder, "glue")
        monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
        with pytest.raises(PermissionError, match=f"permission for {tmp_path}"):
            claim(tmp_path / "new" / "folder", "glue")


class TestInputs:
    @pytest.mark.parametrize("place", ["made", "made/b.txt", "made/below/a.txt", "made/missing", "alias/b.txt", "to_b.txt", "."])
    def test_no_input_lies_in_the_output(self, made, tmp_path, place):
        (tmp_path / "alias").symlink_to(made)
        (tmp_path / "to_b.txt").symlink_to(made / "b.txt")
        with pytest.raises(ValueError, match=r"^(--data .* lies in --out .*made|--out .*made lies in --data)"):
            require_apart(made, [("--data", tmp_path / place)])

    def test_inputs_elsewhere_are_in_nobodys_way(self, made, tmp_path):
        (tmp_path / "made2").mkdir()
        (tmp_path / "loop").symlink_to(tmp_path / "loop")
        require_apart(made, [("--data", tmp_path / name) for name in ("made2", "outside", "new", "loop")])


class TestFree:
    def test_what_is_there_stays_unless_it_is_said(self, tmp_path):
        out = tmp_path / "out.pt"
        require_free(out, "OUT")
        out.touch()
        with pytest.raises(FileExistsError, match=r"OUT .*out\.pt exists: name another file, or add --overwrite"):
            require_free(out, "OUT")
        require_free(out, "OUT", overwrite=True)
        with pytest.raises(IsADirectoryError, match="is a folder: name a file"):
            require_free(tmp_path, "OUT", overwrite=True)
        with pytest.raises(NotADirectoryError, match=r"out\.pt, of OUT .*model\.pt, cannot be a folder"):
            require_free(out / "model.pt", "OUT")

    @pytest.mark.parametrize("link", [None, os.symlink, os.link])
    def test_never_over_an_input(self, tmp_path, link):
        read, out = tmp_path / "in.pt", tmp_path / "out.pt"
        read.touch()
        if link is None:
            out = read
        else:
            link(read, out)
        with pytest.raises(ValueError, match=r"--out .* is CHECKPOINT .*in\.pt itself"):
            require_free(out, "--out", overwrite=True, inputs=[("CHECKPOINT", read)])


class TestOutput:
    def test_refused_before_anything_is_written(self, tmp_path):
        data = tmp_path / "out" / "data"
        data.mkdir(parents=True)
        (data / "train.tsv").write_text("mine")
        for out, message in [
            (tmp_path / "out", "--data .*data lies in --out .*out, which is written over"),
            (data, "lies in --out"),
            (data / "new", "--out .*new lies in --data .*data, which is read"),
        ]:
            with pytest.raises(ValueError, match=message), output(out, "glue", [("--data", data)]):
                pass
        assert tree(tmp_path) == {"out/data/train.tsv": b"mine"}

    def test_holds_the_lock(self, tmp_path):
        with output(tmp_path / "out", "glue"), pytest.raises(BlockingIOError), output(tmp_path / "out", "glue"):
            pass
        assert made_by(tmp_path / "out") == "glue"

    def test_a_lock_of_somebody_elses_is_not_cut_off(self, tmp_path):
        for content in (b"mine", b"\xff"):
            (tmp_path / ".lock").write_bytes(content)
            with files.sole_writer(tmp_path), pytest.raises(BlockingIOError), files.sole_writer(tmp_path):
                pass
            assert (tmp_path / ".lock").read_bytes() == content


def caused(error: Exception, cause: Exception) -> Exception:
    error.__context__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        caused(RuntimeError("unexpected pos 704 vs 598"), OSError(errno.ENOSPC, "No space left on device")),  # torch.save
        RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),  # safetensors
    ],
    ids=["system", "torch", "safetensors"],
)
def test_a_full_disk_is_said_in_one_sentence(tmp_path, error):
    message = f"^{tmp_path}: No space left on device. When there is room, give the same"
    with pytest.raises(OSError, match=message), files.report_full_disk(tmp_path):
        raise error


def test_other_errors_are_left_as_they_are(tmp_path):
    for error in (ValueError("a line (os error 2)"), FileNotFoundError(errno.ENOENT, "No such file")):
        with pytest.raises(type(error)) as raised, files.report_full_disk(tmp_path):
            raise error
        assert raised.value is error


def test_a_partial_file_of_somebody_elses_is_left(tmp_path):
    (tmp_path / "model.pt.partial").write_text("a download of somebody's")
    with files.atomic_write(tmp_path / "model.pt") as stream:
        stream.write("ours")
    with pytest.raises(KeyError), files.atomic_write(tmp_path / "model.pt"):
        raise KeyError
    assert tree(tmp_path) == {"model.pt": b"ours", "model.pt.partial": b"a download of somebody's"}


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_links_in_place_of_temporary_files_are_not_followed(tmp_path, link):
    """Of a file that is written, a lock, fairseq's checkpoint and its copy."""
    from fairseq import checkpoint_utils
    from fairseq.file_io import PathManager

    theirs, out = tmp_path / "theirs.txt", tmp_path / "out"
    out.mkdir()
    theirs.write_text("")
    for name in ("h.png.fairseq_posenc.partial", "model.pt.tmp", "model.pt.fairseq_posenc.partial", "dummy", ".lock",
                 "copy.pt.fairseq_posenc.partial"):  # fmt: skip
        link(theirs, out / name)
    with files.atomic_write(out / "h.png", "wb") as stream:
        stream.write(b"ours")
    checkpoint_utils.verify_checkpoint_directory(str(out))
    checkpoint_utils.torch_persistent_save({"model": {}}, str(out / "model.pt"))
    PathManager.copy(str(out / "model.pt"), str(out / "copy.pt"))
    with pytest.raises(OSError, match=r"\.lock|another name"), files.sole_writer(out):
        pass
    assert theirs.read_bytes() == b""
    assert {"h.png", "model.pt", "copy.pt", "dummy"} <= {path.name for path in out.iterdir()}
