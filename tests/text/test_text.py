"""Reading, holding out and sampling."""

import random
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest

from fairseq_posenc.text.data import text
from fairseq_posenc.text.data.split import Split, default_fraction, held_out, sample_lines, training_lines
from fairseq_posenc.text.data.text import Passage
from fairseq_posenc.text.vocabulary import SENTENCEPIECE, LineEncoder, train


def read(path) -> list[text.Passage]:
    with text.MeteredFile(str(path)) as raw:
        return list(text.read_passages(raw, str(path), text.Layout()))


def test_passages_of_documents(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "PASSAGE_BYTES", 6)
    path = tmp_path / "text.txt"
    path.write_bytes(b"\nab\ncd\nef\n\n\ngh\r\n")
    assert [(p.lines(), p.opens_document) for p in read(path)] == [
        (["ab", "cd"], True),
        (["ef"], False),
        (["gh"], True),
    ]


def test_error_names_the_line_in_a_later_passage(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "PASSAGE_BYTES", 6)
    path = tmp_path / "text.txt"
    path.write_bytes(b"ab\ncd\nef\n\xc3\xa9x\xff\n")
    with pytest.raises(ValueError, match=r"text\.txt, line 4: not UTF-8 at byte 4"):
        [passage.lines() for passage in read(path)]


def test_absurdly_long_line_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "MAX_LINE_BYTES", 10)
    path = tmp_path / "text.txt"
    path.write_bytes(b"short\n" + b"x" * 11)
    with pytest.raises(ValueError, match="line 2: longer than"):
        read(path)


def test_no_character_breaks_the_dictionary(tmp_path):
    """Whatever Python calls white space, no piece holds any: fairseq would split the piece there."""
    spaces = [chr(code) for code in range(0x110000) if chr(code).isspace() and chr(code) not in "\r\n"]
    path = tmp_path / "text.txt"
    path.write_text("".join(f"one{space}two three{space}four {space} five\n" for space in spaces * 5), "utf-8")
    lines = [line for passage in read(path) for line in passage.lines()]
    tokenizer = LineEncoder({SENTENCEPIECE: train(lines, vocab_size=22, model_type="unigram", character_coverage=1.0)})
    assert len(tokenizer.symbols) == 22
    ids, sizes = tokenizer.encode(["one two", "", "三"])
    words, rest = np.split(ids, sizes[:1])
    assert "".join(tokenizer.symbols[i] for i in words) == "▁one▁two</s>"
    assert [tokenizer.symbols[i] for i in rest] == ["</s>", "▁", "<unk>", "</s>"]


@pytest.mark.parametrize(
    ("size", "one_of"), [(None, 100), (0, 10), (600_000, 10), (1_500_000, 15), (9_999_999, 99), (10**7, 100), (10**12, 100)]
)
def test_more_is_held_out_of_little_text(size, one_of):
    assert default_fraction(size) == 1 / one_of


@pytest.mark.parametrize("fraction", [0.01, 0.05, 0.3, 0.7])
def test_one_of_every_so_many_is_held_out(fraction):
    stream = held_out(fraction, seed=3)
    documents = np.array([next(stream) for _ in range(2000)])
    counts = documents.cumsum()
    expected = np.arange(1, 2001) * fraction
    assert np.abs(counts - expected).max() <= 1
    other = held_out(fraction, seed=4)
    assert [next(other) for _ in range(2000)] != documents.tolist()


def test_sample_is_bounded_uniform_and_in_order():
    lines = [f"{number:05}" for number in range(20_000)]
    sample = sample_lines(lines, max_characters=20_000, seed=0)
    assert 10_000 < sum(map(len, sample)) <= 20_000
    assert sample == sorted(sample)
    quarters = np.bincount([int(line) // 5000 for line in sample])
    assert quarters.min() > 0.8 * quarters.mean()
    assert sample == sample_lines(iter(lines), max_characters=20_000, seed=0)
    shuffled = random.Random(0).sample(lines, 100)
    assert sample_lines(shuffled, max_characters=500, seed=0) == shuffled


@dataclass
class Lines:
    """A source of documents of one line; ``opened`` counts its readings."""

    name: str
    size: int | None
    opened: int = 0

    def passages(self, on_read):
        self.opened += 1
        return (Passage(f"{self.name[0]}{number:08}\n".encode(), True) for number in range((self.size or 100_000) // 10))


@pytest.mark.parametrize(("sizes", "expected"), [((300_000, 100_000), (30_000, 10_000)), ((None, None), (20_000, 20_000))])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_large_file_is_read_for_the_vocabulary_in_proportion_to_its_size(sizes, expected, seed):
    sources = [Lines(name, size) for name, size in zip("ab", sizes, strict=True)]
    counts = Counter(line[0] for line in training_lines(sources, Split(["train"], 0, seed, 2), 40_000))
    assert [counts[name] * 10 for name in "ab"] == pytest.approx(expected, rel=0.1)


def test_few_of_many_files_are_read_for_the_vocabulary_and_all_of_little_text():
    sources = [Lines("a", 1_000) for _ in range(1_000)]
    lines = [*training_lines(sources, Split(["train"], 0, 1, 1000), 64_000)]
    assert 64 * 100 - 1 <= len(lines) <= 64 * 100 + 64
    assert sum(source.opened for source in sources) <= 65  # the first, in which there must be a document, may have no part
    assert len([*training_lines(sources, Split(["train"], 0, 1, 1000), 1_000_000)]) == 100_000


@pytest.mark.parametrize(("size", "files", "enough"), [(1_000, 2_000, 500_000), (None, 20, 1_900_000)])
def test_other_files_make_up_for_those_that_are_too_short(size, files, enough):
    sources = [Lines("a", size) for _ in range(files)]
    lines = [*training_lines(sources, Split(["train"], 0, 1, files), enough)]
    assert 10 * len(lines) == pytest.approx(enough, rel=0.06)


def test_lines_with_sentencepieces_own_character_are_learned_from():
    model = train(["abc ▅ xyz", "abc def"] * 50, vocab_size=16, model_type="unigram", character_coverage=1.0)
    assert {*"xyz"} <= {letter for symbol in LineEncoder({SENTENCEPIECE: model}).symbols[4:-1] for letter in symbol}


def test_long_lines_are_learned_from():
    """sentencepiece leaves out lines above 4192 bytes unless told otherwise."""
    words = random.Random(0).choices(["one", "two", "three"], k=2000)
    tokenizer = LineEncoder(
        {SENTENCEPIECE: train([" ".join(words)], vocab_size=15, model_type="unigram", character_coverage=1.0)}
    )
    assert {*"onetwhr"} <= {letter for symbol in tokenizer.symbols[4:-1] for letter in symbol}
