"""Hyperparameters: flags before the YAML file's task, before the file, before the defaults."""

import argparse
from pathlib import Path

import pytest

from fairseq_posenc.finetuning.glue.tasks import TASKS
from fairseq_posenc.finetuning.hyperparameters import Hyperparameters, add_flags, resolve

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DEFAULTS = Hyperparameters(epochs=10, batch_size=32)


def resolved(tmp_path, yaml, *flags, task="RTE"):
    parser = argparse.ArgumentParser()
    add_flags(parser, DEFAULTS, (2e-5, 3e-5), 5)
    arguments = list(flags)
    if yaml is not None:
        (tmp_path / "h.yaml").write_text(yaml)
        arguments += ["--config", str(tmp_path / "h.yaml")]
    return resolve(parser.parse_args(arguments), task, DEFAULTS, (2e-5, 3e-5), 5)


def test_precedence(tmp_path):
    yaml = "epochs: 7\nbatch_size: 16\nlrs: [1.0e-4]\ntasks: {RTE: {epochs: 3, seeds: 2}, MRPC: {epochs: 99}}"
    settings, grid = resolved(tmp_path, yaml, "--batch-size", "8")
    assert (settings.epochs, settings.batch_size, settings.warmup) == (3, 8, DEFAULTS.warmup)
    assert grid.lrs == (1e-4,)
    assert grid.seeds == (1, 2)
    settings, grid = resolved(tmp_path, None, "--lrs", "1e-3,2e-3")
    assert settings == DEFAULTS
    assert (grid.lrs, grid.seeds) == ((1e-3, 2e-3), (1, 2, 3, 4, 5))


@pytest.mark.parametrize(
    ("yaml", "flags", "message"),
    [
        ("epoch: 3", [], r"h\.yaml names 'epoch'.*did you mean epochs"),
        ("tasks: {RTE: {lr: 1}}", [], "names 'lr'"),
        ("epochs: many", [], "epochs must be of the type int"),
        ("epochs: 0", [], "epochs must be at least 1"),
        ("dropout: 1.5", [], "dropout must be at least 0 and at most 1"),
        ("lrs: [0]", [], "--lrs must be numbers above 0"),
        ("lrs: fast", [], "lrs must be a list of numbers"),
        ("- epochs", [], "must map names"),
        ("epochs: [", [], "is not YAML"),
        (None, ["--seeds", "0"], "--seeds must be a whole number"),
    ],
)
def test_bad_values_are_named(tmp_path, yaml, flags, message):
    with pytest.raises(ValueError, match=message):
        resolved(tmp_path, yaml, *flags)


def test_schedule_counts_the_last_small_batch():
    arguments = Hyperparameters(epochs=3, batch_size=4, warmup=0.5).arguments(lr=1e-4, seed=2, examples=9)
    flags = dict(zip(arguments[::2], arguments[1::2], strict=True))
    assert flags["--total-num-update"] == "9"
    assert flags["--warmup-updates"] == "4"
    assert (flags["--batch-size"], flags["--seed"], flags["--max-epoch"]) == ("4", "2", "3")


@pytest.mark.parametrize("name", ["glue", "squad"])
def test_the_examples_files_can_be_read(name, tmp_path):
    files = sorted((EXAMPLES / name).glob("*.yaml"))
    assert files
    for path in files:
        for task in [*TASKS] if name == "glue" else ["SQuAD-1.1", "SQuAD-2.0"]:
            settings, grid = resolved(tmp_path, path.read_text(), task=task)
            assert settings.epochs in range(1, 11)
            assert grid.lrs
