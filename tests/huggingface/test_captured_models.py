"""Models for transformers as torch.export and torch.compile run them: at other lengths than they saw, with padding."""

import pytest
import torch
from cases import SOME, thorough_but
from torch import nn
from torch.export import Dim
from transformers import DataCollatorWithFlattening

from fairseq_posenc.core.families import expressions
from fairseq_posenc.huggingface.causal import PosencForCausalLM
from fairseq_posenc.huggingface.configuration import PosencConfig
from fairseq_posenc.huggingface.modeling import PosencForMaskedLM, PosencForSequenceClassification

PAD, LENGTH = 1, 24
DYNAMIC = {0: Dim("batch", min=1, max=64), 1: Dim("length", min=2, max=LENGTH)}


def make(name, model_class=PosencForMaskedLM, **options):
    torch.manual_seed(0)
    sizes = dict(vocab_size=20, layers=2, dim=16, ffn_dim=16, heads=2, max_positions=LENGTH)
    model = model_class(PosencConfig(**sizes, positions=expressions()[name], **options)).eval()
    with torch.no_grad():
        for parameter in (value for name, value in model.named_parameters() if ".positions." in name):
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
    model = make(name, masked_next_token=name == "tupe_r")
    agree(torch.export.export(model, (), SEEN, dynamic_shapes=dict.fromkeys(SEEN, DYNAMIC)).module(), model)


def test_torch_export_takes_language_models():
    options = {"is_decoder": True, "tie_word_embeddings": True, "bos_token_id": 2}
    model, seen, other = make("rope", PosencForCausalLM, **options), batch(2, 9), batch(3, 14)
    captured = torch.export.export(model, (), seen, dynamic_shapes=dict.fromkeys(seen, DYNAMIC)).module()
    present = other["attention_mask"].bool()
    torch.testing.assert_close(captured(**other).logits[present], model(**other).logits[present], rtol=1e-4, atol=1e-5)


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


class Given(nn.Module):
    """A module with one more argument, which a head passes on by its name."""

    def __init__(self, model, name):
        super().__init__()
        self.model, self.name = model, name

    def forward(self, input_ids, given):
        return self.model(input_ids, **{self.name: given}).logits


def capture(model, name, inputs, dims):
    length = Dim("length", min=2, max=LENGTH)
    shapes = ({1: length}, dict.fromkeys(dims, length))
    return torch.export.export(Given(model, name), inputs, dynamic_shapes=shapes).module()


def pairs_of(*lengths):
    numbers = torch.cat([torch.full((length,), number) for number, length in enumerate(lengths)])
    return (numbers[:, None] == numbers)[None, None]


def test_torch_export_takes_masks_of_documents():
    """Each document is as it is alone, also where the model samples positions, which then cannot be given."""
    model = make("absolute_tisa", position_sampling=f"random:{LENGTH}")
    first, second = batch(1, 9)["input_ids"].clamp(min=2), batch(1, 14)["input_ids"].clamp(min=2)
    program = capture(model, "attention_mask", (first, pairs_of(4, 5)), (2, 3))
    alone = torch.cat([model(part).logits for part in second.split([3, 6, 5], 1)], 1)
    torch.testing.assert_close(program(second, pairs_of(3, 6, 5)), alone, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="takes no position_ids: say by an attention_mask of pairs"):
        capture(model, "position_ids", (first, torch.arange(9)[None]), (1,))


def test_torch_export_takes_token_types_of_zeros():
    model, tokens = make("tisa"), batch(1, 14)["input_ids"]
    program = capture(model, "token_type_ids", (tokens[:, :9], torch.zeros_like(tokens[:, :9])), (1,))
    torch.testing.assert_close(program(tokens, torch.zeros_like(tokens)), model(tokens).logits, rtol=1e-4, atol=1e-5)
    with pytest.raises(RuntimeError, match="token_type_ids must be 0"):
        program(tokens, torch.ones_like(tokens))
