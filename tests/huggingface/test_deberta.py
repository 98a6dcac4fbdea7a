"""transformers' DeBERTa v2 and v3, there and back: the same logits, the same tokenizer, and what has no place here is refused."""

import json
import re
from pathlib import Path

import pytest
import sentencepiece
import torch
import transformers
from fairseq.data import Dictionary
from small_models import export, make_model, save, train
from test_import import SMALL, assert_same_ids, import_hf, perturbed, prepare, refusal

from fairseq_posenc.huggingface import source_models
from fairseq_posenc.plugin.checkpoint.checkpoint import Checkpoint
from fairseq_posenc.plugin.checkpoint.loading import load as load_checkpoint
from fairseq_posenc.text.vocabulary import Vocabulary

V3 = dict(
    relative_attention=True, position_buckets=8, max_relative_positions=-1, norm_rel_ebd="layer_norm", share_att_key=True,
    pos_att_type=["p2c", "c2p"], position_biased_input=False, pooler_hidden_act="gelu", **SMALL,
)  # fmt: skip
FILLED = 7  # rows of embeddings that no token has
ODD = [
    "w3 w17  w22", "  w1 w2\t", "", " ", "Ünïcode, 12! day's", "e\u0301 é", "w1[MASK]w2", "日本語 ☃ w5", "a_b-c/d", "▁w3",
    "\x00 w", "x" * 300, "wwww33 w 3", "😀😀 w9", "(w3)", "W3",
]  # fmt: skip


def learn_sentencepiece(folder: Path, text: Path) -> bytes:
    """A small model with the special pieces where the published ones have them."""
    special = dict(zip(("pad_piece", "bos_piece", "eos_piece", "unk_piece"), ("[PAD]", "[CLS]", "[SEP]", "[UNK]"), strict=True))
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(folder / "learned"), vocab_size=60, hard_vocab_limit=False, minloglevel=2,
        pad_id=0, bos_id=1, eos_id=2, unk_id=3, **special,
    )  # fmt: skip
    return (folder / "learned.model").read_bytes()


def write_deberta(folder: Path, text: Path, kind="ForMaskedLM", saved_tokenizer=False, **options):
    folder.mkdir()
    model = learn_sentencepiece(folder.parent, text)
    (folder / "spm.model").write_bytes(model)
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False, "vocab_type": "spm"}))
    (folder / "config.json").write_text(json.dumps({"model_type": "deberta-v2"}))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    if saved_tokenizer:  # as transformers 5 writes it
        (folder / "spm.model").unlink()
        tokenizer.save_pretrained(folder)
    config = transformers.DebertaV2Config(vocab_size=len(tokenizer) + FILLED, **{**V3, **options})
    model = perturbed(getattr(transformers, f"DebertaV2{kind}")(config))
    if kind == "ForMaskedLM" and not config.legacy:
        perturbed(model.lm_predictions)
    model.save_pretrained(folder)
    return model, tokenizer


def change(path: Path, remove=(), **options) -> None:
    values = {**json.loads(path.read_text()), **options}
    path.write_text(json.dumps({name: value for name, value in values.items() if name not in remove}))


def outputs(model, tokens, pad):
    with torch.no_grad():
        output = model(tokens, attention_mask=tokens.ne(pad).long())
    if hasattr(output, "start_logits"):
        return torch.stack([output.start_logits, output.end_logits], -1)
    return output.logits if hasattr(output, "logits") else output.last_hidden_state


def made_up(size: int, length: int) -> torch.Tensor:
    """(3, length) symbols of our dictionary, with padding at the right."""
    tokens = torch.randint(4, size, (3, length), generator=torch.Generator().manual_seed(length))
    tokens[:, 0] = 0
    tokens[1, length // 2 :] = 1
    tokens[2, 3:] = 1
    return tokens


@pytest.mark.parametrize(
    ("kind", "buckets"),
    [
        ("ForMaskedLM", 8),
        pytest.param("ForMaskedLM", -1, marks=pytest.mark.slow),
        pytest.param("ForMaskedLM, legacy", 8, marks=pytest.mark.thorough),
        pytest.param("Model", 8, marks=pytest.mark.slow),
        pytest.param("ForSequenceClassification", 8, marks=pytest.mark.slow),
        pytest.param("ForQuestionAnswering", 8, marks=pytest.mark.slow),
    ],
)
def test_there_and_back(kind, buckets, toy_text, tmp_path, capsys):
    """The same outputs, beyond the buckets and beyond the longest sequence of pretraining, and the same parameters again."""
    kind, _, legacy = kind.partition(", ")
    options = {"legacy": bool(legacy), "position_buckets": buckets, "max_relative_positions": 20, "num_labels": 3}
    options |= {"num_labels": 2} if kind == "ForQuestionAnswering" else {}
    original, _ = write_deberta(tmp_path / "deberta", toy_text / "train.txt", kind, **options)
    out = tmp_path / "imported" / "model.pt"
    state, printed = import_hf(capsys, tmp_path / "deberta", out)
    assert float(printed.partition("source's by ")[2].split()[0]) < 1e-5
    assert "left out" not in printed
    order = source_models.read(str(tmp_path / "deberta")).vocabulary.order
    data = prepare(toy_text, out.parent)
    checkpoint = Checkpoint(out, data)
    export(out, data, tmp_path / "exported")
    folder = tmp_path / "exported"
    assert not list(folder.glob("*.py"))
    exported_class = type(original) if kind != "Model" else transformers.DebertaV2ForMaskedLM  # with a new head
    exported = exported_class.from_pretrained(folder).eval()
    card = (folder / "README.md").read_text()
    assert "transformers' own DeBERTa v2" in card
    assert "trust_remote_code" not in card
    for length in (2, 30, 70):
        tokens = made_up(len(order), length)
        real, expected = tokens.ne(1), outputs(original, order[tokens], 0)
        if kind == "ForMaskedLM":
            expected = expected[..., order]
        found = [outputs(exported if kind != "Model" else exported.deberta, tokens, 1)]
        if kind != "Model":
            found.append(checkpoint.logits(tokens))
        for ours in found:
            pair = (ours, expected) if kind == "ForSequenceClassification" else (ours[real], expected[real])
            torch.testing.assert_close(*pair, atol=1e-5, rtol=1e-5)

    again, printed = import_hf(capsys, folder, tmp_path / "again" / "model.pt")
    assert float(printed.partition("source's by ")[2].split()[0]) < 1e-5
    assert again.keys() == state.keys()
    for name, value in state.items():
        assert torch.equal(value, again[name]), name
    for name in ("dict.txt", "sentencepiece.model"):
        assert (tmp_path / "again" / name).read_bytes() == (data / name).read_bytes()
    for name in ("position_buckets", "max_relative_positions", "pooler_hidden_act", "layer_norm_eps"):
        assert getattr(exported.config, name) == getattr(original.config, name), name


def test_published_weights_say_what_the_head_is(toy_text, tmp_path, capsys):
    """They name no architecture, hold the authors' form of the head, and what only pretraining had."""
    original, _ = write_deberta(tmp_path / "deberta", toy_text / "train.txt", legacy=False)
    config = tmp_path / "deberta" / "config.json"
    change(config, ("architectures", "legacy", "id2label", "label2id"), pos_att_type="p2c|c2p", padding_idx=0)
    (tmp_path / "deberta" / "model.safetensors").unlink()
    pretraining = {
        "deberta.embeddings.position_embeddings.weight": torch.ones(50, 32),
        "mask_predictions.dense.weight": torch.ones(32, 32),
    }
    torch.save({**original.state_dict(), **pretraining}, tmp_path / "deberta" / "pytorch_model.bin")
    state, printed = import_hf(capsys, tmp_path / "deberta", tmp_path / "out" / "model.pt")
    assert printed.startswith(f"{tmp_path / 'deberta'}: MaskedLM, deberta -> deberta")
    assert torch.equal(state["encoder.lm_head.dense.weight"], original.lm_predictions.lm_head.dense.weight)
    assert float(printed.partition("source's by ")[2].split()[0]) < 1e-5


def test_a_head_that_is_missing_is_named(toy_text, tmp_path, capsys):
    write_deberta(tmp_path / "deberta", toy_text / "train.txt", "Model")
    change(tmp_path / "deberta" / "config.json", architectures=["DebertaV2ForMaskedLM"])
    assert "lacks parameters of a DebertaV2ForMaskedLM: cls.predictions" in refusal(
        capsys, tmp_path / "deberta", "--out", tmp_path / "out" / "model.pt"
    )
    change(tmp_path / "deberta" / "config.json", architectures=["DebertaV2ForSequenceClassification"])
    said = refusal(capsys, tmp_path / "deberta", "--out", tmp_path / "out" / "model.pt")
    assert "classifier.bias, classifier.weight, pooler.dense.bias, pooler.dense.weight" in said


@pytest.mark.parametrize("saved", [False, True], ids=["spm.model", "tokenizer.json"])
def test_the_tokenizer_is_transformers_own(saved, toy_text, tmp_path, capsys):
    """On odd text, after the import and after the export."""
    _, tokenizer = write_deberta(tmp_path / "deberta", toy_text / "train.txt", saved_tokenizer=saved)
    out = tmp_path / "imported" / "model.pt"
    import_hf(capsys, tmp_path / "deberta", out)
    order = source_models.read(str(tmp_path / "deberta")).vocabulary.order
    data = prepare(toy_text, out.parent)
    assert_same_ids(data, tokenizer, order, toy_text)
    export(out, data, tmp_path / "exported")
    back = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported")
    vocabulary = Vocabulary(data)
    for text in ODD:
        expected = torch.tensor(tokenizer(text)["input_ids"])
        if "[MASK]" in text:
            assert back(text.replace("[MASK]", "<mask>"))["input_ids"].count(len(order) - 1) == 1
            continue
        assert torch.equal(order[torch.from_numpy(vocabulary.sequence(text))], expected), text
        assert torch.equal(order[torch.tensor(back(text)["input_ids"])], expected), text
    if not saved:  # as the authors' code; transformers 5 leaves out the normalisation that a sentencepiece model asks for
        processor = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "deberta" / "spm.model"))
        for text in ("ｗ３ w½", "ﬁve\u3000w2", "w1\xa0w2", "▁▁w3", "\u200bw3"):
            expected = torch.tensor([1, *processor.encode(text), 2])
            assert torch.equal(order[torch.from_numpy(vocabulary.sequence(text))], expected), text
            assert torch.equal(order[torch.tensor(back(text)["input_ids"])], expected), text
    dictionary = Dictionary.load(str(data / "dict.txt"))
    assert len([symbol for symbol in dictionary.symbols if symbol.startswith("madeupword")]) == FILLED


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("conv_kernel_size", 3),
        ("embedding_size", 16),
        ("attention_head_size", 4),
        ("share_att_key", False),
        ("norm_rel_ebd", "none"),
        ("norm_rel_ebd", None),
        ("pos_att_type", "c2p"),
        ("pos_att_type", [["c2p"], 3]),
        ("pos_att_type", 5),
        ("position_biased_input", True),
        ("position_biased_input", None),
        ("relative_attention", False),
        ("pooler_hidden_act", "quick_gelu"),
        ("position_buckets", -2),
        ("position_buckets", 7.5),
        ("position_buckets", 2**20),
        ("position_buckets", 40),
        ("max_relative_positions", 10**12),
        ("max_relative_positions", 3),
        ("legacy", "no"),
        ("layer_norm_eps", "small"),
    ],
)
def test_what_has_no_equivalent_is_refused(option, value, toy_text, tmp_path, capsys):
    """Whatever the positions are to become, and by analyze."""
    write_deberta(tmp_path / "deberta", toy_text / "train.txt", max_relative_positions=20)
    change(tmp_path / "deberta" / "config.json", **{option: value})
    for flags in ((), ("--positions", "tisa")):
        said = refusal(capsys, tmp_path / "deberta", "--out", tmp_path / "out" / "model.pt", *flags)
        assert str(tmp_path / "deberta") in said
        assert option != "relative_attention" or "relative_attention False cannot be imported" in said
        assert not (tmp_path / "out" / "model.pt").exists()


@pytest.mark.parametrize("option", ["do_lower_case", "split_by_punct"])
def test_a_tokenizer_that_does_more_than_sentencepiece_is_refused(option, toy_text, tmp_path, capsys):
    write_deberta(tmp_path / "deberta", toy_text / "train.txt")
    change(tmp_path / "deberta" / "tokenizer_config.json", **{option: True})
    assert option in refusal(capsys, tmp_path / "deberta", "--out", tmp_path / "out" / "model.pt")


def test_another_s_sentencepiece_model_is_refused(toy_text, tmp_path, capsys):
    write_deberta(tmp_path / "deberta", toy_text / "train.txt", saved_tokenizer=True)
    (tmp_path / "other.txt").write_text("quite another text of other words\n" * 9)
    (tmp_path / "deberta" / "spm.model").write_bytes(learn_sentencepiece(tmp_path, tmp_path / "other.txt"))
    said = refusal(capsys, tmp_path / "deberta", "--out", tmp_path / "out" / "model.pt")
    assert "is none of spm.model's pieces" in said


def test_other_positions_and_what_differs_stay_this_project_s_model(toy_text, tmp_path, capsys):
    """An export is transformers' DeBERTa only where that is the same function."""
    write_deberta(tmp_path / "deberta", toy_text / "train.txt")
    out = tmp_path / "imported" / "model.pt"
    import_hf(capsys, tmp_path / "deberta", out, "--deberta-indexing", "paper")
    data = prepare(toy_text, out.parent)
    export(out, data, tmp_path / "exported")
    assert json.loads((tmp_path / "exported" / "config.json").read_text())["model_type"] == "fairseq_posenc"
    assert load_checkpoint(out)["cfg"]["model"]["deberta_buckets"] == 8


@pytest.mark.parametrize("head", ["lm", "topic"])
def test_a_decoder_of_masked_words(head, prepared, tmp_path, capsys):
    """transformers has none: the language model becomes this project's class, and the encoder alone transformers' own."""
    options = dict(deberta_projections="content", deberta_indexing="original", deberta_buckets=8, max_relative_position=20)
    model = make_model("roberta_deberta_tiny", prepared, mask_decoder_steps=2, layer_norm_eps=1e-7, **options)
    train(model)
    model.eval()
    tokens, table = made_up(len(model.encoder.dictionary), 30), "encoder.sentence_encoder.mask_positions.weight"
    with torch.no_grad():
        states = model.encoder.sentence_encoder(tokens, decode_masks=True)["encoder_out"][0].transpose(0, 1)
        assert torch.equal(model(tokens)[0], model.encoder.lm_head(states))
        assert not torch.allclose(model(tokens, features_only=True)[0], states)
    path = save(model, tmp_path / "checkpoint.pt", prepared)
    assert table in load_checkpoint(path)["model"]
    checkpoint = Checkpoint(path, prepared, head)
    with torch.no_grad():
        expected = model(tokens)[0] if head == "lm" else model(tokens, classification_head_name="topic")[0]
    torch.testing.assert_close(checkpoint.logits(tokens), expected)
    export(path, prepared, tmp_path / "exported", head)
    assert (table in capsys.readouterr().out) == (head == "topic")
    described = json.loads((tmp_path / "exported" / "config.json").read_text())
    assert described["model_type"] == ("fairseq_posenc" if head == "lm" else "deberta-v2")
    auto = transformers.AutoModelForMaskedLM if head == "lm" else transformers.AutoModelForSequenceClassification
    found = outputs(auto.from_pretrained(tmp_path / "exported").eval(), tokens, 1)
    real = tokens.ne(1) if head == "lm" else slice(None)
    torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=1e-5)
    state, printed = import_hf(capsys, tmp_path / "exported", tmp_path / "back" / "model.pt")
    assert head == "topic" or float(re.search(r"outputs differ from the source's by (\S+) at most", printed)[1]) <= 1e-6
    assert (table in state) == (head == "lm")
    if head == "lm":
        assert torch.equal(state[table], model.state_dict()[table])
