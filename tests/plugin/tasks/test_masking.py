"""Masked-LM tasks: one set of masks for validation, whole words, and the criterion."""

import json
import re
import shlex
import shutil
import unicodedata
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq import tasks
from fairseq.data import Dictionary, ListDataset, MaskTokensDataset
from fairseq.data.encoders.gpt2_bpe_utils import bytes_to_unicode
from lines import write_databin
from omegaconf import OmegaConf
from untrained import write_chance

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.plugin.batches.masked_lm import FastMaskTokensDataset, WordBeginnings
from fairseq_posenc.text.data.databin import DatabinWriter
from fairseq_posenc.text.vocabulary import Vocabulary

BOS, PAD = 0, 1


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_databin(tmp_path_factory.mktemp("masks") / "bin", train=[9, 14, 30] * 8, valid=[9, 14, 30] * 8)


def load(data, name, split, seed, mask_whole_words=False, given=None, **trainer):
    """The samples of a split in their own order: inputs and targets."""
    options = {"tokens_per_sample": 16, "sample_break_mode": "complete_doc", "mask_whole_words": mask_whole_words}
    options |= given or {}
    task = tasks.setup_task(OmegaConf.create({"_name": name, "data": str(data), "seed": seed, **options}))
    task.load_dataset(split, **trainer)
    columns = task.dataset(split)
    while not hasattr(columns, "defn"):
        columns = columns.dataset
    columns.set_epoch(1)
    items = [columns[i] for i in range(len(columns))]
    return [item["net_input.src_tokens"].tolist() for item in items], [item["target"].tolist() for item in items]


@pytest.mark.parametrize("name", ["masked_lm", "masked_lm_static", "masked_lm_sentence_order"])
def test_validation_has_the_same_masks_for_every_seed(name, data):
    inputs, targets = load(data, name, "valid", 1)
    assert (inputs, targets) == load(data, name, "valid", 7)
    assert {sample[0] for sample in inputs} == {BOS}
    assert {sample[0] for sample in targets} == {PAD}
    assert any(token != PAD for sample in targets for token in sample)


@pytest.mark.parametrize("name", ["masked_lm", "masked_lm_static", "masked_lm_sentence_order"])
def test_random_words_by_counts_need_counts(name, data, tmp_path):
    """Of counts that are all 0, as converted dictionaries have them, every random word would be <s>."""
    options = {"freq_weighted_replacement": True, "random_token_prob": 0.9, "leave_unmasked_prob": 0.05}
    assert BOS not in {token for sample in load(data, name, "valid", 1, given=options)[0] for token in sample[1:]}
    folder = shutil.copytree(data, tmp_path / "bin")
    path = folder / "dict.txt"
    path.write_text(re.sub(" [0-9]+$", " 0", path.read_text("utf-8"), flags=re.MULTILINE), "utf-8")
    with pytest.raises(InputError, match="--freq-weighted-replacement"):
        load(folder, name, "valid", 1, given=options)


@pytest.mark.parametrize("name", ["masked_lm", "masked_lm_static"])
def test_permuted_validation_predicts_the_same_words_from_the_same_words_in_another_order(name, data):
    inputs, targets = load(data, name, "valid", 1)
    permuted, same = load(data, name, "permuted", 7)
    assert same == targets
    assert permuted != inputs
    for before, after, target in zip(inputs, permuted, targets, strict=True):
        assert sorted(before) == sorted(after)
        assert all(x == y for i, (x, y) in enumerate(zip(before, after, strict=True)) if i == 0 or target[i] != PAD)


@pytest.mark.parametrize("options", [{"pack_documents": True}, {"document_mask": True, "sample_break_mode": "complete"}], ids=str)
def test_permuted_words_stay_in_their_documents(options, tmp_path):
    """Each word is predicted from the words of its document, in another order, and documents end where they ended."""
    data = write_databin(tmp_path, valid=[9, 4, 1] * 20)
    options |= {"mask_prob": 0.3, "tokens_per_sample": 48}
    inputs, targets = load(data, "masked_lm_static", "valid", 1, given=options)
    permuted, same = load(data, "masked_lm_static", "permuted", 7, given=options)
    assert same == targets
    task = tasks.setup_task(OmegaConf.create({"_name": "masked_lm_static", "data": str(data), **options}))
    several = moved = 0
    for row in zip(inputs, permuted, targets, strict=True):
        before, after, target = map(torch.tensor, row)
        starts = [task.document_starts(torch.where(target == PAD, seen, target)[None])[0] for seen in (before, after)]
        assert torch.equal(*starts)
        for start in starts[0].unique():
            own = starts[0] == start
            assert torch.equal(before[own].sort().values, after[own].sort().values)
        several += len(starts[0].unique()) > 1
        moved += not torch.equal(before, after)
    assert several
    assert moved


def test_validation_takes_batches_by_tokens(data):
    """fairseq-validate has no other size without --batch-size."""
    task = tasks.setup_task(OmegaConf.create({"_name": "masked_lm_static", "data": str(data), "tokens_per_sample": 16}))
    task.load_dataset("valid")
    limits = {"max_tokens": 64, "max_sentences": None, "max_positions": 16, "required_batch_size_multiple": 8}
    batches = task.get_batch_iterator(task.dataset("valid"), **limits).next_epoch_itr(shuffle=False)
    assert sum(len(batch["id"]) for batch in batches) == len(task.dataset("valid"))


def test_training_is_masked_as_by_fairseq(data):
    found = [load(data, "masked_lm", "train", seed, data_selector=None) for seed in (1, 7, 1)]
    assert found[0] == found[2] != found[1]
    assert any(sample[0] == BOS for _, targets in found for sample in targets)


@pytest.mark.thorough
def test_training_validation_and_extrapolation_report_one_loss(tmp_path, run):
    """With another seed, another batch size, and two processes."""
    data = write_chance(tmp_path)
    for kind in ("bin", "idx"):
        shutil.copy(data / f"valid.{kind}", data / f"train.{kind}")
    flags = shlex.split("--task masked_lm --tokens-per-sample 16 --sample-break-mode complete --cpu --log-format json")
    model = shlex.split("--arch roberta_t5_tiny --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 --encoder-attention-heads 2")
    step = shlex.split("--criterion masked_lm --optimizer adam --lr 0.1 --batch-size 64 --max-update 2")
    trained = run("fairseq-train", data, *flags, *model, *step, "--save-dir", tmp_path, cwd=tmp_path)
    checkpoint = tmp_path / "checkpoint_last.pt"
    validate = [data, *flags, "--path", checkpoint, "--seed", 5, "--batch-size", 25]
    validated = [run("fairseq-validate", *validate, processes=number, cwd=tmp_path).stdout for number in (1, 2)]
    losses = [
        float(found) for output in (trained.stdout, *validated) for found in re.findall(r'"valid_loss": "([0-9.]+)"', output)
    ]
    assert len(losses) == 4  # both processes report it
    run("fairseq-posenc", "extrapolate", checkpoint, "--data", data, "--lengths", 16, "--out", tmp_path / "out")
    measured = json.loads((tmp_path / "out/results.json").read_text())["lengths"][0]["loss"]
    assert losses == pytest.approx([measured] * len(losses), abs=6e-4)  # fairseq rounds to three digits


def sentencepiece(folder):
    import sentencepiece as library

    (folder / "text").write_text("the cat sat on a mat while dogs ran over green hills\n" * 20)
    library.SentencePieceTrainer.train(input=str(folder / "text"), model_prefix=str(folder / "sentencepiece"), vocab_size=30,
                                       hard_vocab_limit=False, minloglevel=2)  # fmt: skip
    (folder / "sentencepiece.vocab").unlink()
    model = library.SentencePieceProcessor(model_file=str(folder / "sentencepiece.model"))
    pieces = [model.id_to_piece(number) for number in range(3, model.get_piece_size())]
    return pieces, [piece.startswith("▁") for piece in pieces]


def plain(piece):
    """Whether a token of byte-level BPE holds no part of a character, None if it does: only context tells the character."""
    return True if piece.isascii() or piece[0] in {bytes_to_unicode()[32], bytes_to_unicode()[10]} else None


def gpt2(folder):
    alphabet = bytes_to_unicode()
    pieces = [*alphabet.values(), "at", alphabet[32] + "c"]
    (folder / "encoder.json").write_text(json.dumps({piece: number for number, piece in enumerate(pieces)}))
    (folder / "vocab.bpe").write_text(f"#version: 0.2\na t\n{alphabet[32]} c\n", encoding="utf-8")
    return [str(number) for number in range(len(pieces))], [plain(piece) and piece[0] == alphabet[32] for piece in pieces]


def wordpiece(folder):
    library = pytest.importorskip("tokenizers", reason="tokenizers is not installed: pip install -e '.[hf]'")
    pieces = ["cat", "sat", *"abc", "##a", "##b", "##at"]
    model = library.models.WordPiece({piece: number for number, piece in enumerate(["[UNK]", *pieces])}, unk_token="[UNK]")
    library.Tokenizer(model).save(str(folder / "tokenizer.json"))
    return pieces, [not piece.startswith("##") for piece in pieces]


def byte_level(folder):
    """As of an imported EuroBERT, whose tokens are the symbols."""
    library = pytest.importorskip("tokenizers", reason="tokenizers is not installed: pip install -e '.[hf]'")
    pieces = [*bytes_to_unicode().values(), "at", "Ġc"]
    model = library.models.BPE({piece: number for number, piece in enumerate(pieces)}, [("a", "t"), ("Ġ", "c")])
    tokenizer = library.Tokenizer(model)
    tokenizer.decoder = library.decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    return pieces, [plain(piece) and piece[0] == "Ġ" for piece in pieces]


@pytest.mark.parametrize("vocabulary", [sentencepiece, gpt2, wordpiece, byte_level])
def test_whole_words_are_masked(vocabulary, tmp_path):
    """Either all pieces of a word or none, in about as many words as --mask-prob says, and the same in both tasks."""
    symbols, begins = vocabulary(tmp_path)
    dictionary = Dictionary()
    for symbol in symbols:
        dictionary.add_symbol(symbol)
    dictionary.save(str(tmp_path / "dict.txt"))
    starts = [True] * dictionary.nspecial + begins
    usable = [number for number, start in enumerate(starts) if start is not None and number >= dictionary.nspecial]
    rng = np.random.default_rng(0)
    with DatabinWriter(tmp_path / "train", np.dtype(np.uint16), len(dictionary)) as writer:
        for _ in range(60):
            line = np.append(rng.choice(usable, 40), dictionary.eos())
            writer.add(line, np.array([len(line)]))
        writer.finish()
    options = {"data_selector": None, "mask_whole_words": True}
    inputs, targets = load(tmp_path, "masked_lm", "train", 1, **options)
    assert (inputs, targets) == load(tmp_path, "masked_lm_static", "train", 1, **options)
    masked = words = 0
    for sample, target in zip(inputs, targets, strict=True):
        original = [token if wanted == PAD else wanted for token, wanted in zip(sample, target, strict=True)]
        for i, token in enumerate(original):
            if starts[token] or original[i - 1] < dictionary.nspecial:
                words += 1
                masked += target[i] != PAD
            else:
                assert (target[i] != PAD) == (target[i - 1] != PAD)
    assert 0.1 < masked / words < 0.2


TEXTS = (
    "我们在北京使用PyTorch训练模型。hello 世界2024年", "これはペンです。カタカナとSQLの話、ok", "สวัสดีครับผมชื่อPeterอยู่ที่ Bangkok นะ",
    "ខ្ញុំស្រលាញ់ភាសាខ្មែរ និងLinux", "ສະບາຍດີຂ້ອຍມາຈາກລາວ ແລະpip", "မင်္ဂလာပါ ခင်ဗျား",
    "the cats sat, naïve café 42 times; Tiếng Việt hợp lý", "हिन्दी शब्द और भाषा", "한국어 단어와 문장",
)  # fmt: skip
SCRIPTS = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "KHMER", "LAO", "MYANMAR", "IDEOGRAPHIC")


def learn_sentencepiece(folder, **options):
    import sentencepiece as library

    (folder / "text").write_text("\n".join(TEXTS * 9))
    library.SentencePieceTrainer.train(input=str(folder / "text"), model_prefix=str(folder / "sentencepiece"), minloglevel=2,
                                       normalization_rule_name="identity", hard_vocab_limit=False, **options)  # fmt: skip
    model = library.SentencePieceProcessor(model_file=str(folder / "sentencepiece.model"))
    return [model.id_to_piece(number) for number in range(3, model.get_piece_size())]


def learn_bytes(folder):
    library = pytest.importorskip("tokenizers", reason="tokenizers is not installed: pip install -e '.[hf]'")
    tokenizer = library.Tokenizer(library.models.BPE())
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = library.pre_tokenizers.ByteLevel.alphabet()
    trainer = library.trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.model.save(str(folder))
    (folder / "vocab.json").rename(folder / "encoder.json")
    (folder / "merges.txt").rename(folder / "vocab.bpe")
    return [str(number) for number in range(tokenizer.get_vocab_size())]


def learn_wordpiece(folder):
    library = pytest.importorskip("tokenizers", reason="tokenizers is not installed: pip install -e '.[hf]'")
    tokenizer = library.Tokenizer(library.models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = library.normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(TEXTS, library.trainers.WordPieceTrainer(vocab_size=300, show_progress=False))
    tokenizer.save(str(folder / "tokenizer.json"))
    return [tokenizer.id_to_token(number) for number in range(tokenizer.get_vocab_size())]


@pytest.mark.parametrize(
    "learn",
    [
        learn_bytes, learn_wordpiece, lambda folder: learn_sentencepiece(folder, vocab_size=300),
        lambda folder: learn_sentencepiece(folder, vocab_size=600, model_type="bpe"),
        lambda folder: learn_sentencepiece(folder, vocab_size=420, byte_fallback=True, character_coverage=0.98),
    ],
    ids=["bytes", "wordpiece", "unigram", "bpe", "byte_fallback"],
)  # fmt: skip
def test_words_begin_at_every_piece_where_no_spaces_are(learn, tmp_path):
    """By the text: after a space or the start, at the script's characters but for marks, and after them; never within one."""
    dictionary = Dictionary()
    for symbol in learn(tmp_path):
        dictionary.add_symbol(symbol)
    dictionary.save(str(tmp_path / "dict.txt"))
    beginnings = WordBeginnings(SimpleNamespace(data=str(tmp_path)), dictionary)
    vocabulary = Vocabulary(tmp_path)
    found = set()
    for text in TEXTS:
        encoding = vocabulary.encode(text)
        row = beginnings.gather(0, torch.tensor([BOS, *encoding.ids.tolist(), 2]))
        assert [row[0], row[-1]] == [1, 1]
        reached, after_space = 0, False
        for begin, end, begins in zip(encoding.begins.tolist(), encoding.ends.tolist(), row[1:-1].tolist(), strict=True):
            before, first = text[begin - 1] if begin else " ", text[begin]
            mark = unicodedata.category(first)[0] == "M"
            without_spaces = False
            if begin < reached or begin == end:  # the rest of a character, or a space alone
                expected = begin == end
            else:
                without_spaces = any(unicodedata.name(character).startswith(SCRIPTS) for character in (first, before))
                expected = (before == " " and not after_space) or (without_spaces and not mark)
            reached = max(reached, end)
            after_space = begin == end
            if begin == end or (mark and end == begin + 1):  # white space; and a mark may be in parts, of which the first begins
                continue
            if (
                learn is learn_wordpiece
                and not without_spaces
                and {unicodedata.category(c)[0] for c in (before, first)} & set("PZ")
            ):
                expected = True  # at punctuation, too
            assert begins == expected, (text, text[begin:end])
            found.add(bool(begins))
    assert found == {True, False}


@pytest.mark.parametrize(("line", "warned"), [("supercalifragilistic" * 30, True), ("of cats and mice in a house " * 20, False)])
def test_samples_without_a_mask_are_warned_of(line, warned, tmp_path, caplog):
    from commands import status_of

    text = tmp_path / "text.txt"
    text.write_text("\n\n".join([line] * 40 + ["a line of its own"]))
    assert status_of("prepare", text, "--out", tmp_path / "bin", "--workers", 1) == 0
    caplog.set_level("INFO")
    load(tmp_path / "bin", "masked_lm", "train", 1, mask_whole_words=True, data_selector=None)
    found = [record for record in caplog.records if "--mask-whole-words" in record.getMessage()]
    assert [record.levelname for record in found] == ["WARNING" if warned else "INFO"]


def test_whole_words_need_a_tokenizer(data):
    with pytest.raises(FileNotFoundError, match=r"sentencepiece\.model"):
        load(data, "masked_lm", "valid", 1, mask_whole_words=True)


@pytest.mark.parametrize("random", [0.1, 0.0])
@pytest.mark.parametrize("unmasked", [0.1, 0.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_masks_are_those_that_fairseq_draws(random, unmasked, weighted):
    """Of inputs and targets, and of two epochs; NumPy's global generator is left alone."""
    dictionary = Dictionary()
    for number in range(40):
        dictionary.add_symbol(f"w{number}", n=number + 1)
    dictionary.add_symbol("<mask>")
    rows = [torch.arange(4, 4 + n) for n in (1, 2, 7, 31, 32)]
    samples = ListDataset(rows, sizes=np.array([len(row) for row in rows]))
    options = dict(pad_idx=PAD, mask_idx=dictionary.index("<mask>"), seed=3, mask_prob=0.4, mask_whole_words=None)
    options |= dict(mask_multiple_length=1, mask_stdev=0.0, freq_weighted_replacement=weighted)
    options |= dict(random_token_prob=random, leave_unmasked_prob=unmasked)
    expected, found = (kind.apply_mask(samples, dictionary, **options) for kind in (MaskTokensDataset, FastMaskTokensDataset))
    state = np.random.get_state()[1].tolist()
    for epoch in range(1, 9):
        for of_fairseq, ours in zip(expected, found, strict=True):
            of_fairseq.set_epoch(epoch)
            ours.set_epoch(epoch)
            for index in range(len(rows)):
                assert ours[index].tolist() == of_fairseq.dataset[index].tolist()
            assert ours.sizes is of_fairseq.sizes
    assert np.random.get_state()[1].tolist() == state


def test_another_thread_may_read_another_sample_meanwhile():
    class Shared(FastMaskTokensDataset):
        _last = property(lambda self: ((1, 7), "of another thread"), lambda self, pair: None)
        __init__, epoch, _draw = lambda self: None, 1, lambda self, index: f"sample {index}"

    assert Shared()[3] == "sample 3"


@pytest.mark.parametrize("name", ["masked_lm", "masked_lm_static", "masked_lm_sentence_order"])
def test_masks_become_fewer(name, data):
    """The words of masks that go are visible and not predicted; their number falls linearly, and the update draws them."""
    options = {"tokens_per_sample": 16, "sample_break_mode": "complete_doc", "mask_prob": 0.5, "mask_prob_end": 0.125}
    task = tasks.setup_task(OmegaConf.create({"_name": name, "data": str(data), "seed": 1, "mask_prob_updates": 6, **options}))
    task.load_dataset("train", data_selector=None)
    dataset = task.dataset("train")
    dataset.rows = 24
    sample = dataset.collater([dataset[i] for i in range(24)])
    seen = []

    class Criterion:
        def __call__(self, model, sample):
            seen.append(sample)
            return torch.zeros((), requires_grad=True), 1, {}

    def whole(sample):
        """The words that the batch hides, in their places, and the inputs."""
        inputs, target = sample["net_input"]["src_tokens"], sample["target"]
        if name == "masked_lm_static":
            count = sample["sample_size"]
            places, target = sample["net_input"]["read_at"], torch.full(inputs.shape, PAD)
            kept = sample["target"] != PAD
            target.view(-1)[places[kept]] = sample["target"][kept]
            assert count == kept.sum()
        return torch.where(target == PAD, inputs, target), target != PAD

    words, every = whole(sample)
    optimizer = SimpleNamespace(backward=lambda loss: None)
    model = SimpleNamespace(train=lambda: None, set_num_updates=lambda update: None)
    for update in (0, 3, 3, 6, 9):
        task.train_step(sample, model, Criterion(), optimizer, update)
    counts = []
    for batch in seen:
        found, masked = whole(batch)
        assert torch.equal(found, words)
        assert not (masked & ~every).any()
        counts.append(int(masked.sum()))
    total = int(every.sum())
    assert counts == [total, *[round(total * 0.625)] * 2, *[round(total * 0.25)] * 2]
    targets = [batch["target"] for batch in seen]
    assert not torch.equal(targets[1], targets[2])  # of two micro-batches
    task.train_step(sample, model, Criterion(), optimizer, 3)
    assert torch.equal(seen[-1]["target"], targets[1])  # as after a restart
    assert not torch.equal(sample["target"], targets[-1])  # the batch itself is left as it was
