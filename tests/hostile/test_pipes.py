"""A pipe in the place of a file is not opened, which would wait without end; the sentence names it."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from world import SIZES, TRAINING

from fairseq_posenc.base.ownership import claim

PLAN = """{schemes: [none], reference: none, budget: {updates: 8}, learning_rates: [0.001], tokens_per_sample: 16, batch_size: 8,
  train: --encoder-layers 1 --encoder-embed-dim 32 --encoder-ffn-embed-dim 32 --encoder-attention-heads 2}"""
TRAIN = ("fairseq-train", "FOLDER", *TRAINING, "--arch", "roberta_none", *SIZES, "--no-save")
PREPARE = ("fairseq-posenc", "prepare", "TEXT", "--document-per-line", "--workers", 1, "--out")
COMPARE = ("fairseq-posenc", "compare", "FOLDER/plan.yaml", "--data", "FOLDER", "--out", "FOLDER/out")
CASES: dict[str, tuple] = {
    "train.idx": TRAIN,
    "train.bin": TRAIN,
    "dict.txt": TRAIN,
    "checkpoint.pt": (*TRAIN, "--restore-file", "FOLDER/checkpoint.pt"),
    "manifest.json": (*PREPARE, "FOLDER"),
    "fairseq_posenc.json": (*PREPARE, "FOLDER"),
    ".lock": (*PREPARE, "FOLDER"),
    "sentencepiece.model": (*PREPARE, "FOLDER/new", "--vocabulary", "FOLDER"),
    "zero.json": ("fairseq-posenc", "plan", "roberta_none", "--deepspeed-config", "FOLDER/zero.json"),
    "plan.yaml": COMPARE,
    "out/runs/none/lr-0.001_seed-1/result.json": COMPARE,
}
NO_FILE = {"checkpoint.pt", "fairseq_posenc.json"}  # what the sentence says of these, as of a folder


@pytest.mark.parametrize("name", CASES)
def test_a_pipe_is_not_waited_for(name: str, world, tmp_path: Path, run: Callable) -> None:
    folder = shutil.copytree(world.prepared, tmp_path / "folder", copy_function=shutil.copy)
    (folder / "plan.yaml").write_text(PLAN)
    claim(folder / "out", "fairseq-posenc compare")
    (folder / name).unlink(missing_ok=True)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(folder / name)
    text = str(world.text / "train.txt")
    command = [str(word).replace("FOLDER", str(folder)).replace("TEXT", text) for word in CASES[name]]
    ran = run(*command, check=False, limit=120)
    said = ran.stdout.splitlines()[-1]
    assert ran.returncode == 2, ran.stdout
    assert "Traceback" not in ran.stdout
    assert said.startswith(command[0])
    assert str(folder) in said
    assert ("a pipe" in said) == (name not in NO_FILE)
