"""A folder of a model of transformers: nothing that it names is run or fetched, and what is damaged is named."""

import json
import os
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

pytest.importorskip("transformers", reason="needs pip install -e '.[hf]'")

import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

from fairseq_posenc.cli import main

SIZES = dict(hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8, max_position_embeddings=20)


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """A small BERT with its tokenizer."""
    folder = tmp_path_factory.mktemp("bert")
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##c"]
    tokenizer = Tokenizer(models.WordPiece({token: i for i, token in enumerate(tokens)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    names = dict(pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]")
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=len(tokens), **SIZES)).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "folder")


@pytest.fixture
def refused(folder, refusal, tmp_path):
    """``refused()``: what import-hf says of the folder."""
    return lambda: refusal("import-hf", folder, "--out", tmp_path / "out" / "model.pt")


def change(path, **options):
    path.write_text(json.dumps({**json.loads(path.read_text()), **options}))


def test_the_folder_is_whole(folder, tmp_path):
    assert main(["import-hf", str(folder), "--out", str(tmp_path / "out" / "model.pt")]) == 0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[1]",
        b'"bert"',
        b"{}",
        b"\xff\xfe",
        b"[" * 10**5,
        b'{"model_type": "bert"}',
        b'{"model_type": "bert", "hidden_size": 8}',
        b'{"model_type": ["bert"]}',
        b'{"model_type": "timm_wrapper"}',
    ],
)
def test_a_config_that_is_none(content, folder, refused):
    (folder / "config.json").write_bytes(content)
    assert str(folder) in refused()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("hidden_size", "x"),
        ("hidden_size", 16),
        ("hidden_size", 10**9),
        ("hidden_size", 10**6),
        ("hidden_size", 8.5),
        ("hidden_size", None),
        ("hidden_size", [8]),
        ("num_hidden_layers", -1),
        ("num_hidden_layers", 3),
        ("num_hidden_layers", 10**9),
        ("num_hidden_layers", True),
        ("num_attention_heads", 3),
        ("num_attention_heads", 0),
        ("intermediate_size", 10**6),
        ("max_position_embeddings", 10**6),
        ("vocab_size", 10**6),
        ("vocab_size", -8),
        ("layer_norm_eps", "small"),
        ("hidden_dropout_prob", float("nan")),
        ("hidden_dropout_prob", 2),
        ("hidden_act", 3),
        ("hidden_act", "__import__"),
        ("id2label", [1]),
        ("id2label", {"x": "y"}),
        ("pad_token_id", "x"),
        ("model_type", "gpt2"),
        ("model_type", "musicgen"),
    ],
)
def test_options_that_no_model_has(option, value, folder, refused):
    change(folder / "config.json", **{option: value})
    assert str(folder) in (said := refused()) or "models of type" in said or "activation" in said


@pytest.mark.parametrize("option", ["num_hidden_layers", "num_labels"])
def test_layers_and_labels_that_nobody_has_are_not_described_one_by_one(option, folder, refused):
    change(folder / "config.json", model_type="modernbert", **{option: 10**9})
    assert option in refused()


@pytest.mark.parametrize("part", ["cut", "empty", "other", "texts", "missing"])
def test_weights_that_are_damaged(part, folder, refused):
    path = folder / "model.safetensors"
    content = path.read_bytes()
    match part:
        case "missing":
            path.unlink()
        case "texts":
            path.unlink()
            torch.save({"bert.embeddings.word_embeddings.weight": "x"}, folder / "pytorch_model.bin")
        case _:
            path.write_bytes({"cut": content[: len(content) // 2], "empty": b"", "other": b"PK" * 99}[part])
    said = refused()
    assert "model.safetensors" in said or "pytorch_model.bin" in said


def test_weights_in_parts(folder, refused, tmp_path):
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(state)
    for number, part in enumerate((names[::2], names[1::2])):
        save_file({name: state[name] for name in part}, folder / f"part{number}.safetensors")
    index = {name: f"part{i % 2}.safetensors" for i, name in enumerate(names)}
    path = folder / "model.safetensors.index.json"
    for wrong in ({"weight_map": {**index, names[0]: "../elsewhere.safetensors"}}, {"weight_map": [1]}, {}, []):
        path.write_text(json.dumps(wrong))
        assert "index.json" in refused()
    path.write_text(json.dumps({"weight_map": index}))
    assert main(["import-hf", str(folder), "--out", str(tmp_path / "out" / "model.pt")]) == 0


def test_half_precision_and_old_names_are_read(folder, tmp_path):
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    old = {name.replace("LayerNorm.weight", "LayerNorm.gamma"): value.half() for name, value in state.items()}
    torch.save(old, folder / "pytorch_model.bin")
    assert main(["import-hf", str(folder), "--out", str(tmp_path / "out" / "model.pt")]) == 0
    imported = torch.load(tmp_path / "out" / "model.pt", weights_only=True)["model"]
    assert {value.dtype for value in imported.values()} == {torch.float32}


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda x: (100 * x).to(torch.int8), "of a quantized model (bert.encoder.layer.0.output.dense.weight is torch.int8)"),
        (
            lambda x: x[:, :6],
            "layer.0.output.dense.weight of the weights is (8, 6), and config.json describes (8, 8)",
        ),
        (lambda x: x * torch.nan, "Its weights hold numbers that are not finite"),
    ],
    ids=["codes", "shape", "nan"],
)
def test_weights_that_the_configuration_does_not_describe(damage, said, folder, refused):
    state = load_file(folder / "model.safetensors")
    name = "bert.encoder.layer.0.output.dense.weight"
    save_file({**state, name: damage(state[name]).contiguous()}, folder / "model.safetensors", {"format": "pt"})
    assert said in refused()


def test_code_in_pickled_weights_does_not_run(folder, refused, tmp_path):
    class Touch:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'trace'}",)

    (folder / "model.safetensors").unlink()
    torch.save({"bert": Touch()}, folder / "pytorch_model.bin")
    assert "could run code" in refused()
    assert not (tmp_path / "trace").exists()


CODE = {
    "config.json": {
        "auto_map": {"AutoConfig": "code.Config", "AutoModelForMaskedLM": "code.Model"},
        "quantization_config": {"quant_method": "torchao", "quant_type": "int4"},
        "attn_implementation": "somebody/kernel",
        "_attn_implementation": "somebody/kernel",
        "transformers_weights": "../elsewhere.safetensors",
        "tokenizer_class": None,
        "_name_or_path": "somebody/model",
    },
    "tokenizer_config.json": {
        "auto_map": {"AutoTokenizer": ["code.Tokenizer", "code.Tokenizer"]},
        "tokenizer_file": "/dev/zero",
        "vocab_file": "/dev/zero",
        "chat_template": "{{ ''.__class__.__mro__ }}",
        "use_fast": False,
        "backend": "custom",
    },
    "adapter_config.json": {"base_model_name_or_path": "somebody/model", "peft_type": "LORA"},
}


def test_what_a_folder_names_beyond_the_model_is_left_alone(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    trace = tmp_path / "trace"
    (folder / "code.py").write_text(f"open({str(trace)!r}, 'w')\nclass Config: pass\nclass Model: pass\nclass Tokenizer: pass\n")
    for file, options in CODE.items():
        if not (folder / file).exists():
            (folder / file).write_text("{}")
        change(folder / file, **options)
    assert main(["import-hf", str(folder), "--out", str(tmp_path / "out" / "model.pt")]) == 0
    assert not trace.exists()


PANIC = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}  # the library's Rust code panics


@pytest.mark.parametrize("content", ["panic", "", "[]", "{}", "null", "{", '{"model": null}'])
def test_a_tokenizer_that_cannot_be_read(content, folder, refused):
    path = folder / "tokenizer.json"
    if content == "panic":
        change(path, normalizer=PANIC)
    else:
        path.write_text(content)
    assert "no tokenizer that can be read" in refused()


@pytest.mark.parametrize("content", ["[]", "{", '{"unk_token": 3}', '{"unk_token": {"content": []}}'])
def test_a_tokenizer_config_that_cannot_be_read(content, folder, capsys, tmp_path):
    (folder / "tokenizer_config.json").write_text(content)
    status = main(["import-hf", str(folder), "--out", str(tmp_path / "out" / "model.pt")])
    said = capsys.readouterr().err
    assert status == 2, said
    assert "Traceback" not in said
    assert str(folder) in said.splitlines()[-1]


def test_an_exported_folder_with_another_s_dictionary(contents, commands, folder, refused, tmp_path):
    (folder / "fairseq").mkdir()
    (folder / "fairseq" / "dict.txt").write_text("a 1\na 1\n")
    assert "dict.txt cannot be read as a dictionary" in refused()
