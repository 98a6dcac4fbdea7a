"""transformers' ALBERT, there and back, with the same logits; ELECTRA's encoder, for analysis; and what has no place here."""

import dataclasses
import json
from pathlib import Path

import pytest
import sentencepiece
import torch
import transformers
from cases import SOME, thorough_but
from small_models import export, make_model, save
from test_deberta import change, made_up, outputs
from test_import import SMALL, assert_same_ids, import_hf, perturbed, prepare, refusal, write_bert

from fairseq_posenc.core.families import expressions
from fairseq_posenc.core.transformer import Encoder
from fairseq_posenc.huggingface import source_models
from fairseq_posenc.huggingface.configuration import PosencConfig
from fairseq_posenc.huggingface.conversion import to_transformers
from fairseq_posenc.huggingface.model_types import MODEL_TYPES
from fairseq_posenc.huggingface.modeling import PosencForMaskedLM
from fairseq_posenc.huggingface.types.base import TOKEN_TYPES
from fairseq_posenc.plugin.checkpoint.checkpoint import Checkpoint
from fairseq_posenc.plugin.checkpoint.state_dict import ENCODER
from fairseq_posenc.text.vocabulary import Vocabulary
from fairseq_posenc.text.vocabulary.library import TokenizerJson

NARROW = {**SMALL, "num_hidden_layers": 4, "embedding_size": 20, "type_vocab_size": 2}
FILLED = 3  # rows of embeddings that no token has
ODD = [
    "w3 W17  w22", " ``w1'' w2\t", "", "Ünïcode, 12! day's", "e\u0301 é", "日本語 ☃ w5", "a_b-c/d", "▁w3", "ｗ３ ﬁve", "x" * 99,
]  # fmt: skip


def write_albert(folder: Path, text: Path, kind="ForMaskedLM", saved_tokenizer=True, **options):
    """A small ALBERT with the special pieces where the published ones have them, and their treatment of case and accents."""
    folder.mkdir()
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(folder / "spiece"), vocab_size=60, hard_vocab_limit=False, minloglevel=2,
        pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols=["[CLS]", "[SEP]", "[MASK]"],
    )  # fmt: skip
    (folder / "spiece.vocab").unlink()
    (folder / "config.json").write_text(json.dumps({"model_type": "albert"}))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert type(tokenizer).__name__.startswith("AlbertTokenizer")
    if saved_tokenizer:
        tokenizer.save_pretrained(folder)
        (folder / "spiece.model").unlink()
    config = transformers.AlbertConfig(vocab_size=len(tokenizer) + FILLED, **{**NARROW, **options})
    model = perturbed(getattr(transformers, f"Albert{kind}")(config))
    model.save_pretrained(folder)
    return model, tokenizer


SETTINGS = {
    "version 2": {},
    "version 1": dict(hidden_act="gelu", hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1),
    "two groups": dict(num_hidden_groups=2, hidden_act="relu"),
    "as many groups as layers": dict(num_hidden_groups=4),
    "wide embeddings": dict(embedding_size=48, layer_norm_eps=1e-3),
    "embeddings as wide as the layers": dict(embedding_size=32),
    "a decoder of its own": dict(tie_word_embeddings=False),
    "one token type": dict(type_vocab_size=1),
}


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_masked_language_model_has_the_same_logits(settings, toy_text, tmp_path):
    """A seeded model of transformers, read here: with padding, at odd lengths and at the longest; and its parameters again."""
    original, _ = write_albert(tmp_path / "albert", toy_text / "train.txt", **SETTINGS[settings])
    source = source_models.read(str(tmp_path / "albert"))
    pad = source.vocabulary.dictionary.pad()
    ours = PosencForMaskedLM(
        PosencConfig(**dataclasses.asdict(source.config), tie_word_embeddings=original.config.tie_word_embeddings)
    )
    renamed, others = MODEL_TYPES["fairseq_posenc"].to_transformers(source.state, ours.config)
    ours.eval().load_state_dict(renamed, strict=True)
    assert (others, source.left_out, len(ours.model.encoder.layers)) == ([], [], original.config.num_hidden_groups)
    for length in (1, 2, 17, 50):
        tokens = made_up(len(source.vocabulary.order), length)
        real = tokens.ne(pad)
        with torch.no_grad():
            logits = ours(tokens).logits
        torch.testing.assert_close(logits[real], source.outputs(tokens)[real], atol=2e-5, rtol=1e-5)
    back, others = MODEL_TYPES["albert"].to_transformers(source.state, original.config)
    inverse = source.vocabulary.order.argsort()
    expected = original.state_dict()
    types = expected.pop(f"albert.{TOKEN_TYPES}")[:1]
    del expected["predictions.bias"]  # which is that of predictions.decoder, or which nothing reads
    assert others == []
    assert back.keys() == expected.keys()
    back["albert.embeddings.position_embeddings.weight"] = back["albert.embeddings.position_embeddings.weight"] - types
    for name, value in expected.items():
        found = back[name] if len(back[name]) != len(inverse) else back[name][inverse]
        torch.testing.assert_close(found, value, atol=1e-6, rtol=0, msg=name)


KINDS = ("ForMaskedLM", "ForPreTraining", "Model", "ForSequenceClassification", "ForQuestionAnswering")


@pytest.mark.parametrize("kind", KINDS)
def test_every_head_is_read(kind, toy_text, tmp_path):
    write_albert(tmp_path / "albert", toy_text / "train.txt", kind, num_labels=2)
    source = source_models.read(str(tmp_path / "albert"))
    heads = {name.split(".")[1] for name in source.state if not name.startswith("encoder.sentence_encoder.")}
    pooler = ["albert.pooler.bias", "albert.pooler.weight"]
    second = ["sop_classifier.classifier.bias", "sop_classifier.classifier.weight"]
    assert (source.kind, heads, sorted(source.left_out)) == {
        "ForMaskedLM": ("MaskedLM", {"lm_head"}, []),
        "ForPreTraining": ("MaskedLM", {"lm_head"}, pooler + second),
        "Model": ("Model", set(), pooler),
        "ForSequenceClassification": ("SequenceClassification", {"sentence_classification_head"}, []),
        "ForQuestionAnswering": ("QuestionAnswering", {"lm_head"}, []),
    }[kind]


@pytest.mark.parametrize("kind", [pytest.param("ForMaskedLM", marks=pytest.mark.slow), "ForSequenceClassification"])
def test_there_and_back(kind, toy_text, tmp_path, capsys):
    """By the commands: the same outputs, the same parameters again, and the same tokens of odd text."""
    original, tokenizer = write_albert(tmp_path / "albert", toy_text / "train.txt", kind, num_labels=3)
    out = tmp_path / "imported" / "model.pt"
    state, printed = import_hf(capsys, tmp_path / "albert", out)
    assert float(printed.partition("source's by ")[2].split()[0]) < 1e-5
    assert "left out" not in printed
    flags = "--arch albert_posenc --encoder-layers 4 --encoder-embed-dim 32 --embedding-size 20 --encoder-ffn-embed-dim 64"
    assert flags in printed
    assert "--dropout" not in printed
    order = source_models.read(str(tmp_path / "albert")).vocabulary.order
    data = prepare(toy_text, out.parent)
    assert_same_ids(data, tokenizer, order, toy_text)
    export(out, data, tmp_path / "exported")
    exported, checkpoint = type(original).from_pretrained(tmp_path / "exported").eval(), Checkpoint(out, data)
    assert "transformers' own ALBERT" in (tmp_path / "exported" / "README.md").read_text()
    for name in (
        "hidden_act",
        "embedding_size",
        "num_hidden_groups",
        "num_hidden_layers",
        "layer_norm_eps",
        "hidden_dropout_prob",
    ):
        assert getattr(exported.config, name) == getattr(original.config, name), name
    for length in (2, 17, 50):
        tokens = made_up(len(order), length)
        real, expected = tokens.ne(1), outputs(original, order[tokens], 0)
        if kind == "ForMaskedLM":
            expected = expected[..., order]
        for found in (outputs(exported, tokens, 1), checkpoint.logits(tokens)):
            pair = (found[real], expected[real]) if kind == "ForMaskedLM" else (found, expected)
            torch.testing.assert_close(*pair, atol=1e-5, rtol=1e-5)
    again, _ = import_hf(capsys, tmp_path / "exported", tmp_path / "again" / "model.pt")
    assert again.keys() == state.keys()
    assert [name for name, value in state.items() if not torch.equal(value, again[name])] == []
    vocabulary, back = Vocabulary(data), transformers.AutoTokenizer.from_pretrained(tmp_path / "exported")
    for text in ODD:
        expected = torch.tensor(tokenizer(text)["input_ids"])
        assert torch.equal(order[torch.from_numpy(vocabulary.sequence(text))], expected), text
        assert torch.equal(order[torch.tensor(back(text)["input_ids"])], expected), text


@pytest.mark.parametrize("saved", [False, True], ids=["spiece.model", "tokenizer.json"])
def test_the_tokenizer_is_transformers_own(saved, toy_text, tmp_path):
    """With its treatment of case and accents."""
    _, tokenizer = write_albert(tmp_path / "albert", toy_text / "train.txt", saved_tokenizer=saved)
    ours = TokenizerJson(source_models.read(str(tmp_path / "albert")).vocabulary.files["tokenizer.json"])
    for text in ODD:
        assert ours.encode(text).ids.tolist() == tokenizer(text, add_special_tokens=False)["input_ids"], text


@pytest.mark.parametrize("name", thorough_but(("absolute", "tisa", "m4m", "tupe_r"), expressions(), SOME))
def test_every_scheme_is_exported(name, prepared, tmp_path):
    """As this project's own class, but with a table of absolute positions, which transformers' ALBERT has too."""
    path = save(make_model(f"albert_{name}_tiny", prepared, embedding_size=8), tmp_path / "checkpoint.pt", prepared)
    checkpoint = Checkpoint(path, prepared, "lm")
    exported = to_transformers(checkpoint)
    model, left_out = exported.model, exported.left_out
    assert type(model) is (transformers.AlbertForMaskedLM if name in ("absolute", "sinusoidal") else PosencForMaskedLM)
    assert {part.partition(".")[0] for part in left_out} == {"classification_heads"}
    tokens = made_up(44, 30)
    torch.testing.assert_close(
        outputs(model, tokens, 1)[tokens.ne(1)], checkpoint.logits(tokens)[tokens.ne(1)], atol=2e-5, rtol=1e-5
    )


@pytest.mark.parametrize("embedding_size", [12, 32])
@pytest.mark.parametrize("kind", ["ForPreTraining", "ForMaskedLM", "Model"])
def test_electras_encoder_is_read(kind, embedding_size, tmp_path):
    write_bert(tmp_path / "electra", "Model")
    config = transformers.ElectraConfig(vocab_size=28, embedding_size=embedding_size, **SMALL)
    original = perturbed(getattr(transformers, f"Electra{kind}")(config))
    original.save_pretrained(tmp_path / "electra")
    source = source_models.read(str(tmp_path / "electra"))
    assert (source.kind, source.config.embed_dim) == ("Model", 12 if embedding_size == 12 else 0)
    assert bool(source.left_out) == (kind != "Model")
    encoder = Encoder(source.config).eval()
    encoder.load_state_dict({name.removeprefix(ENCODER): value for name, value in source.state.items()})
    tokens = made_up(28, 21)
    with torch.no_grad():
        expected = original.base_model(source.vocabulary.order[tokens], tokens.ne(1).long()).last_hidden_state
        torch.testing.assert_close(encoder(tokens).last_hidden_state[tokens.ne(1)], expected[tokens.ne(1)], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("inner_group_num", 2),
        ("num_hidden_groups", 3),
        ("num_hidden_groups", 0),
        ("num_hidden_groups", 2),
        ("num_hidden_layers", 100_000),
        ("hidden_act", "quick_gelu"),
        ("embedding_size", 8),
        ("embedding_size", "x"),
        ("position_embedding_type", "relative_key"),
        ("architectures", ["AlbertForQuestionAnswering"]),
    ],
)
def test_what_has_no_equivalent_is_refused(option, value, toy_text, tmp_path, capsys):
    write_albert(tmp_path / "albert", toy_text / "train.txt")
    change(tmp_path / "albert" / "config.json", **{option: value})
    message = refusal(capsys, tmp_path / "albert", "--out", tmp_path / "out" / "model.pt")
    assert str(tmp_path / "albert") in message
    assert option != "position_embedding_type" or f"{option} {value!r}" in message
    assert not (tmp_path / "out" / "model.pt").exists()
