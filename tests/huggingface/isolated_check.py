"""Run by the tests in an environment that has PyTorch, transformers and no fairseq: loads exports and uses them.

python isolated_check.py FOLDER NAME

prints as JSON how much every export in FOLDER differs from the outputs that fairseq gave, and does with the one called NAME what
people do with a model; an assertion fails where that does not work.
"""

import json
import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

os.environ["HF_HOME"] = tempfile.mkdtemp()  # so that no code of an earlier export is taken for this one's
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from safetensors.torch import load_file

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()


def type_of(folder):
    return json.loads((folder / "config.json").read_text())["model_type"]


def load(kind, folder, **options):
    trust = type_of(folder) == "fairseq_posenc"  # and no other export needs it
    auto = getattr(transformers, f"AutoModel{kind}")
    return auto.from_pretrained(folder, trust_remote_code=trust, **options).eval()


def outputs(model, tokens):
    output = model(tokens, attention_mask=tokens.ne(1).long())
    if "start_logits" in output:
        return torch.stack([output.start_logits, output.end_logits], dim=-1)
    return output.logits


def logits(folder):
    """The greatest difference of each export's outputs, by its name; and the exports of types that this release lacks."""
    differences, lacking = {}, []
    for case in sorted(path.parent for path in folder.glob("*/config.json")):
        if type_of(case) not in {"fairseq_posenc", *transformers.CONFIG_MAPPING}:
            lacking.append(case.name)
            continue
        expected = load_file(case.with_suffix(".safetensors"))
        kind = json.loads((case / "config.json").read_text())["architectures"][0].rpartition("For")[2]
        model = load(f"For{kind}", case)
        with torch.no_grad():
            found = outputs(model, expected["tokens"])
        real = expected["tokens"].ne(1) if found.shape[:2] == expected["tokens"].shape else ...
        differences[case.name] = (found - expected["logits"])[real].abs().max().item()
    return {"differences": differences, "lacking": lacking}


def use(folder):
    model = load("ForMaskedLM", folder)
    tokens = torch.randint(4, 40, (3, 14), generator=torch.Generator().manual_seed(0))
    tokens[1, 9:] = 1
    mask = tokens.ne(1).long()
    with torch.no_grad():
        reference = model(tokens, attention_mask=mask).logits
        check_outputs(model, tokens, mask, reference)
        check_arguments(model, tokens, mask, reference)
        check_implementations(folder, tokens, reference)
        check_saving(model, tokens, reference)
        compiled = torch.compile(model, backend="eager")
        torch.testing.assert_close(compiled(tokens, attention_mask=mask).logits[mask == 1], reference[mask == 1])
    check_new_heads(folder, tokens)
    check_checkpointing(folder, tokens, mask)
    check_pipeline(folder)
    check_trainer(folder)


def check_outputs(model, tokens, mask, reference):
    full = model(tokens, attention_mask=mask, output_attentions=True, output_hidden_states=True)
    layers = model.config.num_hidden_layers
    assert len(full.attentions) == layers
    assert len(full.hidden_states) == layers + 1
    weights = full.attentions[0]
    assert weights.shape == (3, model.config.num_attention_heads, 14, 14)
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:3]))
    assert weights[1, :, :, 9:].eq(0).all()
    torch.testing.assert_close(full.logits[mask == 1], reference[mask == 1])
    torch.testing.assert_close(model(tokens).logits, reference)  # padding is known by its symbol
    embedded = model(inputs_embeds=model.get_input_embeddings()(tokens), attention_mask=mask).logits
    torch.testing.assert_close(embedded[mask == 1], reference[mask == 1])
    assert torch.equal(model(tokens, attention_mask=mask, return_dict=False)[0], reference)
    model.config.return_dict = False
    assert torch.equal(model(tokens, attention_mask=mask)[0], reference)
    model.config.return_dict = True
    states = model.model(tokens, attention_mask=mask, output_hidden_states=True)
    assert torch.equal(states.hidden_states[-1], states.last_hidden_state)
    # An attention mask, and nothing else, says what is padding.
    cut = model(tokens[:, :5]).logits
    masked = model(tokens, attention_mask=torch.arange(14).lt(5).long().expand(3, 14)).logits
    torch.testing.assert_close(masked[:, :5], cut, atol=1e-5, rtol=1e-4)


def check_arguments(model, tokens, mask, reference):
    """Those of scripts made for BERT, and three ways to say where the documents of one row are."""
    idle = dict(token_type_ids=torch.zeros_like(tokens), head_mask=None, use_cache=False, past_key_values=None)
    torch.testing.assert_close(model(tokens, mask, **idle).logits, reference)
    torch.testing.assert_close(model(tokens, mask, idle["token_type_ids"]).logits, reference)
    for refused in ({"token_type_ids": mask}, {"head_mask": torch.ones(2, 4)}):
        try:
            said = model(tokens, mask, **refused)
        except ValueError as error:
            said = str(error)
        assert next(iter(refused)) in said
    alone = [row[real.bool()] for row, real in zip(tokens, mask, strict=True)]
    packed, expected = torch.cat(alone)[None], torch.cat([reference[row, : len(part)] for row, part in enumerate(alone)])
    counts = torch.cat([torch.arange(len(part)) for part in alone])[None]
    of = torch.cat([torch.full((len(part),), row) for row, part in enumerate(alone)])
    pairs = (of[:, None] == of)[None, None]
    added = torch.zeros(pairs.shape).masked_fill(~pairs, torch.finfo(torch.float32).min)
    for name, value in (("position_ids", counts), ("position_ids", counts + 2), *(("attention_mask", m) for m in (pairs, added))):
        given = {name: value}
        torch.testing.assert_close(model(packed, **given).logits[0], expected, atol=1e-5, rtol=1e-4)


def check_implementations(folder, tokens, reference):
    for implementation in ("eager", "sdpa"):
        other = load("ForMaskedLM", folder, attn_implementation=implementation)
        assert other.config._attn_implementation == implementation
        torch.testing.assert_close(other(tokens).logits[tokens.ne(1)], reference[tokens.ne(1)], atol=1e-5, rtol=1e-4)
        other.set_attn_implementation("eager")
        torch.testing.assert_close(other(tokens).logits[tokens.ne(1)], reference[tokens.ne(1)], atol=1e-5, rtol=1e-4)


def check_saving(model, tokens, reference):
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder, "saved-model")
        model.save_pretrained(saved)
        assert torch.equal(load("ForMaskedLM", saved)(tokens).logits, reference)
    assert model.lm_head.decoder.weight is model.get_input_embeddings().weight


def check_new_heads(folder, tokens):
    assert load("", folder)(tokens).last_hidden_state.shape[:2] == tokens.shape
    model = load("ForSequenceClassification", folder, num_labels=5)
    loss = model(tokens, labels=torch.tensor([0, 1, 4])).loss
    assert torch.isfinite(loss)
    assert model(tokens).logits.shape == (3, 5)
    labels = tokens.masked_fill(tokens.eq(1), -100).clamp(max=4)
    assert torch.isfinite(load("ForTokenClassification", folder, num_labels=5)(tokens, labels=labels).loss)
    assert load("ForMultipleChoice", folder)(tokens[None], labels=torch.tensor([2])).logits.shape == (1, 3)
    start, end = torch.tensor([1, 2, 3]), torch.tensor([2, 3, 4])
    assert torch.isfinite(load("ForQuestionAnswering", folder)(tokens, start_positions=start, end_positions=end).loss)
    fresh = transformers.AutoModelForMaskedLM.from_config(model.config, trust_remote_code=True)
    for name, parameter in fresh.named_parameters():
        assert torch.isfinite(parameter).all(), name
        assert "positions" not in name or parameter.abs().max() > 0, f"{name} was not initialised"


def check_checkpointing(folder, tokens, mask):
    gradients = []
    for enabled in (False, True):
        model = load("ForMaskedLM", folder)
        if enabled:
            model.gradient_checkpointing_enable()
        model.train()
        torch.manual_seed(0)
        model(tokens, attention_mask=mask, labels=tokens.masked_fill(mask == 0, -100)).loss.backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
        assert model.base_model.encoder.checkpoint_activations == enabled
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, msg=name)


def check_pipeline(folder):
    fill = transformers.pipeline("fill-mask", str(folder), trust_remote_code=True)
    found = fill("w1 <mask> w4", top_k=3)
    assert len(found) == 3
    assert all(0 < answer["score"] <= 1 for answer in found)


def check_trainer(folder):
    model = load("ForSequenceClassification", folder, num_labels=2)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    rows = [
        {**tokenizer(text), "labels": label} for text, label in (("w1 w2 w3", 0), ("w9", 1), ("w5 w7", 0), ("w8 w3 w1 w1", 1))
    ]
    with tempfile.TemporaryDirectory() as out:
        arguments = transformers.TrainingArguments(
            out, max_steps=3, per_device_train_batch_size=2, learning_rate=1e-3, report_to=[], save_strategy="no", use_cpu=True
        )
        collator = transformers.DataCollatorWithPadding(tokenizer)
        trainer = transformers.Trainer(model, arguments, data_collator=collator, train_dataset=rows)
        trainer.train()
        changed = [name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])]
        assert any("positions" in name for name in changed)
        trainer.save_model(out)
        assert torch.equal(load("ForSequenceClassification", Path(out)).classifier.dense.weight, model.classifier.dense.weight)


if __name__ == "__main__":
    assert find_spec("fairseq") is None, "this is to run where fairseq is not installed"
    assert find_spec("fairseq_posenc") is None
    exports = Path(sys.argv[1])
    found = {"transformers": transformers.__version__, **logits(exports)}
    use(exports / sys.argv[2])
    print(json.dumps(found))
