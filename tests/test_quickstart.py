"""The quickstart's parts, and the whole of it with next to no training."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest
import readme

from fairseq_posenc import cli

SCRIPT = readme.ROOT / "examples" / "quickstart" / "quickstart.py"
SENTENCES = ["the cat sat on the mat", "a dog ran over green hills", "many birds sing at dawn", "the dog saw a cat"]


@pytest.fixture(autouse=True)
def _import_from_the_scripts_folder(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPT.parent)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    chance = np.random.default_rng(0)
    documents = ("\n".join(chance.choice(SENTENCES, 3)) for _ in range(60))
    path.write_text("\n\n".join(documents), "utf-8")
    return path


@pytest.mark.slow
def test_documentation_is_prose_in_documents(tmp_path):
    import documentation

    path = documentation.write_documentation(tmp_path / "text.txt")
    documents = path.read_text("utf-8").split("\n\n")
    assert len(documents) > 300
    assert 1e6 < path.stat().st_size < 5e6
    topic = next(document for document in documents if document.startswith('The "assert" statement'))
    assert "Assert statements are a convenient way to insert debugging assertions into a program:" in topic.split("\n")


def test_docstrings_are_read_without_running_the_module(tmp_path):
    import documentation

    source = tmp_path / "module.py"
    source.write_text('"""About\nthe module."""\nraise SystemExit\ndef f():\n    """Of f."""\n', "utf-8")
    assert list(documentation.documents(source)) == ["About\nthe module.\n\nOf f."]
    source.write_text("def broken(", "utf-8")
    assert list(documentation.documents(source)) == []


def test_unigram_loss_covers_what_the_task_masks(tmp_path, text):
    """Counted again from the samples of the task before it masks them, without the <s> that each begins with."""
    import quickstart
    from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask

    out = tmp_path / "data"
    assert cli.main(["prepare", str(text), "--out", str(out), "--vocab-size", "30", "--valid-fraction", "0.2"]) == 0
    task = MaskedLMTask.setup_task(MaskedLMConfig(data=str(out), tokens_per_sample=16))
    tokens = {}
    for split in ("train", "valid"):
        samples = task._load_dataset_split(split, epoch=1, combine=False)
        tokens[split] = [token for i in range(len(samples)) for token in samples[i].tolist()[1:]]
    symbols = len((out / "dict.txt").read_text("utf-8").splitlines()) + 4  # fairseq's own
    counts = [tokens["train"].count(symbol) + 1 for symbol in range(symbols)]
    expected = -sum(math.log2(counts[token] / sum(counts)) for token in tokens["valid"]) / len(tokens["valid"])
    assert quickstart.unigram_loss(out) == pytest.approx(expected, abs=1e-9)


@pytest.mark.slow
def test_quickstart_trains_compares_and_resumes(tmp_path, text):
    """Ten updates of each model by the real fairseq-train; a second run trains nothing; other settings are refused."""
    out = tmp_path / "out"

    def run(*flags):
        command = [sys.executable, str(SCRIPT), str(text), "--out", str(out), "--vocab-size", "30", "--updates", "10", *flags]
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})

    first = run()
    assert first.returncode == 0, first.stderr
    table = (out / "results.md").read_text("utf-8")
    assert table in first.stdout
    assert "Lower is better" in first.stdout
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    assert [row[0] for row in rows] == ["(unigram: no context)", "absolute", "tisa"]
    assert all(abs(float(row[3])) < 0.1 for row in rows)
    assert all(f"\n{positions} uses no word order yet" in first.stdout for positions in ("absolute", "tisa"))
    assert [row[4] for row in rows] == ["", f"{32 * 128:,}", str(3 * 5 * 4 * 2)]
    assert all(0 < float(row[1]) < 8 for row in rows)
    assert (out / "functions" / "models" / "tisa" / "bias.png").read_bytes().startswith(b"\x89PNG")
    assert list((out / "tensorboard").rglob("events.out.tfevents.*"))
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.pt")}
    assert table in run().stdout
    assert before == {path: path.stat().st_mtime_ns for path in before}
    refused = run("--seed", "2")
    assert refused.returncode == 1
    assert f"--out {out}" in refused.stderr


def test_nothing_of_others_is_written_over(tmp_path, text):
    (tmp_path / "mine.txt").write_text("mine")
    refused = subprocess.run([sys.executable, str(SCRIPT), str(text), "--out", str(tmp_path)], capture_output=True, text=True)
    assert refused.returncode == 1
    assert "--out" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
