"""Models for transformers as torch.export and torch.compile run them: at other lengths than they saw, with padding."""

import pytest
import torch
from cases import SOME, thorough_but
from torch import nn
from torch.export import Dim
from transformers import DataCollatorWithFlattening

from fairseq_posenc.families import expressions
from fairseq_posenc.huggingface.configuration import PosencConfig
from fairseq_posenc.huggingface.modeling import PosencForMaskedLM, PosencForSequenceClassification

PAD, LENGTH = 1, 24
DYNAMIC = {0: Dim("batch", min=1, max=64), 1: Dim("length", min=2, max=LENGTH)}


def make(name, model_class=PosencForMaskedLM):
    torch.manual_seed(0)
    sizes = dict(vocab_size=20, layers=2, dim=16, ffn_dim=16, heads=2, max_positions=LENGTH)
    model = model_class(PosencConfig(**sizes, positions=expressions()[name])).eval()
    with torch.no_grad():
        for parameter in model.model.encoder.positions.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model


def batch(rows, n, left=False):
    tokens = torch.randint(4, 20, (rows, n), generator=torch.Generator().manual_seed(n))
    tokens[:, 0], tokens[:, n // 2] = 0, 2
    tokens[-1, -(n // 3) :] = PAD
    if left:
        tokens[-1] = tokens[-1].roll(n // 3)
    return {"input_ids": tokens, "attention_mask": (tokens != PAD).long()}


SEEN, OTHERS = batch(2, 9, left=True), (batch(3, 14), batch(2, LENGTH, left=True))


def agree(captured, model, batches=OTHERS):
    for inputs in batches:
        torch.testing.assert_close(captured(**inputs).logits, model(**inputs).logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", thorough_but({"tupe_r"}, expressions(), SOME))
def test_torch_export_has_any_length(name):
    model = make(name)
    agree(torch.export.export(model, (), SEEN, dynamic_shapes=dict.fromkeys(SEEN, DYNAMIC)).module(), model)


@pytest.mark.thorough
def test_torch_compile_has_no_graph_break():
    model = make("shaw", PosencForSequenceClassification)
    torch._dynamo.reset()
    agree(torch.compile(model, fullgraph=True, dynamic=True, backend="eager"), model, OTHERS[:1])


class Flattened(nn.Module):
    """A module that names ``position_ids``, which a head passes on by keyword."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, position_ids):
        return self.model(input_ids, position_ids=position_ids).logits


@pytest.mark.parametrize("name", thorough_but((), expressions(), {"m4_reset", *SOME}))
def test_torch_export_takes_flattened_batches(name):
    model = make(name)
    documents = [[0, 5, 6, 7, 2], [0, 9, 2], [0, 8, 9, 10, 11, 12, 2]]
    packed = [
        DataCollatorWithFlattening(return_tensors="pt", position_ids_start=start)([{"input_ids": d} for d in chosen])
        for start, chosen in ((0, documents[:2]), (PAD + 1, documents))
    ]
    names = ("input_ids", "position_ids")
    first, second = (tuple(inputs[name] for name in names) for inputs in packed)
    length = {1: DYNAMIC[1]}
    program = torch.export.export(Flattened(model), first, dynamic_shapes=(length, length)).module()
    torch.testing.assert_close(program(*second), model(*second[:1], position_ids=second[1]).logits, rtol=1e-4, atol=1e-5)
