"""Exported and imported tokenizers give the ids of the data-bin's own, on raw text of every kind."""

import io
import random
import re
import shutil
import unicodedata

import pytest
import sentencepiece
import torch
from fairseq.data import indexed_dataset
from sentencepiece import sentencepiece_model_pb2
from small_models import make_model, save
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from fairseq_posenc import PosencRobertaModel
from fairseq_posenc.base.errors import InputError
from fairseq_posenc.cli import main
from fairseq_posenc.huggingface import fast_tokenizer
from fairseq_posenc.huggingface.vocabularies import read_vocabulary
from fairseq_posenc.text.vocabulary import LineEncoder, Vocabulary, read_files
from fairseq_posenc.text.vocabulary.normalization import JOINT, keys_of

TEXT = "the of and city house tiếng Việt ngôn ngữ été garçon 한국어 값 שָׁלוֹם اَلسَّلَامُ हिन्दी क़लम ไทย น้ำ 漢字 東京 12"
WORDS = [*TEXT.split(), "can't", "<ent>", "New-York", "ё", "й", "ガ"]
PARTS = [*"abdehinot  .,'-<>12A", *"\u0301\u0323\u0302\u05b8\u05c1\u064e\u0651\u093c\u0e49\u0345\u3099", *"éếữ한שاकน漢字☃ｆﬁ½ΩI"]
PARTS += [
    *"\u1112\u1161\u11ab\u200b\u200c\u200d\ufeff\u00a0\u3000\t\r\n\ue000\x01▁\U0001f469\U0001f3fd",
    "<ent>",
    "東京",
    "<0x41>",
    "İ",
    "☃→",
]
GENERAL = {"a default": {}, "no prefix": {"add_dummy_prefix": False}, "spaces kept": {"remove_extra_whitespaces": False}}
GENERAL |= {"bytes": {"byte_fallback": True}, "words kept": {"user_defined_symbols": ["<ent>", "1", "<ENT>", "<mask>", "ﬁ"]}}
GENERAL |= {"as it is": {"add_dummy_prefix": False, "remove_extra_whitespaces": False}}
GENERAL |= {"white space kept": {"user_defined_symbols": ["▁▁", "▁▁▁▁", "\t"], "remove_extra_whitespaces": False}}
GENERAL |= {"names of no text": {"control_symbols": ["☃→"]}}


def sentences():
    generator = random.Random(3)
    forms = ("NFC", "NFC", "NFD")
    return [unicodedata.normalize(generator.choice(forms), " ".join(generator.choices(WORDS, k=9))) for _ in range(400)]


def texts():
    generator = random.Random(4)
    mixed = ["".join(generator.choices(PARTS, k=generator.randint(1, 14))) for _ in range(300)]
    return [*mixed, *fast_tokenizer.RAW, *(unicodedata.normalize("NFD", f" {line}") for line in sentences()[:20])]


def train(kind, rule, **options):
    model = io.BytesIO()
    size = (
        dict(vocab_size=240 + 256 * ("byte_fallback" in options))
        if kind == "bpe"
        else dict(vocab_size=400, hard_vocab_limit=False)
    )
    options |= dict(model_type=kind, normalization_rule_name=rule, character_coverage=0.995, minloglevel=2)
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(sentences()), model_writer=model, **size, **options)
    return model.getvalue()


def write_bin(folder, model, more=()):
    encoder = LineEncoder({"sentencepiece.model": model})
    folder.mkdir(exist_ok=True)
    (folder / "sentencepiece.model").write_bytes(model)
    counts = encoder.dictionary.text([1] * len(encoder.symbols))
    (folder / "dict.txt").write_text(counts + "".join(f"{symbol} 1\n" for symbol in more), "utf-8")
    return Vocabulary(folder)


def exported(vocabulary, folder):
    """The tokenizer, as it is when it was written and read."""
    fast_tokenizer.save(fast_tokenizer.build(vocabulary, 512), folder)
    return AutoTokenizer.from_pretrained(folder)


def differing(fast, vocabulary):
    names = vocabulary.dictionary.symbols.__getitem__
    found = []
    for text in texts():
        ids, others = vocabulary.encode(text).ids.tolist(), fast(text, add_special_tokens=False)["input_ids"]
        special = any(token in unicodedata.normalize("NFKC", text) for token in fast.all_special_tokens)
        if ids != others and not special and text not in ("<ent>", "☃→"):
            found.append((text, [*map(names, ids)], [*map(names, others)]))
    return found


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("options", GENERAL)
@pytest.mark.parametrize("rule", ["nmt_nfkc", "identity"])
def test_sentencepiece(kind, rule, options, tmp_path):
    vocabulary = write_bin(tmp_path / "bin", train(kind, rule, **GENERAL[options]))
    fast = exported(vocabulary, tmp_path)
    assert differing(fast, vocabulary) == []
    every = [vocabulary.encode(text).ids.tolist() for text in texts() if "▁" not in text]
    every = [ids for ids in every if vocabulary.dictionary.unk() not in ids]
    assert len(every) > 20
    assert [fast.decode(ids) for ids in every] == [*map(vocabulary.decode, every)]


def test_pieces_of_several_words_are_spelled_with_their_spaces(tmp_path):
    model = train("unigram", "nmt_nfkc", split_by_whitespace=False, user_defined_symbols=["▁New▁York"])
    vocabulary = write_bin(tmp_path / "bin", model)
    ids = vocabulary.encode("New York of").ids.tolist()
    assert vocabulary.dictionary[ids[0]] == "▁New▁York"
    assert exported(vocabulary, tmp_path).decode(ids) == vocabulary.decode(ids) == "New York of"


def test_a_piece_that_the_normaliser_changes_is_named(tmp_path):
    """The library would look for the empty text everywhere, and take all memory."""
    vocabulary = write_bin(tmp_path / "bin", train("bpe", "nmt_nfkc", user_defined_symbols=["▁▁"]))
    with pytest.raises(InputError, match=r"'▁▁'.*--no-tokenizer"):
        fast_tokenizer.build(vocabulary, 512)


def test_normalisation_is_sentencepieces_own(tmp_path):
    """The map is read right, and every key, character and pair of a base and a mark becomes what sentencepiece makes of it."""
    model = train("unigram", "nmt_nfkc_cf", add_dummy_prefix=False, remove_extra_whitespaces=False)
    vocabulary = write_bin(tmp_path, model)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    normalizer = fast_tokenizer.build(vocabulary, 512).backend_tokenizer.normalizer
    keys = keys_of(sentencepiece_model_pb2.ModelProto.FromString(model).normalizer_spec.precompiled_charsmap)
    assert keys["ＡＢ"[0]] == "a"
    assert keys["e\u0301"] == "é"
    generator = random.Random(1)
    letters = [chr(c) for c in range(1, 0x2FFFF) if unicodedata.category(chr(c)) not in ("Cn", "Co", "Cs")]
    marks = [letter for letter in letters if unicodedata.combining(letter)]
    pairs = [generator.choice(letters[:30000]) + generator.choice(marks) + generator.choice(marks) for _ in range(20000)]
    texts = [*generator.sample(list(keys), 20000), *generator.sample(letters, 20000), *pairs]
    lines = [JOINT.join(texts[start : start + 100]) for start in range(0, len(texts), 100)]  # far faster than each alone
    for text in [*lines, *generator.sample(texts, 3000)]:
        assert normalizer.normalize_str(text).replace(" ", "▁") == processor.normalize(text), ascii(text)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_symbols_of_unknown_characters(kind, tmp_path):
    """As of fairseq-preprocess on the pieces of spm_encode: a run that is a symbol is it, and every other run is <unk>."""
    vocabulary = write_bin(tmp_path / "bin", train(kind, "nmt_nfkc"), ["☃", "☃→", "→☃☃"])
    index = vocabulary.dictionary.index
    for text, symbols in {"the ☃": ["☃"], "the ☃→": ["☃→"], "the →☃☃": ["→☃☃"], "the ☃☃": ["<unk>"], "the →": ["<unk>"]}.items():
        assert vocabulary.encode(text).ids.tolist()[-len(symbols) :] == [index(symbol) for symbol in symbols]
        assert (
            LineEncoder(  # as prepare reads them
                {"sentencepiece.model": train(kind, "nmt_nfkc"), "dict.given.txt": (tmp_path / "bin" / "dict.txt").read_bytes()}
            )
            .encode([text])[0]
            .tolist()[:-1]
            == vocabulary.encode(text).ids.tolist()
        )
    assert differing(exported(vocabulary, tmp_path), vocabulary) == []
    with pytest.raises(InputError, match=r"'elsewhere' of .* none of the tokenizer's pieces"):
        write_bin(tmp_path / "other", train(kind, "nmt_nfkc"), ["elsewhere"])


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_pieces_that_the_dictionary_lacks(kind, prepared, tmp_path, capsys):
    """They are <unk>, for which the tokenizers library has no form, as each token has a number: the export says so.

    Where others are merged from them, it is refused.
    """
    folder = shutil.copytree(prepared, tmp_path / "bin")
    tokens, model = len(Vocabulary(folder).dictionary), train(kind, "nmt_nfkc")
    vocabulary = write_bin(tmp_path / "whole", model)
    (folder / "sentencepiece.model").write_bytes(model)
    symbols = [symbol for symbol in vocabulary.dictionary.symbols[4:-1] if symbol not in ("o", "▁the", "e")]
    more = [f"madeupword{i:04d}" for i in range(tokens)]
    names = [*[*symbols, *more][: tokens - 5], "<mask>"]
    (folder / "dict.txt").write_text("".join(f"{name} 1\n" for name in names), "utf-8")
    cut = Vocabulary(folder)
    assert cut.encode("the").ids.tolist() == [cut.dictionary.unk()]
    path = save(make_model("roberta_tisa_tiny", folder), tmp_path / "checkpoint.pt", folder)
    arguments = ["export-hf", str(path), "--data", str(folder), "--head", "lm", "--out", str(tmp_path / "out")]
    assert main(arguments) == (0 if kind == "unigram" else 2)
    said = capsys.readouterr()
    if kind == "unigram":
        assert "Text with a piece that dict.txt lacks is an exception" in said.out
    else:
        assert "does not cut text as" in said.err
        assert main([*arguments, "--no-tokenizer"]) == 0


def test_pieces_named_as_fairseqs_symbols_and_of_white_space(tmp_path):
    model = train("unigram", "identity", user_defined_symbols=["<mask>", "<pad>", "\n", "\t", "\u00a0x"])
    vocabulary = write_bin(tmp_path / "bin", model)
    symbols = vocabulary.dictionary.symbols
    assert symbols[-1] == "<mask>"
    assert symbols.count("<pad>") == 1
    assert [symbols[i] for i in vocabulary.encode("a <mask> <pad>").ids].count("<unk>") == 2
    ids = vocabulary.encode("a\te\u00a0x").ids.tolist()
    assert [symbols[i] for i in ids if symbols[i].startswith("madeup")] == [r"madeupword\t", r"madeupword\xa0x"]
    assert vocabulary.decode(ids) == "a\te\u00a0x"
    assert exported(vocabulary, tmp_path)("a\te\u00a0x", add_special_tokens=False)["input_ids"] == ids


def test_text_after_a_mask_continues(tmp_path):
    """In fill_mask and in the exported tokenizer alike; text that spells <unk> is one unknown token in both."""
    for number, options in enumerate(GENERAL.values()):
        vocabulary = write_bin(tmp_path / f"bin{number}", train("unigram", "nmt_nfkc", **options))
        fast, mask = exported(vocabulary, tmp_path), vocabulary.dictionary.index("<mask>")
        for before, after in [
            ("the", " of"),
            ("the", "."),
            ("", " the"),
            ("the", "漢字"),
            ("the", ""),
            ("(", ")"),
            ("the", ", of"),
        ]:
            following = vocabulary.encode(JOINT + after)
            ids = [*vocabulary.encode(before).ids.tolist(), mask, *following.ids[following.ends > 1].tolist()]
            assert fast(f"{before}<mask>{after}", add_special_tokens=False)["input_ids"] == ids, (options, before, after)
        if "byte_fallback" not in options:
            text = "the <unk> of <unk> the"
            assert vocabulary.encode(text).ids.tolist() == fast(text, add_special_tokens=False)["input_ids"]
            assert (vocabulary.encode(text).ids == vocabulary.dictionary.unk()).sum() == 2


def test_text_that_spells_unk(tmp_path, capsys):
    """Rare words that are <unk> already are one token each; their number is told, and no advice that does not help."""
    lines = [f"the city <unk> of house {i % 7}\n{'' if i % 5 else chr(10)}" for i in range(200)]
    (tmp_path / "text.txt").write_text("".join(lines), "utf-8")
    out = tmp_path / "bin"
    assert main(["prepare", str(tmp_path / "text.txt"), "--out", str(out), "--workers", "1"]) == 0
    said = capsys.readouterr().err
    counts = re.findall(r"\(([0-9]+) where the text itself has <unk>\)", said)
    assert sum(map(int, counts)) == 200
    assert "WARNING" not in said
    vocabulary = Vocabulary(out)
    items = indexed_dataset.MMapIndexedDataset(str(out / "train"))
    assert (items[0] == vocabulary.dictionary.unk()).sum() == 1
    assert items[0].tolist()[:-1] == vocabulary.encode(lines[0].strip()).ids.tolist()
    assert differing(exported(vocabulary, tmp_path / "hf"), vocabulary) == []


def test_the_name_of_xlm_rs_model(tmp_path):
    model = train("unigram", "nmt_nfkc")
    named = write_bin(tmp_path / "bin", model)
    (tmp_path / "bin" / "sentencepiece.model").rename(tmp_path / "bin" / "sentencepiece.bpe.model")
    for line in sentences()[:9]:
        assert Vocabulary(tmp_path / "bin").encode(line).ids.tolist() == named.encode(line).ids.tolist()
    assert [*read_files(tmp_path / "bin")] == ["sentencepiece.bpe.model", "dict.given.txt"]


def test_a_data_bin_without_a_tokenizer_is_exported_without_one(prepared, tmp_path, capsys):
    data = shutil.copytree(prepared, tmp_path / "bin", ignore=shutil.ignore_patterns("sentencepiece.model"))
    path = save(make_model("roberta_tisa_tiny", data), tmp_path / "checkpoint.pt", data)
    arguments = ["export-hf", str(path), "--data", str(data), "--head", "lm", "--out", str(tmp_path / "out")]
    assert main(arguments) == 2
    assert "has nothing that cuts text into symbols" in capsys.readouterr().err
    assert main([*arguments, "--no-tokenizer"]) == 0
    assert not (tmp_path / "out" / "tokenizer.json").exists()
    assert (tmp_path / "out" / "fairseq" / "dict.txt").exists()


def test_fill_mask_reads_text_as_the_exported_pipeline(prepared, tmp_path):
    path = save(make_model("roberta_tisa_tiny", prepared), tmp_path / "checkpoint.pt", prepared)
    hub = PosencRobertaModel.from_pretrained(str(tmp_path), path.name, str(prepared))
    fast, seen = exported(hub.vocabulary, tmp_path / "hf"), []
    hub.model.register_forward_pre_hook(lambda module, args: seen.append(args[0][0].tolist()))
    for text in ("w1 <mask> w2", "w1 <mask>.", "<mask> w3", "(<mask>)"):
        filled = hub.fill_mask(text, topk=3)
        assert seen[-1] == fast(text)["input_ids"]
        assert len(filled) == 3
        assert all(
            found.strip() == text.replace(" <mask>", "<mask>").replace("<mask>", piece).strip() for found, _, piece in filled
        )
    with pytest.raises(InputError, match="has 2 <mask>"):
        hub.fill_mask("<mask> <mask>")


NAMES = dict(bos_token="<s>", cls_token="<s>", eos_token="</s>", sep_token="</s>", pad_token="<pad>", unk_token="<unk>")


def wordpiece():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(sentences(), trainers.WordPieceTrainer(vocab_size=300, special_tokens=special))
    return tokenizer, dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special, strict=True))


def wordlevel():
    tokenizer, names = wordpiece()
    words = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    words.normalizer, words.pre_tokenizer = tokenizer.normalizer, tokenizer.pre_tokenizer
    words.train_from_iterator(sentences(), trainers.WordLevelTrainer(vocab_size=300, special_tokens=list(names.values())))
    return words, names


def byte_level(normalizer=None):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    special, alphabet = ["<s>", "<pad>", "</s>", "<unk>"], pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(sentences(), trainer)
    return tokenizer, NAMES | dict(mask_token=AddedToken("<mask>", lstrip=True))


def unigram():
    model = sentencepiece_model_pb2.ModelProto.FromString(train("unigram", "nmt_nfkc"))
    special = [(name, 0.0) for name in ("<s>", "<pad>", "</s>", "<unk>")]
    tokenizer = Tokenizer(models.Unigram([*special, *((p.piece, p.score) for p in model.pieces[3:]), ("<mask>", 0.0)], 3))
    charsmap = normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap)
    tokenizer.normalizer = normalizers.Sequence([charsmap, normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", "always")
    tokenizer.decoder = decoders.Metaspace("▁", "always")
    return tokenizer, NAMES | dict(mask_token=AddedToken("<mask>", lstrip=True))


ADDED = [
    *(AddedToken(text) for text in ("covid", "covid-19", "co", "new york", "ｆull")),
    AddedToken("[e1]", special=True),
    AddedToken("<left>", lstrip=True),
    AddedToken("<right>", rstrip=True, normalized=False),
    AddedToken("Single", single_word=True),
    AddedToken("Ünï", normalized=False),
]


@pytest.mark.parametrize("added", [[], ADDED], ids=["none", "added"])
@pytest.mark.parametrize("kind", [wordpiece, wordlevel, byte_level, lambda: byte_level(normalizers.NFC()), unigram])
def test_added_tokens_survive_import_and_export(kind, added, tmp_path):
    tokenizer, names = kind()
    source = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
    source.add_tokens(added)
    source.save_pretrained(tmp_path / "source")
    source = AutoTokenizer.from_pretrained(tmp_path / "source")
    imported = read_vocabulary(str(tmp_path / "source"), len(source))
    imported.write(tmp_path / "bin")
    vocabulary, generator = Vocabulary(tmp_path / "bin"), random.Random(2)
    fast = exported(vocabulary, tmp_path / "exported")
    parts = [
        "-19",
        "s",
        "[E1]",
        "NEW YORK",
        "Singles",
        "single",
        "ünï",
        "full",
        " ",
        "the",
        ".",
        "\u0301",
        "한",
        "\u1112\u1161\u11ab",
    ]
    parts += [token.content for token in ADDED]
    for text in [*("".join(generator.choices(parts, k=generator.randint(1, 8))) for _ in range(400)), *fast_tokenizer.RAW]:
        expected = source(text, add_special_tokens=False)["input_ids"]
        found = vocabulary.encode(text).ids
        assert imported.order[torch.from_numpy(found)].tolist() == expected, text
        assert fast(text, add_special_tokens=False)["input_ids"] == found.tolist(), text


def test_an_import_or_export_that_cuts_otherwise_is_named(tmp_path):
    vocabulary = write_bin(tmp_path / "bin", train("unigram", "nmt_nfkc"))
    fast = fast_tokenizer.build(vocabulary, 512)
    fast.backend_tokenizer.normalizer = normalizers.NFC()

    def encode(text):
        return vocabulary.encode(text).ids.tolist()

    texts = fast_tokenizer.raw_texts([], [])
    said = fast_tokenizer.disagreement(fast, encode, texts)
    assert " becomes " in said
