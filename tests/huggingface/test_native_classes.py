"""Exports to transformers' own classes: one for each row of the table in examples/huggingface/README.md."""

import json
import runpy

import pytest
import readme
import torch
import transformers
from cases import thorough_but
from commands import status_of
from small_models import export, make_model, save, save_causal
from test_import import import_hf
from torch import nn
from torch.export import Dim

from fairseq_posenc.plugin.checkpoint.checkpoint import Checkpoint

WRITTEN = runpy.run_path(str(readme.ROOT / "scripts" / "write_tables.py"))
ROWS = {row: WRITTEN["exported_class"](row) for row in WRITTEN["EXPORTS"] if not WRITTEN["is_translation"](row)}
IMPORTED = ("RobertaPreLayerNorm", "MPNet", "Esm", "JinaEmbeddingsV3", "NomicBert", "EuroBert")
"""The types whose exports are imported again here; other tests do so with the others."""
QUICK = {"roberta_t5", "roberta_rope", "transformer_lm_rope --decoder-normalize-before", "transformer_lm_rope"}
PAD = 1


def options_of(flags):
    """The options that flags give: the rest of a word, and true where none follows."""
    options = {}
    for flag in flags.split("--")[1:]:
        name, _, value = flag.strip().partition(" ")
        options[name.replace("-", "_")] = float(value) if value == "1e-7" else value or True
    return options


def written(row, data, folder, **flags):
    """A checkpoint of random weights of a row's architecture, and its export."""
    arch, _, given = row.partition(" ")
    path, options = folder / "checkpoint.pt", options_of(given)
    if arch.startswith("transformer_lm_"):
        wide = {"decoder_ffn_embed_dim": 128} if "alibi" in arch else {}  # which is four times the width
        save_causal(data, path, arch.removeprefix("transformer_lm_"), **options, **wide)
    else:
        save(make_model(f"{arch}_tiny", data, **options), path, data)
    head = None if arch.startswith("transformer_lm_") else "lm"
    export(path, data, folder / "export", head, tolerance=2e-5, **flags)
    return Checkpoint(path, data, head, may_be_causal=True)


def batch(length):
    """Tokens (3, length), of which the last rows are padded at the right."""
    tokens = torch.randint(4, 40, (3, length), generator=torch.Generator().manual_seed(length))
    tokens[:, 0] = 0
    for row in (1, 2):
        tokens[row, -(-length // (row + 1)) :] = PAD
    return tokens


@pytest.mark.parametrize("row", thorough_but(QUICK, ROWS))
def test_each_row_is_the_class_that_the_table_names(row, prepared, tmp_path, capsys):
    """Without remote code, at odd lengths and the longest, with padding; and it is imported again."""
    name = ROWS[row]
    imported = name.rpartition("For")[0] in IMPORTED
    checkpoint = written(row, prepared, tmp_path, no_tokenizer=not imported)
    config = json.loads((tmp_path / "export" / "config.json").read_text())
    own = name.startswith("Posenc")
    assert config["architectures"] == [name]
    assert ("auto_map" in config, bool([*(tmp_path / "export").glob("*.py")])) == (own, own)
    printed = capsys.readouterr().out
    assert (f"{name}, transformers' own class" in printed) == (not own)
    assert ("with remote code: no class of transformers" in printed) == own
    auto = transformers.AutoModelForCausalLM if checkpoint.is_causal else transformers.AutoModelForMaskedLM
    models = [auto.from_pretrained(tmp_path / "export", trust_remote_code=False).eval()]
    if imported:
        import_hf(capsys, tmp_path / "export", tmp_path / "back" / "model.pt")
        models.append(Checkpoint(tmp_path / "back" / "model.pt", tmp_path / "back").model)
    for length in (1, 7, 33, 48):
        tokens = batch(length)
        real = tokens.ne(PAD)
        expected = checkpoint.logits(tokens)[real]
        with torch.no_grad():
            found = [models[0](tokens, attention_mask=real.long()).logits, *(model(tokens) for model in models[1:])]
        for logits in found:
            torch.testing.assert_close(logits[real], expected, atol=2e-5, rtol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("row", [row for row in ROWS if row.startswith("roberta")])
def test_classifiers_have_the_same_scores(row, prepared, tmp_path):
    arch, _, given = row.partition(" ")
    path = save(make_model(f"{arch}_tiny", prepared, **options_of(given)), tmp_path / "checkpoint.pt", prepared)
    export(path, prepared, tmp_path / "export", "topic", tolerance=2e-5, no_tokenizer=True)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "export").eval()
    tokens = batch(33)
    with torch.no_grad():
        found = model(tokens, attention_mask=tokens.ne(PAD).long()).logits
    torch.testing.assert_close(found, Checkpoint(path, prepared, "topic").logits(tokens), atol=2e-5, rtol=1e-5)


def test_the_tokenizer_cuts_where_a_table_of_zeros_ends(prepared, tmp_path):
    """Biases alone take any length, and MPNet no more tokens than its table has rows."""
    path = save(make_model("roberta_t5_tiny", prepared, max_positions=30), tmp_path / "checkpoint.pt", prepared)
    for remote_code, length in ((False, 30), (True, 48)):
        export(path, prepared, tmp_path / "out", "lm", remote_code=remote_code, overwrite=remote_code)
        assert json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())["model_max_length"] == length


def test_remote_code_is_forced(prepared, tmp_path, capsys):
    path = save(make_model("roberta_absolute_tiny", prepared), tmp_path / "checkpoint.pt", prepared)
    arguments = ("export-hf", path, "--data", prepared, "--out", tmp_path / "out", "--head", "lm", "--no-tokenizer")
    assert status_of(*arguments, "--remote-code") == 0
    assert "PosencForMaskedLM, with remote code: --remote-code was given" in capsys.readouterr().out
    assert (tmp_path / "out" / "modeling_posenc.py").exists()
    assert status_of(*arguments, "--overwrite") == 0
    assert not (tmp_path / "out" / "modeling_posenc.py").exists()


def test_the_reason_names_what_the_nearest_class_has_otherwise(prepared, tmp_path, capsys):
    path = save(make_model("roberta_t5_tiny", prepared, t5_max_distance=64), tmp_path / "other.pt", prepared)
    export(path, prepared, tmp_path / "other", "lm", no_tokenizer=True)
    assert "the nearest, MPNet, has other t5_max_distance" in capsys.readouterr().out


def test_a_language_model_generates_what_its_scores_say_with_padding_on_the_left(prepared, tmp_path):
    written("transformer_lm_absolute", prepared, tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "export").eval()
    left = torch.tensor([[PAD, PAD, 7, 9, 11], [5, 6, 7, 8, 9]])
    found = model.generate(left, attention_mask=left.ne(PAD).long(), max_new_tokens=3, do_sample=False, eos_token_id=None)
    checkpoint = Checkpoint(tmp_path / "checkpoint.pt", may_be_causal=True)
    rows = [[token for token in row if token != PAD] for row in left.tolist()]
    for _ in range(3):
        rows = [[*row, int(checkpoint.logits(torch.tensor([row]))[0, -1].argmax())] for row in rows]
    assert [row[-3:] for row in found.tolist()] == [row[-3:] for row in rows]


class Logits(nn.Module):
    """A model whose output is its scores alone."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask).logits


@pytest.mark.parametrize("row", thorough_but((), ROWS, QUICK))
def test_each_row_is_exported_to_onnx(row, prepared, tmp_path):
    """And onnxruntime gives the same scores at other lengths, with padding."""
    onnxruntime = pytest.importorskip("onnxruntime")
    checkpoint = written(row, prepared, tmp_path, no_tokenizer=True)
    auto = transformers.AutoModelForCausalLM if checkpoint.is_causal else transformers.AutoModelForMaskedLM
    model = auto.from_pretrained(tmp_path / "export", **({"use_cache": False} if checkpoint.is_causal else {}))
    shapes = {0: Dim("batch", min=1, max=64), 1: Dim("length", min=2, max=48)}
    tokens = batch(9)
    inputs = (tokens, tokens.ne(PAD).long())
    names = ["input_ids", "attention_mask"]
    file = str(tmp_path / "model.onnx")
    torch.onnx.export(Logits(model.eval()), inputs, file, dynamo=True, dynamic_shapes=(shapes, shapes), input_names=names)
    session = onnxruntime.InferenceSession(file)
    for length in (4, 17, 48):
        tokens = batch(length)
        real = tokens.ne(PAD)
        (found,) = session.run(None, {"input_ids": tokens.numpy(), "attention_mask": real.long().numpy()})
        torch.testing.assert_close(torch.tensor(found)[real], checkpoint.logits(tokens)[real], atol=2e-5, rtol=1e-5)
