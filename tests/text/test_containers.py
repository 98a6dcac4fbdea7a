"""Text in tables, archives, standard input and at addresses: the same data-bin as from the same documents as plain text."""

import bz2
import csv
import gzip
import io
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from corpora import SMALL, files, make_text, prepare, sources

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.base.files import sha256
from fairseq_posenc.text.data.text import Layout
from fairseq_posenc.text.data.text_sources import find

pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install -e '.[formats]'")
fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed: pip install -e '.[formats]'")


def as_csv(documents: list[str], separator: str = ",") -> bytes:
    stream = io.StringIO()
    csv.writer(stream, delimiter=separator).writerows([["id", "text"], *enumerate(documents)])
    return stream.getvalue().encode()


def as_rows(documents: list[str]) -> bytes:
    return "".join(json.dumps({"text": document}) + "\n" for document in documents).encode()


def as_parquet(documents: list[str], **options) -> bytes:
    from pyarrow import parquet

    stream = io.BytesIO()
    table = pyarrow.table({"id": range(len(documents)), "text": documents})
    parquet.write_table(table, stream, row_group_size=7, **options)
    return stream.getvalue()


def as_arrow(documents: list[str], new=None) -> bytes:
    stream, table = io.BytesIO(), pyarrow.table({"text": documents, "id": range(len(documents))})
    with (new or pyarrow.ipc.new_file)(stream, table.schema) as writer:
        writer.write_table(table, max_chunksize=9)
    return stream.getvalue()


def twice() -> bytes:
    stream, table = io.BytesIO(), pyarrow.table([["a"], ["b"]], names=["text", "text"])
    with pyarrow.ipc.new_file(stream, table.schema) as writer:
        writer.write_table(table)
    return stream.getvalue()


def as_tar(documents: list[str], mode: str = "w") -> bytes:
    """Two files with text, one that has none, and one that is hidden."""
    return tar_of(members(documents), mode)


def tar_of(files: dict[str, bytes], mode: str = "w") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def as_zip(documents: list[str]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members(documents).items():
            archive.writestr(name, content)
    return stream.getvalue()


def members(documents: list[str]) -> dict[str, bytes]:
    first, second = "\n\n".join(documents[:9]).encode(), as_rows(documents[9:])
    return {"a.txt": first, "a.png": b"\x89PNG", "__MACOSX/._b.jsonl": b"\0", "b/b.jsonl.gz": gzip.compress(second)}


FORMATS = {
    "t.parquet": as_parquet,
    "named.txt": lambda documents: as_parquet(documents, compression="zstd"),
    "t.feather": as_arrow,
    "stream.arrow": lambda documents: as_arrow(documents, pyarrow.ipc.new_stream),
    "t.csv": as_csv,
    "t.tsv.gz": lambda documents: gzip.compress(as_csv(documents, "\t")),
    "t.tar": as_tar,
    "t.tgz": lambda documents: as_tar(documents, "w:gz"),
    "tables.tgz": lambda documents: tar_of(
        {"a.parquet.gz": gzip.compress(as_parquet(documents[:9])), "b.txt": as_arrow(documents[9:])}, "w:gz"
    ),
    "t.zip": as_zip,
    "t.jsonl.bz2": lambda documents: bz2.compress(as_rows(documents)),
    "gzip.txt": lambda documents: gzip.compress("\n\n".join(documents).encode()),
    "part-00000": lambda documents: b"\xef\xbb\xbf" + as_rows(documents),
}


@pytest.fixture(scope="module")
def same(tmp_path_factory):
    """A function that prepares these names by one vocabulary, and tells whether the result is that of the plain text."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "text.txt").write_text(make_text(60), "utf-8")
    assert prepare(folder / "text.txt", "--out", folder / "out", *SMALL) == 0
    expected = files(folder / "out")

    def same(tmp_path, *names, workers=1) -> bool:
        flags = ("--vocabulary", folder / "out" / "sentencepiece.model", "--valid-fraction", 0.1, "--workers", workers)
        assert prepare(*names, "--out", tmp_path / "out", *flags) == 0
        return files(tmp_path / "out") == expected

    same.documents = make_text(60).removesuffix("\n").split("\n\n")
    return same


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_documents_give_the_same_data(tmp_path, same, name):
    path = tmp_path / name
    path.write_bytes(FORMATS[name](same.documents))
    assert same(tmp_path, path)
    (recorded,) = json.loads((tmp_path / "out" / "manifest.json").read_text())["inputs"]["train"]
    assert recorded["sha256"] == sha256(path)


def test_several_workers_and_shards_give_the_same(tmp_path, same):
    path = tmp_path / "t.parquet"
    path.write_bytes(as_parquet(same.documents * 40))
    model = ("--vocab-size", 40, "--valid-fraction", 0.1)
    for workers in (1, 2):
        assert prepare(path, "--out", tmp_path / f"out{workers}", *model, "--shards", 2, "--workers", workers) == 0
    assert files(tmp_path / "out1") == files(tmp_path / "out2")


def test_a_folder_of_datasets(tmp_path, same):
    datasets = pytest.importorskip("datasets", reason="datasets is not installed: pip install datasets")
    data = datasets.Dataset.from_dict({"text": same.documents})
    data.save_to_disk(tmp_path / "data", num_shards=3)
    names = [Path(source.name).name for source in sources(tmp_path / "data")]
    assert names == [f"data-0000{i}-of-00003.arrow" for i in range(3)]
    rows = [passage.lines() for source in sources(tmp_path / "data") for passage in source.passages()]
    assert rows == [document.split("\n") for document in same.documents]
    datasets.DatasetDict(train=data, test=data.select([0])).save_to_disk(tmp_path / "parts")
    with pytest.raises(InputError, match=r"parts: a data set with the parts test, train\. Name .*/parts/test, or another"):
        sources(tmp_path / "parts")
    assert len(sources(tmp_path / "parts" / "test")) == 1


def test_fields_of_fields(tmp_path, same):
    from pyarrow import parquet

    rows = [{"doc": {"body": document, "id": 3}, "text": "no"} for document in same.documents]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    parquet.write_table(pyarrow.table({"doc.body": same.documents, "doc": range(60)}), tmp_path / "dotted.parquet")
    for name in ("rows.jsonl", "rows.parquet", "dotted.parquet"):
        (source,) = find({"train": [str(tmp_path / name)]}, Layout("doc.body"))["train"]
        assert ["\n".join(passage.lines()) for passage in source.passages()] == same.documents


@pytest.mark.parametrize("content", [as_parquet, as_rows, lambda documents: "\n\n".join(documents).encode()])
def test_standard_input(tmp_path, same, content, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content(same.documents))))
    assert same(tmp_path, "-")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content(same.documents))))
    assert same(tmp_path, "-")  # which is done before


def test_addresses(tmp_path, same, capsys):
    """A file, a folder and a pattern; a file that has changed is noticed."""
    system = fsspec.filesystem("memory")
    half = len(same.documents) // 2
    system.pipe_file("/bucket/text/a.parquet", as_parquet(same.documents[:half]))
    system.pipe_file("/bucket/text/b.jsonl.gz", gzip.compress(as_rows(same.documents[half:])))
    system.pipe_file("/bucket/text/_SUCCESS", b"")
    names = [source.name for source in sources("memory://bucket/text")]
    assert names == ["memory:///bucket/text/a.parquet", "memory:///bucket/text/b.jsonl.gz"]
    assert [source.name for source in sources("memory://bucket/text/*.gz")] == names[1:]
    assert [source.name for source in sources("memory://bucket/text/a.parquet")] == ["memory://bucket/text/a.parquet"]
    rows = ["\n".join(passage.lines()) for source in sources("memory://bucket/text") for passage in source.passages()]
    assert rows == same.documents
    system.pipe_file("/bucket/whole", "\n\n".join(same.documents).encode())
    for _ in range(2):
        assert same(tmp_path, "memory://bucket/whole")
    assert "done before" in capsys.readouterr().err
    system.pipe_file("/bucket/whole", "\n\n".join(same.documents).encode() + b"\nmore")
    assert prepare("memory://bucket/whole", "--out", tmp_path / "out", "--valid-fraction", 0.1) == 2
    assert "memory://bucket/whole is not what memory://bucket/whole was" in capsys.readouterr().err
    for name in ("memory://bucket/no", "memory://bucket/no*"):
        assert prepare(name, "--out", tmp_path / "out") == 2
        assert f"prepare: {name}: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.parquet", as_parquet(["a", None, "b"]), "t.parquet, row 2: its 'text' is not a string"),
        ("t.parquet", as_parquet(["a"])[:-30], "t.parquet: cannot be unpacked ("),
        ("t.arrow", as_arrow(["a"])[:60], "t.arrow: cannot be unpacked ("),
        ("t.csv", b"id,text\n1,fine\n2,a, b\n", "t.csv, row 2: more fields than names in the first row"),
        ("t.csv", b"id,text\n1,fine\n2\n", "t.csv, row 2: its 'text' is not a string"),
        ("t.csv", b'id,text\n1,fine\n2,"a" b\n', "t.csv, after line 2: a row with quotes that do not match (',' expected"),
        ("t.csv", b'id,text\n1,"fine\n2\n', "t.csv, after line 1: a row with quotes that do not match (unexpected end of data)"),
        ("t.csv", b"id,text\n1,\xe9\n", "t.csv, row 1: not UTF-8"),
        ("t.csv", b"id,body\n1,a\n", "t.csv, row 1: no field 'text' among 'id', 'body'; name another with --text-field"),
        ("t.tar", as_tar(["a"] * 9 + [3]), "t.tar:b/b.jsonl.gz, line 1: not a row with a text (its 'text' is not a string)"),
        ("t.tar", as_tar(["a"])[: 1024 + 9], "t.tar: cannot be unpacked (truncated header)"),
        ("t.tar", as_tar(["a"])[:1024], "t.tar: cannot be unpacked (empty header)"),
        ("t.tar", as_tar(["a"])[:1024] + b"a" * 512, "t.tar: cannot be unpacked (invalid header)"),
        ("t.feather", twice(), "t.feather: 2 columns have the name 'text'"),
        ("t.zip", as_zip(["a"])[:-40], "t.zip: cannot be unpacked ("),
        ("t.txt.bz2", bz2.compress(b"a b c" * 999)[:-20], "t.txt.bz2: cannot be unpacked ("),
        ("t.txt.gz", b"plain\n", "t.txt.gz: cannot be unpacked: it does not begin as a .gz file does"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, capsys, name, content, message):
    (tmp_path / name).write_bytes(content)
    assert prepare(tmp_path / name, "--out", tmp_path / "out", *SMALL) == 2
    assert message in capsys.readouterr().err


def test_files_of_the_same_name_in_an_archive_are_each_read(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.txt", "first")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("a.txt", "second")
    (source,) = sources(tmp_path / "a.zip")
    assert [passage.lines() for passage in source.passages()] == [["first"], ["second"]]


def test_an_archive_without_text_is_named(tmp_path, capsys):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.docx", "PK")
    assert prepare(tmp_path / "a.zip", "--out", tmp_path / "out", *SMALL) == 2
    assert f"{tmp_path / 'a.zip'}: no text in this archive; looked for .txt" in capsys.readouterr().err


def test_without_the_extra_it_is_named(tmp_path):
    (tmp_path / "t.parquet").write_bytes(as_parquet(["a"]))
    code = (
        "import sys; sys.modules.update(pyarrow=None, fsspec=None); from fairseq_posenc.cli import main;"
        "sys.exit([main(['prepare', name, '--out', 'out']) for name in ('t.parquet', 's3://bucket/a.txt')] != [2, 2])"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    for package in ("pyarrow", "fsspec"):
        assert re.search(f"needs .*{package}.*, which (is|are) not installed: pip install .*{package}", ran.stderr)
