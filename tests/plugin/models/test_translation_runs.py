"""Translation with fairseq's commands: two languages, of which one is the other backwards or is the other."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from commands import environment

from fairseq_posenc.plugin.checkpoint.loading import load as load_checkpoint

pytestmark = pytest.mark.slow
PROGRAMS = environment(PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
EXAMPLES = Path(__file__).parents[3] / "examples" / "translation"

TRAINING = [
    *["--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1", "--share-all-embeddings"],
    *["--optimizer", "adam", "--adam-betas", "(0.9,0.98)", "--lr", "2e-3", "--lr-scheduler", "inverse_sqrt"],
    *["--warmup-updates", "100", "--max-tokens", "1000", "--dropout", "0", "--seed", "1", "--cpu"],
]


@pytest.fixture(scope="module")
def languages(tmp_path_factory, run) -> Path:
    """Data-bins of sentences of 3 to 6 words: ``reverse`` and ``copy``."""
    folder, rng = tmp_path_factory.mktemp("languages"), random.Random(0)
    sentences = {
        split: [[f"w{rng.randrange(10)}" for _ in range(rng.randint(3, 6))] for _ in range(count)]
        for split, count in {"train": 4000, "valid": 100, "test": 200}.items()
    }
    for name, order in (("reverse", -1), ("copy", 1)):
        for split, lines in sentences.items():
            (folder / f"{split}.{name}.src").write_text("".join(f"{' '.join(line)}\n" for line in lines))
            (folder / f"{split}.{name}.tgt").write_text("".join(f"{' '.join(line[::order])}\n" for line in lines))
        texts = [word for split in sentences for word in (f"--{split}pref", folder / f"{split}.{name}")]
        run("fairseq-preprocess", "-s", "src", "-t", "tgt", *texts, "--joined-dictionary", "--destdir", folder / name)
    return folder


def accuracy(output: str) -> float:
    """The share of sentences that are translated without a fault."""
    expected = dict(re.findall(r"^T-(\d+)\t(.*)$", output, re.M))
    found = dict(re.findall(r"^H-(\d+)\t\S+\t(.*)$", output, re.M))
    assert expected.keys() == found.keys()
    return sum(found[number] == words for number, words in expected.items()) / len(expected)


def train(run, data: Path, save_dir: Path, arch: str, updates: int, *flags: str) -> Path:
    """The last checkpoint of a training of about a minute, which on a busy machine may take many."""
    flags = (*flags, "--max-update", updates, "--save-dir", save_dir)
    run("fairseq-train", data, "--arch", arch, *TRAINING, *flags, limit=1800)
    return save_dir / "checkpoint_last.pt"


@pytest.fixture(scope="module")
def trained(languages, tmp_path_factory, run) -> Path:
    folder = tmp_path_factory.mktemp("shaw")
    train(run, languages / "reverse", folder, "transformer_shaw_tiny", 600, "--max-relative-position", "8")
    return folder


@pytest.mark.parametrize("flags", [["--beam", "4", "--lenpen", "0.6"], ["--beam", "1"], ["--beam", "1", "--left-pad-source"]])
def test_shaw_learns_to_reverse(flags, trained, languages, run):
    output = run("fairseq-generate", languages / "reverse", "--path", trained / "checkpoint_last.pt", "--cpu", *flags).stdout
    assert accuracy(output) > 0.95


def test_the_documented_command_gives_fairseqs_own_bleu(trained, languages, run, tmp_path):
    flags = ("--beam", "2", "--lenpen", "0.6", "--scoring", "sacrebleu", "--cpu")
    output = run("fairseq-generate", languages / "reverse", "--path", trained / "checkpoint_last.pt", *flags).stdout
    (tmp_path / "generated.txt").write_text(output)
    (tmp_path / "text").mkdir()
    shutil.copy(languages / "test.reverse.tgt", tmp_path / "text" / "test.de")
    (command,) = re.findall(r"^grep \^H.*sacrebleu.*$", (EXAMPLES / "README.md").read_text("utf-8"), re.M)
    score = ["bash", "-c", f"{command} -b -w 2"]
    scored = subprocess.run(score, cwd=tmp_path, check=True, capture_output=True, text=True, env=PROGRAMS)
    assert f"BLEU = {scored.stdout.strip()} " in output


@pytest.mark.parametrize("task", ["reverse", "copy"])
def test_without_positions_the_order_is_lost(task, languages, tmp_path, run):
    path = train(run, languages / task, tmp_path, "transformer_none_tiny", 600)
    assert accuracy(run("fairseq-generate", languages / task, "--path", path, "--beam", "4", "--cpu").stdout) < 0.2


def test_prefixes_sampling_and_lines_as_they_come(trained, languages, run, tmp_path):
    path, data = trained / "checkpoint_last.pt", languages / "reverse"
    output = run("fairseq-generate", data, "--path", path, "--prefix-size", "2", "--beam", "2", "--cpu").stdout
    assert accuracy(output) > 0.95
    lines = tmp_path / "lines"
    lines.write_text("w1 w2 w3 w4\nw5 w6 w7\n")
    flags = ["-s", "src", "-t", "tgt", "--path", path, "--input", lines, "--buffer-size", "2", "--cpu"]
    for search in (["--beam", "3"], ["--sampling", "--sampling-topk", "2", "--beam", "1", "--seed", "1"]):
        output = run("fairseq-interactive", data, *flags, *search).stdout
        assert re.findall(r"^H-\d+\t\S+\t(.*)$", output, re.M) == ["w4 w3 w2 w1", "w7 w6 w5"]
    refused = run("fairseq-generate", data, "--path", path, "--print-alignment", "--cpu", check=False)
    assert refused.returncode == 2
    assert refused.stdout.splitlines()[-1].startswith("fairseq-generate: --print-alignment needs attention weights")
    assert "Traceback" not in refused.stdout


def test_bfloat16_averaged_checkpoints_and_another_model(languages, tmp_path, run):
    """Training in bfloat16 goes on where it stopped, and not with other positions; an average is a model, too."""
    data, arch = languages / "reverse", "transformer_rope_tiny"
    train(run, data, tmp_path, arch, 40, "--bf16", "--save-interval-updates", "20")
    train(run, data, tmp_path, arch, 60, "--bf16", "--save-interval-updates", "20")
    other = run(
        "fairseq-train",
        data,
        "--arch",
        "transformer_t5_tiny",
        *TRAINING,
        "--max-update",
        "80",
        "--save-dir",
        tmp_path,
        check=False,
    )
    assert other.returncode == 2
    assert "--positions rope in the checkpoint, t5 now" in other.stdout
    inputs = sorted(tmp_path.glob("checkpoint_*_*0.pt"))
    assert len(inputs) == 3
    said = run("python", EXAMPLES / "average.py", *inputs, "--last", "2", "--out", tmp_path / "average.pt").stdout
    last = [next(tmp_path.glob(f"checkpoint_*_{updates}.pt")) for updates in (40, 60)]
    assert f"the average of {last[0].name}, {last[1].name}" in said
    first, second, mean = (load_checkpoint(str(path))["model"] for path in (*last, tmp_path / "average.pt"))
    for name, value in mean.items():
        torch.testing.assert_close(value, (first[name] + second[name]) / 2, msg=name)
    for path in (last[1], tmp_path / "average.pt"):
        output = run("fairseq-generate", data, "--path", path, "--beam", "2", "--cpu").stdout
        assert "Translated 200 sentences" in output


def test_speed_is_shown_beside_fairseqs_own(run):
    sizes = ["--size", "_tiny", "--rounds", "1", "--sentences", "2", "--length", "3", "--symbols", "50"]
    said = run("python", EXAMPLES / "speed.py", *sizes, "--schemes", "rope", "shaw").stdout
    assert re.search(r"^\| fairseq \| [\d.]+ \(1\.00\) \|", said, re.M)
    assert len(re.findall(r"^\| (?:rope|shaw) \| [\d.]+ \([\d.]+\) \|", said, re.M)) == 2
