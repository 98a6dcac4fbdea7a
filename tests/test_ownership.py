"""Who made a folder: nothing without a record, and nothing that holds an input, is removed or written over."""

import errno
import json
import os
from pathlib import Path

import pytest

from fairseq_posenc import files, ownership
from fairseq_posenc.ownership import RECORD, claim, finish, made_by, output, remove, renew, require_apart, require_free


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def made(tmp_path) -> Path:
    """A folder that glue made, with a file, a folder and a link in it."""
    folder = tmp_path / "made"
    claim(folder, "glue")
    (folder / "below").mkdir()
    (folder / "below" / "a.txt").write_text("made")
    (folder / "b.txt").write_text("made")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious.txt").write_text("mine")
    (folder / "link").symlink_to(tmp_path / "outside")
    return folder


def record(folder: Path, content: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / RECORD).write_text(content)


class TestClaim:
    @pytest.mark.parametrize("left", [[], [".lock"], [files.partial_of(RECORD).name]], ids=str)
    def test_what_is_new_or_empty(self, tmp_path, left):
        """Also after a kill before the record was there."""
        folder = tmp_path / "a" / "b"
        for name in left:
            folder.mkdir(parents=True)
            (folder / name).touch()
        claim(folder, "glue")
        assert json.loads((folder / RECORD).read_text()) == {"made_by": "glue", "format": 1}

    def test_what_was_made_before(self, made):
        before = tree(made)
        claim(made, "glue")
        assert tree(made) == before

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (None, "is not empty, and glue has not made it"),
            ('{"made_by": "squad", "format": 1}', "was made by squad, not by glue"),
            ('{"made_by": "glue", "format": 2}', "has not made it"),
            ('{"made_by": ["glue"], "format": 1}', "has not made it"),
            ('{"made_by": "glue", "format": 1, "contents": "precious.txt"}', "has not made it"),
            ('{"made_by": "glue", "format": 1, "contents": [{}]}', "precious.txt was not made by glue"),
            ("[" * 100_000, "has not made it"),
            ("\xff", "has not made it"),
        ],
    )
    def test_what_is_somebody_elses(self, tmp_path, content, message):
        folder = tmp_path / "folder"
        folder.mkdir()
        (folder / "precious.txt").write_text("mine")
        if content is not None:
            record(folder, content)
        before = tree(folder)
        for step in (claim, remove, renew):
            with pytest.raises(ValueError, match=message):
                step(folder, "glue")
            assert tree(folder) == before

    def test_an_earlier_releases_folder_gets_its_record(self, tmp_path):
        (tmp_path / "run.json").write_text('{"command": [], "result": null}')
        claim(tmp_path, "quickstart", earlier=lambda folder: ownership.has_keys(folder / "run.json", "command", "result"))
        assert made_by(tmp_path) == "quickstart"

    def test_files_and_closed_folders(self, tmp_path, monkeypatch):
        (tmp_path / "file").touch()
        for folder in (tmp_path / "file", tmp_path / "file" / "below" / "it"):
            with pytest.raises(NotADirectoryError, match=f"cannot be a folder: {tmp_path / 'file'} is a file"):
                claim(folder, "glue")
        monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
        with pytest.raises(PermissionError, match=f"cannot be written: {tmp_path} does not let this user"):
            claim(tmp_path / "new" / "folder", "glue")


class TestRemove:
    def test_links_are_not_followed(self, made, tmp_path):
        remove(made, "glue")
        assert not made.exists()
        assert (tmp_path / "outside" / "precious.txt").read_text() == "mine"

    def test_a_link_to_a_folder_is_removed_and_not_the_folder(self, made, tmp_path):
        before = tree(made)
        (tmp_path / "alias").symlink_to(made)
        remove(tmp_path / "alias", "glue")
        assert not (tmp_path / "alias").is_symlink()
        assert tree(made) == before

    def test_another_name_of_the_same_file_stays(self, made, tmp_path):
        os.link(made / "b.txt", tmp_path / "hard.txt")
        remove(made, "glue", [("--data", tmp_path / "hard.txt")])
        assert (tmp_path / "hard.txt").read_text() == "made"

    def test_what_came_into_a_finished_folder_stays(self, made):
        finish(made, "glue")
        (made / "__pycache__").mkdir()  # of whoever imported something from there
        claim(made, "glue")
        (made / "precious.txt").write_text("mine")
        before = tree(made)
        with pytest.raises(ValueError, match=r"precious\.txt was not made by glue: move it away"):
            remove(made, "glue")
        assert tree(made) == before

    @pytest.mark.parametrize(
        "place", ["made", "made/b.txt", "made/below/a.txt", "made/missing", "alias/b.txt", "to_b.txt", "made/link", "."]
    )
    def test_an_input_is_not_removed(self, made, tmp_path, place):
        """In the folder, the folder itself or around it; by links outside to what is in it, and by links in it to outside."""
        (tmp_path / "alias").symlink_to(made)
        (tmp_path / "to_b.txt").symlink_to(made / "b.txt")
        before = tree(tmp_path)
        for step in (remove, renew):
            with pytest.raises(ValueError, match=r"^(--data .* lies in the folder .*made|the folder .*made lies in --data)"):
                step(made, "glue", [("--data", tmp_path / place)])
            assert tree(tmp_path) == before

    def test_inputs_elsewhere_are_in_nobodys_way(self, made, tmp_path):
        (tmp_path / "made2").mkdir()
        (tmp_path / "loop").symlink_to(tmp_path / "loop")
        require_apart(made, [("--data", tmp_path / name) for name in ("made2", "outside", "new", "loop")])

    @pytest.mark.parametrize("survivors", range(5))
    def test_a_kill_leaves_nothing_that_is_in_the_way(self, made, monkeypatch, survivors):
        """Whatever is gone when it comes, the record goes last."""

        class Killed(BaseException):
            pass

        left = survivors

        def dying(original):
            def step(*args, **kwargs):
                nonlocal left
                if not left:
                    raise Killed
                left -= 1
                return original(*args, **kwargs)

            return step

        monkeypatch.setattr(ownership.shutil, "rmtree", dying(ownership.shutil.rmtree))
        for name in ("unlink", "rmdir"):
            monkeypatch.setattr(Path, name, dying(getattr(Path, name)))
        with pytest.raises(Killed):
            remove(made, "glue")
        monkeypatch.undo()
        assert made.exists()
        renew(made, "glue")
        assert os.listdir(made) == [RECORD]


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
        with output(tmp_path / "out", "glue"):
            with pytest.raises(BlockingIOError), output(tmp_path / "out", "glue"):
                pass
            (tmp_path / "out" / "results.json").touch()
        with output(tmp_path / "out", "glue"):
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
    message = f"^{tmp_path}: No space left on device. Nothing that was there before is lost; when there is room, give the same"
    with pytest.raises(OSError, match=message), files.full_disk_named(tmp_path):
        raise error


def test_other_errors_are_left_as_they_are(tmp_path):
    for error in (ValueError("a line (os error 2)"), FileNotFoundError(errno.ENOENT, "No such file")):
        with pytest.raises(type(error)) as raised, files.full_disk_named(tmp_path):
            raise error
        assert raised.value is error


def test_a_partial_file_of_somebody_elses_is_left(tmp_path):
    (tmp_path / "model.pt.partial").write_text("a download of somebody's")
    with files.atomic_write(tmp_path / "model.pt") as stream:
        stream.write("ours")
    with pytest.raises(KeyError), files.atomic_write(tmp_path / "model.pt"):
        raise KeyError
    assert tree(tmp_path) == {"model.pt": b"ours", "model.pt.partial": b"a download of somebody's"}
