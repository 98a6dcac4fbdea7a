"""Minimal pairs: scores against a second reading of both metrics, files of pairs, and the command's table."""

import json
import unicodedata
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from commands import status_of
from scipy.special import log_softmax
from tokenizers import Tokenizer, models, pre_tokenizers

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.plugin.checkpoint.checkpoint import Checkpoint
from fairseq_posenc.study.pairs.data import Pair, read_pairs, words
from fairseq_posenc.study.pairs.models import read
from fairseq_posenc.study.pairs.report import accuracy, choices, difference
from fairseq_posenc.study.pairs.scoring import ORIGINAL, WITHIN_WORD

TEXTS = ["Rivers carry sand .", "The old bridge isn't open", "Sand , rivers : carry !", "bridge"]  # words by white space
PIECES = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "the", "river", "##s", "##ide", "sand", "car", "##ry", "."]
SMALL = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16, pad_token_id=1)


def rows(folder: Path, *pairs: tuple[str, str], name: str = "order.jsonl", **fields: str) -> Path:
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"sentence_good": good, "sentence_bad": bad, **fields}) for good, bad in pairs]
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def library_model(folder: Path, causal: bool) -> tuple[torch.nn.Module, transformers.PreTrainedTokenizerFast]:
    """A model of transformers with random weights, saved with a WordPiece tokenizer."""
    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(PIECES)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token", "mask_token"), PIECES[:5], strict=True))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=20, **special)
    fast.save_pretrained(folder)
    if causal:
        config = transformers.GPT2Config(vocab_size=len(PIECES), n_embd=16, n_layer=2, n_head=2, n_positions=20)
        kind = transformers.GPT2LMHeadModel
    else:
        config = transformers.BertConfig(vocab_size=len(PIECES), max_position_embeddings=20, **SMALL)
        kind = transformers.BertForMaskedLM
    torch.manual_seed(0)
    model = kind(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    model.save_pretrained(folder)
    return model.requires_grad_(False), fast


def masked_score(logits, ids: list[int], words: list[int], mask: int, within_word: bool) -> float:
    """The sum over the tokens that belong to a word, by a loop over single sentences in float64."""
    total = 0.0
    for t, word in enumerate(words):
        if word < 0:
            continue
        hidden = [mask if u == t or (within_word and u > t and words[u] == word) else ids[u] for u in range(len(ids))]
        total += log_softmax(logits(hidden)[t].astype(np.float64))[ids[t]]
    return total


@pytest.mark.parametrize("flags", [[], ["--masked-next-token"]])
def test_a_checkpoint_agrees_with_a_second_reading(flags, world):
    path = world.checkpoint("roberta_posenc_tiny", "--positions", "rope", *flags)
    scorer = read(str(path), None)
    checkpoint = Checkpoint(path)
    vocabulary, model = checkpoint.vocabulary, checkpoint.build_model(replace(checkpoint.config, masked_next_token=False))

    def logits(ids: list[int]) -> np.ndarray:
        with torch.no_grad():
            scores = model(torch.tensor([ids]))[0].numpy()
        return np.roll(scores, len(flags), axis=0)  # of the place to the left

    for metric in (ORIGINAL, WITHIN_WORD):
        scores = scorer.scores([scorer.encode(text) for text in TEXTS], metric)
        for text, score in zip(TEXTS, scores, strict=True):
            encoding = vocabulary.encode(text)
            words = [text[:end].count(" ") for end in encoding.ends.tolist()]
            ids = vocabulary.sequence(text).tolist()
            mask = vocabulary.dictionary.index("<mask>")
            expected = masked_score(logits, ids, [-1, *words, -1], mask, metric == WITHIN_WORD)
            assert score == pytest.approx(expected, abs=1e-4), (metric, text)


@pytest.mark.parametrize("metric", [ORIGINAL, WITHIN_WORD])
def test_a_masked_model_of_transformers_agrees_with_a_second_reading(metric, tmp_path):
    model, _ = library_model(tmp_path, causal=False)
    scorer = read(f"bert={tmp_path}", None)
    assert (scorer.label, scorer.max_length) == ("bert", 20)
    ids, words = [5, 6, 8, 7, 10, 11, 9, 12], [0, 1, 1, 1, 2, 2, 3, 4]  # the river ##ide ##s car ##ry sand .
    text = "the riverides carry sand."
    sentence = scorer.encode(text)
    assert sentence.ids.tolist() == ids
    assert sentence.words.tolist() == words
    expected = masked_score(lambda row: model(torch.tensor([row])).logits[0].numpy(), ids, words, 4, metric == WITHIN_WORD)
    long, short = scorer.encode(f"{text} {text}"), scorer.encode("sand")
    assert scorer.scores([long, sentence, short], metric)[1] == pytest.approx(expected, abs=1e-4)


def test_a_causal_model_reads_from_left_to_right(tmp_path):
    model, _ = library_model(tmp_path, causal=True)
    scorer = read(str(tmp_path), None)
    assert scorer.metric(WITHIN_WORD) == "left_to_right"
    assert scorer.max_length == 20
    sentence = scorer.encode("the rivers carry sand")
    ids = sentence.ids.tolist()
    assert ids[0] == 0  # <s>, from which the first token is predicted
    logits = log_softmax(model(torch.tensor([ids])).logits[0].numpy().astype(np.float64), -1)
    expected = sum(logits[t - 1, ids[t]] for t in range(1, len(ids)))
    assert scorer.scores([sentence, scorer.encode("sand")], ORIGINAL)[0] == pytest.approx(expected, abs=1e-4)


def test_a_model_without_positions_gets_half_of_the_pairs_whose_order_differs(world, tmp_path):
    paths = {name: world.checkpoint("roberta_posenc_tiny", "--positions", name) for name in ("none", "absolute")}
    data = rows(
        tmp_path / "data", ("Rivers carry sand.", "Sand carry rivers."), ("the old bridge", "the bridge old"), UID="order"
    )
    rows(data, ("The bridge is open.", "The bridge are open."), ("sand", "sand"), name="agreement.jsonl", linguistics_term="a")
    command = ["pairs", *(f"{name}={path}" for name, path in paths.items()), "--data", data, "--out", tmp_path / "out"]
    assert status_of(*command) == 0
    written = (tmp_path / "out" / "results.json").read_text()
    results = json.loads(written)
    assert results["equal"] == 1
    none, absolute = results["models"]
    assert none["word order"] | {"low": None, "high": None} == {"accuracy": 50, "low": None, "high": None, "pairs": 1, "ties": 1}
    assert none["all pairs"]["pairs"] == 3
    assert list(none["paradigms"]) == ["agreement", "order"]
    assert absolute["word order"]["ties"] == 0
    report = (tmp_path / "out" / "results.md").read_text()
    assert "1 pairs of equal sentences" in report
    assert "wrong" not in report

    (cell,) = (tmp_path / "out" / "runs" / "absolute").glob("order*/**/result.json")
    cell.unlink()
    assert status_of(*command) == 0
    assert (tmp_path / "out" / "results.json").read_text() == written


def test_pairs_that_are_too_long_are_an_error_or_left_out_for_all(world, tmp_path, capsys):
    models = [f"{name}={world.checkpoint('roberta_posenc_tiny', '--positions', name)}" for name in ("absolute", "rope")]
    data = rows(tmp_path / "data", ("The bridge is open.", "The bridge are open."), ("sand " * 99, "sands " * 99))
    command = ["pairs", *models, "--data", data, "--out", tmp_path / "out"]
    assert status_of(*command) == 2
    assert "--skip-long" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert status_of(*command, "--skip-long") == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["long"] == 1
    assert [row["all pairs"]["pairs"] for row in results["models"]] == [1, 1]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"sentence_good": "x", "sentence_bad": "y"}\n{"sentence_good": "x"}\n', r"a\.jsonl:2: sentence_bad"),
        ("a.jsonl", '{"sentence_good": " ", "sentence_bad": "y"}\n', r"a\.jsonl:1: sentence_good is empty"),
        ("a.jsonl", "[" * 10**5, r"a\.jsonl:1"),
        ("a.jsonl", '{"sentence_good": "\\ud83d", "sentence_bad": "y"}', r"a\.jsonl:1 .*hex escape"),
        ("a.csv", "sentence_good,other\nx,y\n", r"a\.csv has no column sentence_bad"),
        ("a.tsv", "sentence_good\tsentence_bad\nx\n", r"a\.tsv:2: sentence_bad"),
        ("a.csv", '"sentence_good" x,sentence_bad\nx,y\n', r"a\.csv:1: .*; quote a field"),
        ("a.csv", "sentence_good,sentence_bad\nx, y, z.,x, y, w.\n", r"a\.csv:2: more than 2 columns"),
        ("a.tsv", 'sentence_good\tsentence_bad\n"Go!" he said.\tHe "go!" said.\n', r"a\.tsv:2: .*quote"),
        ("a.tsv", 'sentence_good\tsentence_bad\n"x\ty\nx\ty\n', r"a\.tsv:3: .*quote"),
        ("a.jsonl", "\n", "no pairs"),
        ("a.jsonl", b"\xff\xfe", r"a\.jsonl is not UTF-8"),
        ("a.txt", "x", r"\.jsonl, \.csv, \.tsv"),
    ],
)
def test_damaged_files_are_named(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=message):
        read_pairs([tmp_path])


def test_tables_and_json_lines_give_the_same_pairs(tmp_path):
    expected = [Pair('She said "no", twice', "She say no", "a", "agreement")]
    rows(tmp_path / "json", (expected[0].good, expected[0].bad), name="a.jsonl", linguistics_term="agreement")
    (tmp_path / "a.csv").write_text('field,sentence_good,sentence_bad\r\nagreement,"She said ""no"", twice",She say no\r\n')
    (tmp_path / "a.tsv").write_text('\ufefffield\tsentence_good\tsentence_bad\nagreement\t"She said ""no"", twice"\tShe say no\n')
    for path in (tmp_path / "json", tmp_path / "a.csv", tmp_path / "a.tsv"):
        assert read_pairs([path]) == expected


def test_only_order_differs():
    assert Pair("what did he see?", "he did see what?", "", "").only_order_differs
    assert not Pair("He can go.", "Can he go?", "", "").only_order_differs
    assert not Pair("same", "same", "", "").only_order_differs


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("He isn't 3rd, no!", ["He", "isn't", "3rd", ",", "no", "!"]),
        (unicodedata.normalize("NFD", "tiếng Việt."), [*unicodedata.normalize("NFD", "tiếng Việt").split(), "."]),
        ("हिन्दी क़लम।", ["हिन्दी", "क़लम", "।"]),
        ("שָׁלוֹם עֲלֵיכֶם", ["שָׁלוֹם", "עֲלֵיכֶם"]),
        ("می\u200cخواهم كِتَابٌ", ["می\u200cخواهم", "كِتَابٌ"]),
        ("我们\u3000去。", ["我", "们", "去", "。"]),
        ("ภาษา กำ", ["ภ", "า", "ษ", "า", "ก", "ำ"]),
        ("go北京", ["go", "北", "京"]),
    ],
)
def test_words_of_every_script(text, expected):
    found = words(text)
    assert [*found.values()] == expected
    assert all(text.startswith(word, place) for place, word in found.items())


def test_only_order_differs_in_scripts_with_marks_and_without_spaces():
    assert Pair("我去北京", "北京我去", "", "").only_order_differs
    swapped = [unicodedata.normalize("NFD", text) for text in ("bà má", "bá mà")]
    assert not Pair(*swapped, "", "").only_order_differs


def test_ties_and_intervals():
    chosen = choices(np.array([[-10.0, -11.0], [-11.0, -10.0], [-10.0, -10.0009], [-10.0, -10.002]]))
    assert chosen.tolist() == [1, 0, 0.5, 1]
    result = accuracy(np.repeat([1.0, 0.0], [30, 10]))
    z, p, n = 1.959964, 0.75, 40  # Wilson 1927
    middle, half = (p + z * z / 2 / n) / (1 + z * z / n), z * np.sqrt(p * (1 - p) / n + z * z / 4 / n**2) / (1 + z * z / n)
    assert [result["low"], result["high"]] == pytest.approx([100 * (middle - half), 100 * (middle + half)])
    rng = np.random.default_rng(0)
    a, b = rng.random((2, 400)) < [[0.7], [0.6]]
    change = difference(a.astype(float), b.astype(float))
    error = 100 * (a.astype(float) - b).std(ddof=1) / 20
    assert [change["low"], change["high"]] == pytest.approx([change["mean"] - 1.96 * error, change["mean"] + 1.96 * error], abs=1)


def test_models_without_a_language_model(tmp_path, capsys):
    library_model(tmp_path / "model", causal=False)
    config = transformers.BertConfig(vocab_size=len(PIECES), max_position_embeddings=20, **SMALL)
    transformers.BertForTokenClassification(config).save_pretrained(tmp_path / "model")
    data = rows(tmp_path / "data", ("the river", "river the"))
    assert status_of("pairs", tmp_path / "model", "--data", data, "--out", tmp_path / "out") == 2
    assert "cls.predictions" in capsys.readouterr().err
    assert status_of("pairs", tmp_path / "nowhere", "--data", data, "--out", tmp_path / "out") == 2
    assert "nowhere" in capsys.readouterr().err


def test_the_perplexity_of_a_text_agrees_with_a_second_reading(world, tmp_path):
    path = world.checkpoint("roberta_posenc_tiny", "--positions", "rope")
    text = tmp_path / "text.txt"
    text.write_text("\ufeff" + "\n\n".join(TEXTS) + "\r\n", "utf-8")
    library_model(tmp_path / "gpt2", causal=True)
    command = ["pairs", f"rope={path}", f"gpt2={tmp_path / 'gpt2'}", "--perplexity", text, "--out", tmp_path / "out"]
    assert status_of(*command) == 0
    rope, gpt2 = json.loads((tmp_path / "out" / "results.json").read_text())["perplexity"].values()
    scorer = read(str(path), None)
    sentences = [scorer.encode(line) for line in TEXTS]
    nats, tokens = -scorer.scores(sentences, WITHIN_WORD).sum(), sum(len(sentence.ids) - 2 for sentence in sentences)
    assert rope["tokens"] == tokens
    assert rope["per_token"] == pytest.approx(np.exp(nats / tokens), rel=1e-4)
    bits = nats / np.log(2) / sum(map(len, TEXTS))
    assert rope["bits_per_character"] == pytest.approx(bits, rel=1e-4)
    assert gpt2["per_token"] > 1
    report = (tmp_path / "out" / "results.md").read_text()
    assert "left_to_right" in report
    assert "acceptable" not in report  # there are no pairs


def test_without_pairs_and_text_there_is_nothing_to_score(world, tmp_path, capsys):
    path = world.checkpoint("roberta_posenc_tiny", "--positions", "rope")
    assert status_of("pairs", path, "--out", tmp_path / "out") == 2
    assert "--perplexity" in capsys.readouterr().err
    (tmp_path / "empty.txt").write_text(" \n")
    assert status_of("pairs", path, "--perplexity", tmp_path / "empty.txt", "--out", tmp_path / "out") == 2
    assert "empty.txt is empty" in capsys.readouterr().err


def test_the_first_pairs_of_a_paradigm_and_those_that_are_short(world, tmp_path):
    path = world.checkpoint("roberta_posenc_tiny", "--positions", "rope")
    short = [(f"{word} ball", f"ball {word}") for word in ("red", "green", "blue")]
    data = rows(tmp_path / "data", *short, UID="short")
    rows(data, ("red " * 30, "green " * 30), ("red box", "box red"), name="long.jsonl", UID="long")
    command = ["pairs", f"rope={path}", "--data", data, "--limit", 2, "--max-length", 20, "--out", tmp_path / "out"]
    assert status_of(*command) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    (model,) = results["models"]
    assert {name: found["pairs"] for name, found in model["paradigms"].items()} == {"long": 1, "short": 2}
    assert results["long"] == 1
