"""fairseq's programs that run a trained model: whatever the user can mend ends in one sentence and status 2."""

from __future__ import annotations

import copy
import importlib
import os
import sys
from argparse import Namespace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq import options
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.tasks.language_modeling import LanguageModelingConfig
from fairseq.tasks.masked_lm import MaskedLMConfig
from fairseq.tasks.translation import TranslationConfig
from omegaconf import OmegaConf
from untrained import plain

from fairseq_posenc.plugin.checkpoint.checkpoint_file import untrained, write
from fairseq_posenc.plugin.models.building import dictionary_of

SIZES = {"layers": 1, "embed_dim": 8, "ffn_embed_dim": 8, "attention_heads": 2}
MAX_LENGTH = 6
MODELS = {  # architecture -> its task
    "transformer_absolute_tiny": TranslationConfig(max_source_positions=MAX_LENGTH, max_target_positions=MAX_LENGTH),
    "transformer_lm_absolute_tiny": LanguageModelingConfig(tokens_per_sample=MAX_LENGTH),
    "roberta_absolute_tiny": MaskedLMConfig(tokens_per_sample=MAX_LENGTH),
}
PROGRAMS = {"generate": "transformer", "interactive": "transformer", "eval_lm": "transformer_lm", "validate": "transformer"}


def task_section(name, cfg, folder):
    """A task's configuration as plain values, of which none is looked up elsewhere."""
    values = {field: value for field, value in vars(cfg).items() if "${" not in str(value)}
    return OmegaConf.create({**values, "_name": name, "data": str(folder)})


class Hostile:
    def __reduce__(self):
        return os.system, ("false",)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A data-bin, of which one sentence is too long for the models' tables, and checkpoints, good and bad."""
    folder, words = tmp_path_factory.mktemp("reading"), dictionary_of(12)
    for name in ("dict.src.txt", "dict.tgt.txt", "dict.txt"):
        words.save(str(folder / name))
    for name in ("test.src-tgt.src", "test.src-tgt.tgt", "test"):
        builder = MMapIndexedDatasetBuilder(str(folder / f"{name}.bin"), np.uint16)
        for length in (2, MAX_LENGTH + 3):
            builder.add_item(torch.tensor([5] * length + [words.eos()]))
        builder.finalize(str(folder / f"{name}.idx"))
    for arch, cfg in MODELS.items():
        task = SimpleNamespace(cfg=cfg, args=cfg, source_dictionary=words, target_dictionary=words)
        args = Namespace(**{f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in SIZES.items()})
        ARCH_CONFIG_REGISTRY[arch](args)
        model = ARCH_MODEL_REGISTRY[arch].build_model(args, task)
        model.args._name = arch
        name = arch.removesuffix("_absolute_tiny")
        task_name = {"roberta": "masked_lm", "transformer_lm": "language_modeling"}.get(name, "translation")
        content = untrained(plain({"model": model.args, "task": task_section(task_name, cfg, folder)}), model)
        content["extra_state"]["epoch"] = 1
        write(folder / f"{name}.pt", content)
        if name == "transformer":
            content["model"].pop("decoder.layers.0.fc1.weight")
            write(folder / "incomplete.pt", content)
    whole = (folder / "transformer.pt").read_bytes()
    (folder / "half.pt").write_bytes(whole[: len(whole) // 2])
    torch.save({"model": Hostile()}, folder / "hostile.pt")
    torch.save([1], folder / "list.pt")
    return folder


@pytest.fixture(scope="module")
def defaults(folder):
    """fairseq-generate's configuration, made once: it takes Hydra a second."""
    parser = options.get_generation_parser(interactive=True)
    flags = [str(folder), "--cpu", "--beam", "1", "-s", "src", "-t", "tgt", "--path", "x", "--batch-size", "1"]
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, flags))


@pytest.fixture
def said(folder, defaults, capsys, as_program):
    """``said(program, checkpoint, section={option: value})``: what the program says before it ends with status 2."""

    def said(program, checkpoint, **changes):
        cfg = copy.deepcopy(defaults)
        cfg.common_eval.path = str(folder / checkpoint)
        if program == "eval_lm":
            OmegaConf.set_struct(cfg, False)
            cfg.task = task_section("language_modeling", LanguageModelingConfig(), folder)
        for section, values in changes.items():
            cfg[section].update(values)
        with pytest.raises(SystemExit) as left:
            distributed_utils.call_main(cfg, importlib.import_module(f"fairseq_cli.{program}").main)
        assert left.value.code == 2
        (sentence,) = capsys.readouterr().err.splitlines()[-1:]
        return sentence

    return said


@pytest.mark.parametrize("program", ["interactive", "eval_lm", "validate", "generate"])
@pytest.mark.parametrize(
    ("checkpoint", "message"),
    [
        ("missing.pt", "Model file not found: {file}"),
        ("half.pt", "{file} cannot be read as a checkpoint: it is truncated"),
        ("hostile.pt", "{file} contains posix.system"),
        ("list.pt", "{file} is not a checkpoint"),
    ],
)
def test_a_file_that_is_no_checkpoint(program, checkpoint, message, said, folder):
    assert message.format(file=folder / checkpoint) in said(program, checkpoint)


@pytest.mark.parametrize(
    ("program", "checkpoint", "message"),
    [
        ("generate", "roberta.pt", "--task translation is for models of another kind than this one: add --task masked_lm"),
        ("eval_lm", "roberta.pt", "--task language_modeling is for models of another kind than this one: add --task masked_lm"),
        (
            "interactive",
            "transformer_lm.pt",
            "--task translation is for models of another kind than this one: add --task language_modeling",
        ),
        (
            "eval_lm",
            "transformer.pt",
            "--task language_modeling is for models of another kind than this one: add --task translation",
        ),
        ("validate", "incomplete.pt", 'Missing key(s) in state_dict: "decoder.layers.0.fc1.weight"'),
    ],
)
def test_a_model_of_another_kind(program, checkpoint, message, said, folder):
    found = said(program, checkpoint)
    assert str(folder / checkpoint) in found
    assert message in found


@pytest.mark.parametrize(
    ("program", "changes", "message"),
    [
        ("generate", {"generation": {"print_alignment": "hard"}}, "--print-alignment needs attention weights"),
        ("generate", {}, f"a sequence of {MAX_LENGTH + 4} tokens is longer than the {MAX_LENGTH} positions"),
        ("generate", {"task": {"max_source_positions": MAX_LENGTH}}, "Size of sample #1 is invalid"),
        ("generate", {"dataset": {"gen_subset": "nowhere"}}, "Dataset not found: nowhere"),
        ("generate", {"task": {"data": "/nowhere"}}, "There is no dictionary /nowhere/dict.src.txt"),
        ("interactive", {"interactive": {"input": "long.txt"}}, f"is longer than the {MAX_LENGTH} positions"),
        ("eval_lm", {"task": {"tokens_per_sample": 8}}, f"a sequence of 8 tokens is longer than the {MAX_LENGTH} positions"),
    ],
)
def test_what_a_model_cannot_do(program, changes, message, said, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "long.txt").write_text(f"{' '.join(['symbol0'] * 9)}\n")
    assert message in said(program, f"{PROGRAMS[program]}.pt", **changes)


@pytest.mark.thorough
def test_generate_goes_the_way_of_the_others(folder, monkeypatch, capsys):
    """By its command line, twice in one process; afterwards it is as fairseq has it."""
    from fairseq_cli import generate

    main = generate.main
    for flags, message in ((["--batch-size", "0"], "--batch-size 0: at least 1"), (["--path", "missing.pt"], "missing.pt")):
        monkeypatch.setattr(sys, "argv", ["fairseq-generate", str(folder), "--path", "x", "--cpu", *flags])
        with pytest.raises(SystemExit) as left:
            generate.cli_main()
        assert left.value.code == 2
        assert message in capsys.readouterr().err.splitlines()[-1]
        assert generate.main is main


def test_a_fault_of_the_program_keeps_its_traceback(defaults):
    def main(cfg):
        raise ValueError("nobody's input")

    with pytest.raises(ValueError, match="nobody's input"):
        distributed_utils.call_main(copy.deepcopy(defaults), main)
