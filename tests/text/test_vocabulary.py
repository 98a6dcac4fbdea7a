"""Pieces and their characters."""

import shutil
from unicodedata import combining

import pytest
from fairseq.data import indexed_dataset
from fairseq.data.encoders.gpt2_bpe_utils import get_encoder
from hypothesis import given, settings
from hypothesis import strategies as st
from world import make_english

from fairseq_posenc.cli import main
from fairseq_posenc.text.vocabulary import Vocabulary

TRICKY = "  Über  the “café”,\tｆｕｌｌ ﬁne 1,250 €\u00a0now 𝔘 x² \x85end e\u0301 "


@pytest.fixture(scope="module")
def vocabulary(data_bin):
    return Vocabulary(data_bin)


def assert_covers(text, encoding):
    """Spans are in order, inside the text, do not begin with white space, and leave out nothing but white space and accents."""
    spans = list(zip(encoding.begins.tolist(), encoding.ends.tolist(), strict=True))
    assert all(0 <= begin <= end <= len(text) for begin, end in spans)
    assert spans == sorted(spans)
    assert not any(text[begin].isspace() for begin, end in spans if end > begin)
    covered = {place for begin, end in spans for place in range(begin, end)}
    assert [c for place, c in enumerate(text) if place not in covered and not c.isspace() and not combining(c)] == []


def test_words_have_their_characters(vocabulary):
    text = "The red ball  is round."
    encoding = vocabulary.encode(text)
    pieces = [text[begin:end] for begin, end in zip(encoding.begins, encoding.ends, strict=True)]
    assert "".join(pieces) == "Theredballisround."
    assert [vocabulary.dictionary[i].replace("▁", "") for i in encoding.ids if i != vocabulary.dictionary.unk()] == [
        piece for piece, i in zip(pieces, encoding.ids, strict=True) if i != vocabulary.dictionary.unk()
    ]


@pytest.mark.parametrize("kind", ["data_bin", "gpt2_bin", "wordpiece_bin"])
def test_offsets_of_text_that_normalisation_changes(kind, request):
    chosen = Vocabulary(request.getfixturevalue(kind))
    assert_covers(TRICKY, chosen.encode(TRICKY))
    assert len(chosen.encode("")) == 0


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), max_size=30))
def test_offsets_of_any_text(vocabulary, text):
    encoding = vocabulary.encode(text)
    assert all(0 <= begin <= end <= len(text) for begin, end in zip(encoding.begins, encoding.ends, strict=True))
    assert (encoding.begins[1:] >= encoding.begins[:-1]).all()
    assert (encoding.ends[1:] >= encoding.ends[:-1]).all()


def test_gpt2_pieces(gpt2_bin):
    vocabulary = Vocabulary(gpt2_bin)
    encoding = vocabulary.encode("red é")
    symbols = [vocabulary.dictionary[i] for i in encoding.ids]
    assert symbols[0] == "257"  # "red"
    assert len(symbols) == 4  # red, the space, and the two bytes of é
    assert list(zip(encoding.begins, encoding.ends, strict=True)) == [(0, 3), (4, 4), (4, 5), (4, 5)]


@settings(max_examples=200, deadline=None)
@given(
    st.text(
        alphabet=[*"redball's 12, ", *"\t\n\r\x0b\x1c\x85\xa0\u200b\u3000", *"éßİǅ²½Ⅷ٣漢€𝔘👩\u200d\u0301\ufeff\ue000"],
        max_size=30,
    )
)
def test_gpt2_agrees_with_fairseqs_own(gpt2_bin, text):
    """Another implementation of the same tokenizer; that one knows no places, but its tokens' lengths in bytes give them."""
    own = get_encoder(str(gpt2_bin / "encoder.json"), str(gpt2_bin / "vocab.bpe"))
    numbers = own.encode(text)
    tokenizer = Vocabulary(gpt2_bin).tokenizer
    found = tokenizer.encode(text)
    assert found.ids.tolist() == tokenizer.encode_lines([text])[0] == numbers
    assert tokenizer.decode([str(number) for number in numbers]) == own.decode(numbers) == text
    starts = [len(text[:i].encode()) for i in range(len(text) + 1)]
    place = 0
    for number, begin, end in zip(numbers, found.begins, found.ends, strict=True):
        assert starts[begin] <= place < starts[begin + 1]
        place += len(own.decoder[number])
        assert starts[end - 1] < place <= starts[end]


def test_wordpiece(wordpiece_bin):
    vocabulary = Vocabulary(wordpiece_bin)
    encoding = vocabulary.encode("A réd Ball x3 ☃")
    symbols = [vocabulary.dictionary[i] for i in encoding.ids]
    assert symbols == ["a", "red", "ball", "x", "##3", "<unk>"]
    assert list(zip(encoding.begins, encoding.ends, strict=True)) == [(0, 1), (2, 5), (6, 10), (11, 12), (12, 13), (14, 15)]


@pytest.mark.parametrize("kind", ["data_bin", "gpt2_bin", "wordpiece_bin"])
def test_prepared_text_has_the_same_ids(kind, request, tmp_path):
    """``prepare --vocabulary`` and fine-tuning cut text alike, also where the dictionary is in another order."""
    folder = request.getfixturevalue(kind)
    lines = ["red ball", "The red, ball is round 42.", "Über dem “café”", "x² 𝔘 €"]
    (tmp_path / "text.txt").write_text("\n\n".join(lines), "utf-8")
    (tmp_path / "valid.txt").write_text("red ball", "utf-8")
    text, valid, out = str(tmp_path / "text.txt"), str(tmp_path / "valid.txt"), tmp_path / "out"
    assert main(["prepare", text, "--valid", valid, "--vocabulary", str(folder), "--out", str(out), "--workers", "1"]) == 0
    items = indexed_dataset.MMapIndexedDataset(str(out / "train"))
    for vocabulary in (Vocabulary(folder), Vocabulary(out)):
        assert [items[2 * i][:-1].tolist() for i in range(4)] == [vocabulary.encode(line).ids.tolist() for line in lines]


def test_missing_parts_are_named(data_bin, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"dict\.txt"):
        Vocabulary(tmp_path)
    shutil.copy(data_bin / "dict.txt", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"sentencepiece\.model"):
        Vocabulary(tmp_path)


def test_parts_of_two_vocabularies_are_refused(data_bin, tmp_path):
    other = make_english(tmp_path / "b", ending="ßß ñandú")
    shutil.copy(data_bin / "sentencepiece.model", other)
    with pytest.raises(ValueError, match="not of one vocabulary"):
        Vocabulary(other)
    (other / "sentencepiece.model").write_bytes(b"no model")
    with pytest.raises(ValueError, match="not a sentencepiece model"):
        Vocabulary(other)
