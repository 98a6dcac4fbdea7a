"""What prepare takes as text: JSON lines, packed files, folders and patterns."""

import gzip
import json
import lzma
import re
from pathlib import Path

import pytest
from backports import zstd
from corpora import SMALL, documents, files, make_text, prepare, sources

PACK = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstd.compress}


def as_rows(text: str, field: str = "text") -> bytes:
    """One JSON object per document."""
    rows = (
        json.dumps({"url": "…", field: document}, ensure_ascii=number % 2 == 0)
        for number, document in enumerate(text.split("\n\n"))
    )
    return "\n".join(rows).encode()


@pytest.fixture
def expected(tmp_path, text) -> dict[str, bytes]:
    assert prepare(text, "--out", tmp_path / "expected", *SMALL) == 0
    return files(tmp_path / "expected")


@pytest.mark.parametrize("packing", ["", *PACK])
@pytest.mark.parametrize("suffix", [".txt", ".jsonl", ".json"])
def test_the_same_text_gives_the_same_data(tmp_path, text, expected, suffix, packing):
    content = text.read_bytes() if suffix == ".txt" else as_rows(text.read_text("utf-8"))
    path = tmp_path / f"packed{suffix}{packing}"
    path.write_bytes(PACK[packing](content) if packing else content)
    assert prepare(path, "--out", tmp_path / "out", *SMALL) == 0
    assert files(tmp_path / "out") == expected


def test_an_archive_of_several_frames_is_read_to_its_end(tmp_path, text, expected):
    content = text.read_bytes()
    for suffix, pack in PACK.items():
        path = tmp_path / f"frames.txt{suffix}"
        path.write_bytes(pack(content[:1000]) + pack(content[1000:]))
        assert prepare(path, "--out", tmp_path / suffix, *SMALL) == 0
        assert files(tmp_path / suffix) == expected


@pytest.mark.parametrize("suffix", PACK)
def test_a_cut_archive_is_named(tmp_path, capsys, text, suffix):
    path = tmp_path / f"cut.jsonl{suffix}"
    path.write_bytes(PACK[suffix](as_rows(text.read_text("utf-8")))[:-20])
    assert prepare(path, "--out", tmp_path / "out", *SMALL) == 2
    assert f"{path}: cannot be unpacked (" in capsys.readouterr().err


def test_folders_and_patterns(tmp_path, capsys):
    """Sorted, with what lies below; other files are left out, with a message."""
    folder = tmp_path / "corpus"
    (folder / "below").mkdir(parents=True)
    (folder / ".ipynb_checkpoints").mkdir()
    for name in ("b.txt", "below/a.jsonl.zst", "c.json.gz", "notes.md", "d.gz", ".ipynb_checkpoints/b-checkpoint.txt"):
        (folder / name).touch()

    def names(*given):
        return [str(Path(source.name).relative_to(folder)) for source in sources(*given)]

    assert names(folder) == ["b.txt", "below/a.jsonl.zst", "c.json.gz"]
    assert "3 files of text; 3 others are left out" in capsys.readouterr().err
    assert names(folder / "*.txt", folder / "**" / "*.zst") == ["b.txt", "below/a.jsonl.zst"]
    with pytest.raises(ValueError, match=r"/b\.txt .* as .*/b\.txt \(of .*corpus\)"):
        names(folder, folder / "b.txt")
    with pytest.raises(FileNotFoundError, match=r"\*\.xz: no file matches"):
        names(folder / "*.xz")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (b'{"text": "fine"}\n\n{"text": "cut', "line 3: not a row with a text"),
        (b'{"content": "fine", "id": 3}', "line 1: .*no field 'text' among 'content', 'id'; name another with --text-field"),
        (b'{"text": 3}', "line 1: .*'text' is not a string"),
        (b'["text"]', "line 1: .*not a JSON object"),
        (b'{"text": "fine"}\n{"text": "\xff"}', "line 2: .*can't decode byte 0xff"),
        (b'{"text": "\\ud83d"}', "line 1: .*surrogates not allowed"),
        (b'{"text": "a\\u0000b"}', "line 1: .*NUL"),
        (b"[" * 100_000, "line 1: not a row"),
    ],
)
def test_bad_rows_are_named(tmp_path, capsys, rows, message):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(rows)
    assert prepare(path, "--out", tmp_path / "out", *SMALL) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    with pytest.raises(ValueError, match=f"{path}, {message}"):
        raise ValueError(error)


def test_text_field_and_document_per_line(tmp_path, text, expected):
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(as_rows(text.read_text("utf-8"), field="content"))
    assert prepare(rows, "--out", tmp_path / "field", *SMALL, "--text-field", "content") == 0
    assert files(tmp_path / "field") == expected

    lines = tmp_path / "lines.txt"
    lines.write_text(make_text(40).replace("\n\n", "\n"))
    assert prepare(lines, "--out", tmp_path / "lines", *SMALL, "--document-per-line") == 0
    train, valid = documents(tmp_path / "lines", "train"), documents(tmp_path / "lines", "valid")
    assert len(train + valid) == len(lines.read_text().splitlines())
    assert not any(" 2 " in document for document in train + valid)


def test_bad_lines_and_rows_can_be_skipped(tmp_path, text, expected, capsys):
    good = text.read_bytes()
    dirty = tmp_path / "dirty.txt"
    dirty.write_bytes(good.replace(b"\n", b"\nnot f\xe9ne\n", 3))
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(b'{"text": "cut\n' * 30 + as_rows(good.decode()))
    for path in (dirty, rows):
        assert prepare(path, "--out", tmp_path / "out", *SMALL) == 2
        assert prepare(path, "--out", tmp_path / "out", *SMALL, "--skip-bad", "--overwrite") == 0
        assert files(tmp_path / "out") == expected
    told = capsys.readouterr().err
    assert told.count("skipped: ") == 3 + 20
    assert f"skipped: {dirty}, line 2: not UTF-8 at byte 6" in told
    assert told.count("without a message") == 1
    assert re.findall(r"--skip-bad: (\d+) ", told) == ["3", "30"]


def test_empty_rows_are_no_documents(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in ["", " \n\u3000", "the cat\r\n\n\nthe mat", "a dog"]))
    (source,) = sources(path)
    passages = [(passage.lines(), passage.opens_document) for passage in source.passages()]
    assert passages == [(["the cat", "the mat"], True), (["a dog"], True)]
