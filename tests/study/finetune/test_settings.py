"""Hyperparameters: flags before the YAML file's task, before the file, before the defaults."""

import argparse
import dataclasses
from pathlib import Path

import pytest

from fairseq_posenc.base.commands import add_flags, read_flags
from fairseq_posenc.study.finetune.glue import Options
from fairseq_posenc.study.finetune.glue_data import TASKS
from fairseq_posenc.study.finetune.hyperparameters import Settings, resolve

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
DEFAULTS = Settings()
SQUADS = ("SQuAD-1.1", "SQuAD-2.0")


def resolved(tmp_path, yaml, *flags, task="RTE"):
    parser = argparse.ArgumentParser()
    add_flags(parser, Options)
    arguments = ["--data", str(tmp_path), "--checkpoint", str(tmp_path), "--out", "out", *flags]
    (tmp_path / "checkpoint_last.pt").touch()
    if yaml is not None:
        (tmp_path / "h.yaml").write_text(yaml)
        arguments += ["--config", str(tmp_path / "h.yaml")]
    return resolve(read_flags(Options, parser.parse_args([*arguments])), task, (*TASKS, *SQUADS))


def test_precedence(tmp_path):
    yaml = "epochs: 7\nbatch_size: 16\nlrs: [1.0e-4]\ntasks: {RTE: {epochs: 3, seeds: 2}, MRPC: {epochs: 99}}"
    settings = resolved(tmp_path, yaml, "--batch-size", "8")
    assert (settings.epochs, settings.batch_size, settings.warmup) == (3, 8, DEFAULTS.warmup)
    assert (settings.lrs, settings.seeds) == ([1e-4], 2)
    assert resolved(tmp_path, None, "--lrs", "1e-3,2e-3") == dataclasses.replace(DEFAULTS, lrs=(1e-3, 2e-3))


@pytest.mark.parametrize(
    ("yaml", "flags", "message"),
    [
        ("epoch: 3", [], r"settings of RTE .*h\.yaml\): epoch: did you mean epochs\?"),
        ("tasks: {RTE: {lr: 1}}", [], r"settings of RTE .*: lr: did you mean lrs\?"),
        ("3: 4", [], r"h\.yaml"),
        ("epochs: many", [], "--epochs .*'many'"),
        ("epochs:", [], r"settings of RTE .*h\.yaml\): epochs has no value"),
        ("epochs: 0", [], "--epochs .*at least 1"),
        ("epochs: [3]", [], r"--epochs .*\[3\]"),
        ("dropout: 1.5", [], "--dropout "),
        ("dropout: .nan", [], "--dropout .*nan"),
        ("weight_decay: .inf", [], "--weight-decay .*finite"),
        ("lrs: [-1]", [], "--lrs .*at least 0"),
        ("lrs: [.nan]", [], "--lrs "),
        ("lrs: []", [], "--lrs "),
        ("lrs: [[1]]", [], "--lrs "),
        ("lrs: '12'", [], "--lrs .*list"),
        ("seeds: true", [], "--seeds "),
        ("tasks: {RTF: {epochs: 3}}", [], r"h\.yaml: the task RTF: did you mean RTE"),
        ("tasks: {RTE: 3}", [], "must map names"),
        ("tasks: [RTE]", [], "must map names"),
        ("- epochs", [], "must map names"),
        ("x: &a [1]\ny: *b", [], "is not YAML"),
        ("[" * 5000, [], "is not YAML"),
        ("epochs: " + "1" * 5000, [], r"h\.yaml is not YAML"),
        (None, ["--lrs", "nan"], "--lrs .*nan"),
        (None, ["--epochs", "-1"], "--epochs "),
        (None, ["--seeds", "100000"], "--seeds .*1000"),
    ],
)
def test_bad_values_are_named(tmp_path, yaml, flags, message):
    with pytest.raises(ValueError, match=message):
        resolved(tmp_path, yaml, *flags)


def test_schedule_counts_the_last_small_batch():
    arguments = Settings(epochs=3, batch_size=4, warmup=0.5).arguments(lr=1e-4, seed=2, examples=9, processes=2)
    flags = dict(zip(arguments[::2], arguments[1::2], strict=True))
    assert flags["--total-num-update"] == "9"
    assert flags["--warmup-updates"] == "4"
    assert (flags["--batch-size"], flags["--seed"], flags["--max-epoch"]) == ("2", "2", "3")


def test_a_list_of_numbers_is_asked_for(tmp_path, capsys):
    with pytest.raises(SystemExit):
        resolved(tmp_path, None, "--lrs", "1e-5;2e-5")
    assert "argument --lrs: '1e-5;2e-5'" in capsys.readouterr().err


def test_numbers_without_a_point(tmp_path):
    """PyYAML alone takes 1e-5 for text."""
    settings = resolved(tmp_path, "lrs: [1e-5, 2.5e-5, .5e+1]\nadam_eps: 1e-6")
    assert (settings.adam_eps, settings.lrs) == (1e-6, [1e-5, 2.5e-5, 5.0])


def test_a_file_that_is_not_text(tmp_path):
    (tmp_path / "latin.yaml").write_bytes(b"epochs: 3 # caf\xe9")
    with pytest.raises(ValueError, match=r"latin\.yaml is not YAML"):
        resolved(tmp_path, None, "--config", str(tmp_path / "latin.yaml"))


@pytest.mark.parametrize("name", ["glue", "squad"])
def test_the_examples_files_can_be_read(name, tmp_path):
    files = sorted((EXAMPLES / name).glob("*.yaml"))
    assert files
    for path in files:
        for task in [*TASKS] if name == "glue" else SQUADS:
            assert resolved(tmp_path, path.read_text(), task=task).epochs in range(1, 11)


@pytest.mark.parametrize(
    ("name", "task", "epochs", "batch_size", "lrs", "seeds"),
    [
        *(("glue/tupe", task, 5, 32, (2e-5, 3e-5, 4e-5, 5e-5), 5) for task in ("MNLI", "QQP", "QNLI")),
        *(("glue/tupe", task, 10, 32, (2e-5, 3e-5, 4e-5, 5e-5), 5) for task in ("SST-2", "CoLA", "MRPC", "STS-B", "RTE")),
        ("glue/huang2021", "MNLI", 3, 32, (2e-5, 3e-5, 4e-5), 1),
        ("glue/tisa", "RTE", 3, 32, (2e-5,), 5),
        ("squad/huang2021", "SQuAD-1.1", 3, 32, (3e-5,), 1),
    ],
)
def test_the_papers_settings(name, task, epochs, batch_size, lrs, seeds, tmp_path):
    settings = resolved(tmp_path, (EXAMPLES / f"{name}.yaml").read_text(), task=task)
    assert (settings.epochs, settings.batch_size, tuple(settings.lrs), settings.seeds) == (epochs, batch_size, lrs, seeds)
