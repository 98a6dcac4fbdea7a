"""Positions that are given to a model for transformers, and batches packed by its collator."""

import copy

import pytest
import torch
from torch.nn import functional as F
from transformers import DataCollatorWithFlattening

from fairseq_posenc.core.families import expressions
from fairseq_posenc.huggingface.configuration import PosencConfig
from fairseq_posenc.huggingface.modeling import PosencForMaskedLM

PAD = 1
DOCUMENTS = [[0, 5, 6, 7, 2], [0, 9, 2], [0, 8, 9, 10, 11, 12, 2], [0]]


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
    tokens[:3, 2] = torch.tensor([2, 2, 9])  # an end of a sentence
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


@pytest.mark.parametrize("sampling", ["random:24", "uniform:24", "shift:5", "cape"])
def test_a_flattened_batch_has_the_sampled_positions_of_the_padded_one(sampling):
    """In evaluation each document is as it is alone, and in training as in the padded batch of the same seed."""
    positions = "sinusoidal+tisa" if sampling in ("uniform:24", "cape") else "absolute+shaw"
    model, tokens = make(positions, position_sampling=sampling, dropout=0.0, attention_dropout=0.0), padded()
    batch = DataCollatorWithFlattening(return_tensors="pt")([{"input_ids": document} for document in DOCUMENTS])
    flattened = {name: batch[name] for name in ("input_ids", "position_ids")}
    alone = [model(torch.tensor([document])).logits[0] for document in DOCUMENTS]
    torch.testing.assert_close(model(**flattened).logits[0], torch.cat(alone))
    first, second = copy.deepcopy(model).train(), model.train()
    torch.manual_seed(5)
    expected = first(tokens).logits[tokens != PAD]
    torch.manual_seed(5)
    torch.testing.assert_close(second(**flattened).logits[0], expected)


@pytest.mark.parametrize("mask", [None, torch.ones(1, 5)], ids=["no mask", "ones"])
def test_positions_can_be_anywhere(mask):
    """In any order, also where 0 is among them: they are of one document."""
    model, tokens = make("absolute+shaw+t5", position_options={"max_relative_position": 5}), torch.tensor([[0, 5, 6, 7, 2]])
    for positions in ([1, 3, 4, 7, 20], [0, 1, 2, 3, 4], [2, 3, 4, 5, 7]):
        ids = torch.tensor([positions])
        expected = model.model.encoder(tokens, position_ids=ids).last_hidden_state
        for order in ([2, 0, 4, 1, 3], [4, 3, 2, 1, 0], [3, 4, 0, 1, 2]):
            found = model.model(tokens[:, order], mask, position_ids=ids[:, order]).last_hidden_state
            torch.testing.assert_close(found, expected[:, order])
    words = torch.tensor([[0, 0, 0, 1, 1]])  # the tokens of a word share its position
    expected = model.model.encoder(tokens, position_ids=words).last_hidden_state
    torch.testing.assert_close(model.model(tokens, mask, position_ids=words).last_hidden_state, expected)


@pytest.mark.parametrize("mask", [None, torch.ones(1, 5)], ids=["no mask", "ones"])
@pytest.mark.parametrize("positions", ["tisa", "rope", "log_cpb+reset"])
def test_real_positions_are_of_one_document(mask, positions):
    """Moved by any number, which changes nothing here, and in the reverse order with the tokens."""
    model, tokens = make(positions), torch.tensor([[0, 5, 6, 7, 2]])
    ids = torch.tensor([[-10.0, -2.5, 0.0, 0.5, 10.0]])
    expected = model(tokens, position_ids=ids).logits
    for moved in (ids + 10, ids + 2.5, ids - 100.25):
        torch.testing.assert_close(model(tokens, mask, position_ids=moved).logits, expected)
    if "reset" not in positions:  # which is about the first place
        found = model(tokens.flip(1), mask, position_ids=ids.flip(1)).logits
        torch.testing.assert_close(found, expected.flip(1))


def test_documents_may_have_gaps_between_positions():
    model = make("absolute+shaw")
    tokens, ids = torch.tensor([[0, 5, 6, 0, 7, 8]]), torch.tensor([[0, 3, 7, 0, 2, 5]])
    parts = [model(t, position_ids=i).logits for t, i in zip(tokens.split(3, 1), ids.split(3, 1), strict=True)]
    torch.testing.assert_close(model(tokens, position_ids=ids).logits, torch.cat(parts, 1))


@pytest.mark.parametrize("options", [{}, {"layer_groups": 1, "embed_dim": 8}, {"position_sampling": "random:24"}], ids=str)
@pytest.mark.parametrize("positions", ["absolute+t5", "rope | none | tisa(window=1)", "sentence_absolute+reset+tisa"])
def test_a_mask_of_pairs_makes_documents(positions, options):
    """Each is as it is alone, with padding on either side, without positions and with those that count its tokens."""
    model, parts = make(positions, **options), [torch.tensor([document]) for document in DOCUMENTS]
    alone = torch.cat([model(part).logits for part in parts], 1)
    row, numbers = torch.cat(parts, 1), torch.cat([torch.full_like(part, i) for i, part in enumerate(parts)], 1)
    counts = torch.cat([torch.arange(part.shape[1]) for part in parts])[None]
    for left, right in ((0, 0), (3, 0), (0, 2)):
        tokens, of, position_ids = (F.pad(x, (left, right), value=value) for x, value in ((row, PAD), (numbers, -1), (counts, 7)))
        pairs = (of[:, None, :, None] == of[:, None, None, :]) & (of != -1)[:, None, None, :]
        added = torch.zeros(pairs.shape).masked_fill(~pairs, torch.finfo(torch.float32).min)
        real = of[0] != -1
        for mask in (pairs, pairs.long(), added, added.exp()):
            for more in ({}, {"position_ids": position_ids}):
                torch.testing.assert_close(model(tokens, mask, **more).logits[:, real], alone)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(5, 5).tril()[None, None], "documents that lie side by side"),
        (torch.eye(5)[None, None] + torch.eye(5).roll(2, 0)[None, None], "documents that lie side by side"),
        (torch.zeros(1, 1, 5, 5) - 0.5, "far below 0"),
        (torch.ones(1, 2, 5, 5), r"attention_mask must be \(1, 5\), 0 at padding, or \(1 or 1, 1, 5, 5\)"),
        (torch.ones(1, 4), r"attention_mask must be \(1, 5\).* and it is \(1, 4\)"),
    ],
)
def test_masks_of_other_pairs_are_refused(mask, message):
    with pytest.raises(ValueError, match=message):
        make()(torch.tensor([[0, 5, 6, 7, 2]]), mask)


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
