"""Positions that are given to a model for transformers, and batches packed by its collator."""

import pytest
import torch
from transformers import DataCollatorWithFlattening

from fairseq_posenc.families import expressions
from fairseq_posenc.huggingface.configuration import PosencConfig
from fairseq_posenc.huggingface.modeling import PosencForMaskedLM

PAD = 1
DOCUMENTS = [[0, 5, 6, 7, 2], [0, 9, 2], [0, 8, 9, 10, 11, 12, 2]]


def make(positions="absolute", **options):
    torch.manual_seed(0)
    sizes = dict(vocab_size=20, layers=2, dim=16, ffn_dim=16, heads=2, max_positions=24)
    model = PosencForMaskedLM(PosencConfig(**sizes, positions=positions, **options)).double().eval()
    with torch.no_grad():
        for parameter in model.model.encoder.positions.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model


def padded():
    rows = [torch.tensor(document) for document in DOCUMENTS]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


@pytest.mark.parametrize("name", expressions())
def test_a_flattened_batch_is_the_padded_one(name):
    model, tokens = make(expressions()[name]), padded()
    expected = model(tokens).logits[tokens != PAD]
    for start in (0, PAD + 1):
        collator = DataCollatorWithFlattening(return_tensors="pt", position_ids_start=start)
        batch = collator([{"input_ids": document} for document in DOCUMENTS])
        if name == "sentence_absolute":
            assert batch["position_ids"].min() == start
        found = model(batch["input_ids"], position_ids=batch["position_ids"]).logits[0]
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("positions", ["absolute+t5", "sentence_absolute+tisa"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_positions_that_count_tokens_are_the_defaults(side, positions):
    model, tokens = make(positions), padded()
    tokens[:, 2] = torch.tensor([2, 2, 9])  # an end of a sentence
    if side == "left":
        tokens = torch.stack([row.roll(int((row == PAD).sum())) for row in tokens])
    real = tokens != PAD
    counts = (real.cumsum(1) - 1) * real
    for position_ids in (counts, counts + PAD + 1, torch.where(real, counts + PAD + 1, PAD)):  # the last as RoBERTa's
        found = model(tokens, position_ids=position_ids, output_attentions=True, output_hidden_states=True)
        expected = model(tokens, output_attentions=True, output_hidden_states=True)
        torch.testing.assert_close(found.logits[real], expected.logits[real])
        torch.testing.assert_close([x[real] for x in found.hidden_states], [x[real] for x in expected.hidden_states])
        pairs = (real[:, None, :, None] & real[:, None, None]).expand_as(found.attentions[0])
        torch.testing.assert_close([p[pairs] for p in found.attentions], [p[pairs] for p in expected.attentions])


def test_positions_can_be_anywhere():
    model, tokens = make("shaw+t5", position_options={"max_relative_position": 5}), torch.tensor([[0, 5, 6, 7, 2]])
    order = torch.tensor([2, 0, 4, 1, 3])
    ids = torch.tensor([[1, 3, 4, 7, 20]])
    moved = model(tokens[:, order], position_ids=ids[:, order]).logits
    torch.testing.assert_close(moved, model(tokens, position_ids=ids).logits[:, order])


def test_bad_positions_are_refused():
    model, tokens = make(), torch.tensor([[0, 5, 6]])
    with pytest.raises(ValueError, match=r"position_ids must be \(1 or 1, 3\)"):
        model(tokens, position_ids=torch.arange(4)[None])
    with pytest.raises(ValueError, match="begin at 0, and one of them is -1"):
        model(tokens, position_ids=torch.tensor([[0, -1, 3]]))
    with pytest.raises(ValueError, match="a sequence of 25 positions is longer than the 24 positions"):
        model(tokens, position_ids=torch.tensor([[0, 1, 24]]))
    with pytest.raises(ValueError, match="whole numbers only"):
        model(tokens, position_ids=torch.tensor([[0, 1.5, 2]]))


def test_an_export_records_the_rule_of_evaluation(tmp_path):
    model = make("absolute", position_sampling="random:24")
    model.save_pretrained(tmp_path)
    tokens = torch.tensor([[0, 5, 6, 2]])
    again = PosencForMaskedLM.from_pretrained(tmp_path).double().eval()
    torch.testing.assert_close(again(tokens).logits, model(tokens, position_ids=torch.tensor([[0, 6, 12, 18]])).logits)
