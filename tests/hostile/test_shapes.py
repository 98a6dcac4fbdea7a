"""A file that is no checkpoint of fairseq's trainer, or one that is damaged, ends every command in a sentence about it."""

import argparse
import time

import pytest
import torch
from cases import in_turn

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.plugin.checkpoint.checkpoint_file import config_errors_as_input_errors

COMMANDS = ("glue", "squad", "export-hf", "analyze", "consolidate", "import-hf")
WORDS = "encoder.sentence_encoder.embed_tokens.weight"


def changed(**parts):
    """The checkpoint with other parts."""
    return lambda content: {**content, **parts}


def without(*names):
    return lambda content: {name: value for name, value in content.items() if name not in names}


def parameter(name, value):
    return lambda content: {**content, "model": {**content["model"], name: value}}


def section(name, value):
    return lambda content: {**content, "cfg": {**content["cfg"], name: value}}


NO_CHECKPOINT = {
    "a list": lambda content: [content],
    "a tensor": lambda content: torch.zeros(3),
    "nothing": lambda content: None,
    "an empty dictionary": lambda content: {},
    "no model": without("model"),
    "model is a list": lambda content: {**content, "model": list(content["model"].values())},
    "model is None": changed(model=None),
    "model of numbers": changed(model={WORDS: 3}),
    "model of other names": lambda content: {**content, "model": {3: content["model"][WORDS]}},
    "model of tensors without numbers": parameter(WORDS, torch.empty(90, 8, device="meta")),
    "model of tensors that are spread out": parameter(WORDS, torch.zeros(1).expand(10**6, 10**6)),
    "model of sparse tensors": parameter(WORDS, torch.eye(8).to_sparse()),
    "cfg is a text": changed(cfg="model: {_name: roberta_tisa}"),
    "cfg is a list": changed(cfg=["model"]),
    "cfg is a number": changed(cfg=3),
    "cfg holds a set": changed(cfg={"model": {1, 2}}),
    "args is a dictionary": changed(args={"arch": "roberta_tisa"}),
    "args is a text": changed(args="roberta_tisa"),
    "extra_state is a list": changed(extra_state=[1]),
    "extra_state is a text": changed(extra_state="train"),
    "optimizer_history is a dictionary": changed(optimizer_history={"num_updates": 3}),
    "optimizer_history of texts": changed(optimizer_history=["x"]),
    "optimizer_history with other numbers": changed(optimizer_history=[{"num_updates": "many"}]),
    "last_optimizer_state is a list": changed(last_optimizer_state=[1]),
    "task_state is a text": changed(task_state="x"),
}
NO_CONFIGURATION = {  # of which plot and consolidate need none
    "no configuration": changed(cfg=None, args=None),
    "cfg without a model": lambda content: {**content, "cfg": {"task": content["cfg"]["task"]}},
    "cfg without a task": lambda content: {**content, "cfg": {"model": content["cfg"]["model"]}},
    "cfg is empty": changed(cfg={}),
    "cfg has None for a model": section("model", None),
    "cfg has a text for a model": section("model", "roberta_tisa_tiny"),
    "cfg has a list for a model": section("model", ["roberta_tisa_tiny"]),
    "model is unknown": section("model", {"_name": "roberta_unheard_of"}),
    "model has another name": section("model", {"_name": 3}),
    "args are of another kind": changed(args=argparse.Namespace(seed=1), cfg=None),
    "args are empty": changed(args=argparse.Namespace(), cfg=None),
    "no word embeddings": lambda content: {**content, "model": {k: v for k, v in content["model"].items() if k != WORDS}},
    "word embeddings of another shape": parameter(WORDS, torch.zeros(())),
    "optimizer_history is empty": changed(optimizer_history=[]),
}
CASES = [*in_turn(NO_CHECKPOINT, COMMANDS), *in_turn(NO_CONFIGURATION, ("glue", "squad", "export-hf", "import-hf"))]


@pytest.mark.parametrize(("case", "command"), CASES)
def test_a_file_that_is_no_checkpoint(case, command, contents, commands, refusal, tmp_path):
    change = {**NO_CHECKPOINT, **NO_CONFIGURATION}[case]
    content = contents("roberta_base" if command == "import-hf" else "roberta_tisa_tiny")
    if command == "consolidate":
        content["last_optimizer_state"] = {"shards": {"folder": "update00000050-1f0c9a3e", "processes": 1, "optimizer": "adam"}}
    content = change(content)
    path = tmp_path / "broken.pt"
    torch.save(content, path)
    said = refusal(command, *commands[command](path))
    assert "broken.pt" in said or "model.pt" in said


def option(name, value):
    def change(content):
        model = content["cfg"]["model"]
        if isinstance(model, argparse.Namespace):
            setattr(model, name, value)
        else:
            model[name] = value
        return content

    return change


UNFIT = {
    "many layers": option("encoder_layers", 10**9),
    "wide": option("encoder_embed_dim", 10**9),
    "wide inside": option("encoder_ffn_embed_dim", 10**9),
    "wide inside, as far as may be": option("encoder_ffn_embed_dim", 10**6),
    "many layers, as far as may be": option("encoder_layers", 1000),
    "many heads": option("encoder_attention_heads", 10**9),
    "negative": option("encoder_layers", -1),
    "a word for a number": option("encoder_layers", "many"),
    "a list for a number": option("encoder_embed_dim", [8]),
    "another width": option("encoder_embed_dim", 16),
    "heads that do not divide": option("encoder_attention_heads", 3),
    "an unknown activation": option("activation_fn", "sigmoid"),
}
UNFIT_POSITIONS = {
    "many kernels": option("tisa_kernels", 10**9),
    "a word for kernels": option("tisa_kernels", "many"),
    "unknown positions": option("positions", "unheard"),
    "a long table": option("positions", "absolute+tisa+synthesizer_random"),
}


UNFIT_CASES = [*in_turn(UNFIT, ("glue", "squad", "export-hf", "import-hf")), *in_turn(UNFIT_POSITIONS, ("glue", "export-hf"))]


@pytest.mark.parametrize(("case", "command"), UNFIT_CASES)
def test_a_configuration_that_does_not_fit(case, command, contents, commands, refusal, tmp_path):
    content = contents("roberta_base" if command == "import-hf" else "roberta_tisa_tiny")
    if case == "a long table":
        content["cfg"]["model"]["max_positions"] = 10**6
    path = tmp_path / "unfit.pt"
    torch.save({**UNFIT, **UNFIT_POSITIONS}[case](content), path)
    began = time.monotonic()
    said = refusal(command, *commands[command](path))
    assert "unfit.pt" in said or "model.pt" in said
    assert time.monotonic() - began < 300


@pytest.mark.parametrize("command", ["export-hf", "import-hf"])
@pytest.mark.parametrize("change", ["missing", "misfit", "left over"])
def test_parameters_that_do_not_fit(command, change, contents, commands, refusal, tmp_path):
    content = contents("roberta_base" if command == "import-hf" else "roberta_tisa_tiny")
    name = "encoder.sentence_encoder.layers.0.fc1.bias"
    del content["model"][name]
    others = {"missing": {}, "misfit": {name: torch.zeros(3)}, "left over": {name: torch.zeros(8), "more": torch.zeros(1)}}
    content["model"] |= others[change]
    path = tmp_path / "unfit.pt"
    torch.save(content, path)
    said = refusal(command, *commands[command](path))
    assert ("more" if change == "left over" else "fc1.bias") in said


@pytest.mark.parametrize("head", ["classification_heads.x.dense.weight", "classification_heads.x.out_proj.weight"])
def test_half_a_head(head, contents, commands, refusal, tmp_path):
    content = parameter(head, torch.zeros(3))(contents("roberta_tisa_tiny"))
    torch.save(content, tmp_path / "head.pt")
    assert "head x" in refusal("export-hf", *commands["export-hf"](tmp_path / "head.pt"))


@pytest.mark.parametrize("name", ["amplitude", "sharpness", "offset"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_functions_that_are_not_finite_are_not_drawn(name, value, contents, commands, refusal, tmp_path):
    content = contents("roberta_tisa_tiny")
    content["model"][f"encoder.sentence_encoder.positions.tisa.{name}"][1, 1, 2] = value
    torch.save(content, tmp_path / "diverged.pt")
    said = refusal("analyze", *commands["analyze"](tmp_path / "diverged.pt"))
    assert f"positions.tisa.{name} is not finite" in said


def test_functions_that_overflow_are_not_drawn(contents, commands, refusal, tmp_path):
    name = "encoder.sentence_encoder.positions.tisa.amplitude"
    content = contents("roberta_tisa_tiny")
    torch.save(parameter(name, torch.full_like(content["model"][name], 3e38))(content), tmp_path / "huge.pt")
    assert "not finite" in refusal("analyze", *commands["analyze"](tmp_path / "huge.pt"))


@pytest.mark.parametrize("value", [torch.zeros(3), torch.zeros(2, 2, 0), torch.zeros(1, 2, 5)])
def test_functions_of_other_shapes_are_not_drawn(value, contents, commands, refusal, tmp_path):
    content = parameter("encoder.sentence_encoder.positions.tisa.offset", value)(contents("roberta_tisa_tiny"))
    torch.save(content, tmp_path / "shapes.pt")
    assert "shapes.pt" in refusal("analyze", *commands["analyze"](tmp_path / "shapes.pt"))


@pytest.mark.parametrize("raised", [InputError("file.pt: no layers"), InputError("no layers"), TypeError("no layers")])
def test_an_explanation_is_not_its_own_cause(raised):
    with pytest.raises(InputError, match=r"file\.pt.*no layers") as refused, config_errors_as_input_errors("file.pt"):
        raise raised
    assert refused.value.__cause__ is not refused.value
