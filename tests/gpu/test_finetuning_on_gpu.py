"""GLUE and SQuAD on a GPU, for a few updates on made-up rows: they train, predict and score."""

from __future__ import annotations

import json
import math

import pytest
from glue_files import write_task
from on_device import needs_device
from squad_files import write_squad

from fairseq_posenc import cli

pytestmark = needs_device
FEW = ["--seeds", "1", "--lrs", "1e-3", "--epochs", "1", "--batch-size", "8"]


@pytest.fixture(scope="module")
def checkpoint(train):
    return train("--no-epoch-checkpoints").save_dir / "checkpoint_last.pt"


def scores(out):
    """The best score of each metric by task."""
    tasks = json.loads((out / "results.json").read_text())["tasks"]
    return {name: {row["metric"]: row["best"] for row in task["scores"]} for name, task in tasks.items()}


@pytest.mark.parametrize("precision", ["", "--bf16"])
def test_glue(checkpoint, tmp_path, precision):
    for task in ("RTE", "STS-B"):
        write_task(tmp_path / "glue", task, rows=24)
    out = tmp_path / "out"
    files = ["--data", str(tmp_path / "glue"), "--checkpoint", str(checkpoint), "--out", str(out)]
    assert cli.main(["glue", *files, "--tasks", "RTE,STS-B", "--predict", f"--train-flags={precision}", *FEW]) == 0
    found = scores(out)
    assert list(found) == ["RTE", "STS-B"]
    assert all(math.isfinite(value) for task in found.values() for value in task.values())
    assert len((out / "submission" / "RTE.tsv").read_text().splitlines()) == 13


def test_squad(checkpoint, tmp_path):
    data, out = write_squad(tmp_path / "squad", "2.0", paragraphs=3), tmp_path / "out"
    files = ["--data", str(data), "--version", "2.0", "--checkpoint", str(checkpoint), "--out", str(out)]
    windows = ["--max-length", "40", "--doc-stride", "12", "--max-question-length", "16"]
    assert cli.main(["squad", *files, *windows, *FEW]) == 0
    assert scores(out)["SQuAD-2.0"]["f1"] >= 0
