"""Models with positions by offset that transformers 4 computes and transformers 5 does not, imported."""

import json
import subprocess

import pytest
import torch
from readme import ROOT
from test_import import import_hf, refusal, write_bert

from fairseq_posenc.huggingface import source_models

OLD = ROOT / ".venv-hf4" / "bin" / "python"
KINDS = ("relative_key", "relative_key_query")
WRITE = """
import sys, torch, transformers
folder, kind, name = sys.argv[1:]
torch.manual_seed(3)
sizes = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_position_embeddings=50)
options = dict(embedding_size=16) if name in ("Albert", "Electra") else {}
config = getattr(transformers, f"{name}Config")(vocab_size=28, pad_token_id=0, position_embedding_type=kind, **sizes, **options)
model = getattr(transformers, f"{name}Model" if name == "Electra" else f"{name}ForMaskedLM")(config).eval()
with torch.no_grad():
    for parameter in model.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
    tokens = torch.randint(5, 28, (2, 40))
    tokens[1, 29:] = 0
    outputs = model(tokens, attention_mask=(tokens != 0).long())[0]
model.save_pretrained(folder)
torch.save({"tokens": tokens, "outputs": outputs}, f"{folder}/outputs.pt")
"""


@pytest.mark.slow
@pytest.mark.skipif(not OLD.exists(), reason=f"no {OLD}: bash scripts/setup_hf_venvs.sh makes it")
@pytest.mark.parametrize("name", ["Bert", "Roberta", "Electra", "Albert"])
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_are_those_of_transformers_4(kind, name, tmp_path, capsys):
    folder = tmp_path / "source"
    write_bert(folder)  # for its tokenizer
    for file in ("config.json", "model.safetensors"):
        (folder / file).unlink()
    subprocess.run([OLD, "-c", WRITE, folder, kind, name], check=True, capture_output=True)
    source = source_models.read(str(folder))
    seen = torch.load(folder / "outputs.pt")
    order = source.vocabulary.order  # of the source's symbols in the dictionary
    tokens = torch.argsort(order)[seen["tokens"]]
    encoder = source.encoder()
    assert encoder.config.positions == {"relative_key": "shaw", "relative_key_query": "m4"}[kind]
    expected = seen["outputs"] if name == "Electra" else seen["outputs"][..., order]
    real = seen["tokens"] != 0
    with torch.no_grad():
        torch.testing.assert_close(source.outputs(tokens)[real], expected[real], atol=1e-5, rtol=1e-4)
    _, printed = import_hf(capsys, folder, tmp_path / "out" / "model.pt")
    assert float(printed.partition("source's by ")[2].split()[0]) < 1e-5


def test_tables_that_are_not_there_are_missed(tmp_path, capsys):
    write_bert(tmp_path / "bert")
    file = tmp_path / "bert" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"position_embedding_type": "relative_key"}))
    assert "distance_embedding" in refusal(capsys, tmp_path / "bert", "--out", tmp_path / "out" / "model.pt")
