"""Exports of language models that read from left to right: the same function, padding, the loss, generation and pairs."""

import json

import pytest
import torch
import transformers
from small_models import export, save_causal
from torch.nn import functional as F

from fairseq_posenc.plugin.checkpoint.checkpoint import Checkpoint
from fairseq_posenc.study.pairs.models import read
from fairseq_posenc.study.pairs.scoring import ORIGINAL

LEFT = [[1, 1, 7, 9, 11], [5, 6, 7, 8, 9]]


@pytest.fixture(scope="module")
def tisa(prepared, tmp_path_factory):
    """A checkpoint and its export."""
    folder = tmp_path_factory.mktemp("causal")
    path = save_causal(prepared, folder / "checkpoint.pt", "absolute+tisa")
    export(path, None, folder / "export")
    return path, folder / "export"


@pytest.mark.parametrize("positions", ["rope", "alibi", "t5", "fire", "kerple", "shaw", "absolute", "transformer_xl", "none"])
def test_schemes_are_exported(positions, prepared, tmp_path):
    """The export compares the checkpoint with what it has written, run by the code that it has written."""
    untied = {"share_decoder_input_output_embed": positions == "rope"}
    path = save_causal(prepared, tmp_path / "checkpoint.pt", positions, **untied)
    found = export(path, None, tmp_path / "export", no_tokenizer=True)
    assert max(parity.difference for parity in found.values()) < 2e-5


def test_where_the_package_is_missing_the_code_travels(tisa, tmp_path, monkeypatch):
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path))
    _, folder = tisa
    name = json.loads((folder / "config.json").read_text())["auto_map"]["AutoModelForCausalLM"]
    travelled = transformers.dynamic_module_utils.get_class_from_dynamic_module(name, folder)
    assert not travelled.__module__.startswith("fairseq_posenc")
    tokens = torch.tensor(LEFT)
    ours = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert torch.equal(travelled.from_pretrained(folder)(tokens).logits, ours(tokens).logits)


def test_padding_loss_and_last_scores(tisa):
    path, folder = tisa
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    left, right = torch.tensor(LEFT), torch.tensor([[7, 9, 11, 1, 1], LEFT[1]])
    labels = left.masked_fill(left == 1, -100)
    labels[0, 2] = -100  # what stands before it is padding
    output = model(left, attention_mask=left.ne(1).long(), labels=labels)
    with torch.no_grad():
        expected = Checkpoint(path, may_be_causal=True).logits(right)
    torch.testing.assert_close(output.logits[0, 2:], expected[0, :3])
    torch.testing.assert_close(output.logits[1], expected[1])
    losses = [F.cross_entropy(expected[0, :2], right[0, 1:3], reduction="sum")]
    losses.append(F.cross_entropy(expected[1, :4], right[1, 1:], reduction="sum"))
    torch.testing.assert_close(output.loss, sum(losses) / 6)
    # What the mask hides is padding, whatever its symbol.
    other = model(left.masked_fill(left == 1, 20), attention_mask=left.ne(1).long(), logits_to_keep=1)
    torch.testing.assert_close(other.logits[:, 0], output.logits[:, -1])
    some = model(left, attention_mask=left.ne(1).long(), logits_to_keep=torch.tensor([4, 2]))
    torch.testing.assert_close(some.logits, output.logits[:, [4, 2]])


def test_it_generates_what_the_scores_say(tisa):
    _, folder = tisa
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    left = torch.tensor(LEFT)
    found = model.generate(left, attention_mask=left.ne(1).long(), max_new_tokens=4, do_sample=False, eos_token_id=None)
    rows = [[token for token in row if token != 1] for row in LEFT]
    for _ in range(4):
        rows = [[*row, int(model(torch.tensor([row])).logits[0, -1].argmax())] for row in rows]
    assert found[0, 2:].tolist() == rows[0]
    assert found[1].tolist() == rows[1]


@pytest.mark.parametrize(
    ("options", "first"),
    [({}, 2), ({"decoder_normalize_before": True}, 2), ({"add_bos_token": True}, 0)],
    ids=["own", "GPT-NeoX", "--add-bos-token"],
)
def test_pairs_are_scored_alike_from_the_symbol_before_the_text(prepared, tmp_path, options, first):
    path = save_causal(prepared, tmp_path / "checkpoint.pt", "rope", **options)
    export(path, None, tmp_path / "export")
    texts = ["w1 w2 w4", "w9"]
    scorers = [read(str(model), None) for model in (path, tmp_path / "export")]
    rows = [[scorer.encode(text).ids.tolist() for text in texts] for scorer in scorers]
    assert rows[0] == rows[1]
    assert {row[0] for row in rows[0]} == {first}  # as in the samples of language_modeling
    scores = [scorer.scores([scorer.encode(text) for text in texts], ORIGINAL) for scorer in scorers]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)
    ids = torch.tensor([rows[0][0]])
    expected = Checkpoint(path, may_be_causal=True).logits(ids)[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None]).sum()
    assert scores[0][0] == pytest.approx(float(expected), abs=1e-4)


def test_each_kind_of_model_is_loaded_by_its_own_class(tisa, world, tmp_path):
    _, folder = tisa
    with pytest.raises(ValueError, match="AutoModelForCausalLM"):
        transformers.AutoModel.from_pretrained(folder)
    encoder = world.checkpoint("roberta_posenc_tiny", "--positions", "tisa")
    export(encoder, None, tmp_path / "encoder", no_tokenizer=True)
    with pytest.raises(ValueError, match="AutoModelForMaskedLM"):
        transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "encoder")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    for name, value in {"position_ids": torch.arange(5)[None], "output_hidden_states": True}.items():
        with pytest.raises(ValueError, match=f"{name} means nothing"):
            model(torch.tensor(LEFT), **{name: value})
    with pytest.raises(ValueError, match="input_ids are missing"):
        model(attention_mask=torch.ones(2, 5))
    model.config.output_hidden_states = True
    with pytest.raises(ValueError, match="output_hidden_states means nothing"):
        model(torch.tensor(LEFT))
