"""docs/from_text_to_model.md: its commands and its code, in their order, with a tiny model on a CPU."""

import json
import shlex

import glue_files
import pytest
import readme
import squad_files

from fairseq_posenc.cli import main

WALK = "docs/from_text_to_model.md"
TINY = """
    model._name=modernbert_rope_tiny common.cpu=true common.bf16=false common.log_interval=1 common.tensorboard_logdir=null
    dataset.num_workers=0 dataset.batch_size=4 task.tokens_per_sample=32 optimization.update_freq=[2]
    optimization.batch_warmup_updates=2 lr_scheduler.warmup_updates=1
    checkpoint.save_interval_updates=2 checkpoint.keep_interval_updates_pattern=2
""".split()  # noqa: SIM905
TUNED = "--lrs 1e-3 --seeds 1 --epochs 1 --batch-size 8"


def commands(*beginning: str) -> list[list[str]]:
    return [command.words for command in readme.commands_of(WALK) if command.words[: len(beginning)] == list(beginning)]


def ours(command: str, more: str = "", **values: str) -> None:
    """Run the command of ours as it is shown, but for some values and with more flags."""
    (words,) = commands("fairseq-posenc", command)
    for name, value in values.items():
        words[words.index(f"--{name.replace('_', '-')}") + 1] = value
    assert main([*words[1:], *more.split()]) == 0, shlex.join(words)


@pytest.fixture
def folder(tmp_path, toy_text, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus").mkdir()
    sentences = (toy_text / "train.txt").read_text().splitlines()
    (tmp_path / "corpus" / "text.txt").write_text("\n\n".join(sentences))  # a document each
    (tmp_path / "examples").symlink_to(readme.ROOT / "examples")
    (tmp_path / "blimp" / "data").mkdir(parents=True)
    pair = {"sentence_good": sentences[0], "sentence_bad": " ".join(reversed(sentences[0].split())), "UID": "reversed"}
    (tmp_path / "blimp" / "data" / "reversed.jsonl").write_text(json.dumps(pair))
    for task in ("RTE", "MRPC", "QNLI", "STS-B"):
        glue_files.write_task(tmp_path / "glue_data", task, rows=16)
    squad_files.write_squad(tmp_path / "squad_data", "2.0", paragraphs=4)
    return tmp_path


@pytest.mark.slow
def test_from_a_text_to_a_model_in_service(folder, run):
    pytest.importorskip("transformers", reason="transformers is not installed: pip install -e '.[hf]'")
    ours("prepare", vocab_size="45", valid_fraction="0.1")
    ours("plan")
    pretrain, decay = commands("fairseq-hydra-train")
    run(*pretrain, *TINY, "optimization.max_update=2")
    assert list((folder / "checkpoints").glob("checkpoint_*_2.pt"))
    # Two processes continue what one began; the launcher of several hosts stands for pdsh.sh, which needs ssh.
    arguments = [word for word in pretrain if word != "fairseq-hydra-train"]
    several = ["-m", "fairseq_posenc.train", "--deepspeed-config", "zero0", *arguments, *TINY, "optimization.max_update=4"]
    assert "@ 2 updates" in run("python", *several, processes=2).stdout
    (folder / "decayed").mkdir()
    (last,) = (folder / "checkpoints").glob("checkpoint_*_4.pt")
    (folder / "decayed" / "checkpoint_last.pt").write_bytes(last.read_bytes())
    shorter = {"lr_scheduler.decay_updates": "2", "optimization.max_update": "6"}
    decay = [
        f"{name}={shorter.get(name, value)}" if value else name for name, _, value in (word.partition("=") for word in decay)
    ]
    run(*decay, *TINY)
    ours("pairs")
    ours("extrapolate", lengths="16,32")
    ours("analyze")
    ours("glue", f"{TUNED} --max-length 32")
    ours("squad", f"{TUNED} --max-length 48 --doc-stride 16 --max-question-length 12")
    ours("export-hf")
    pytest.importorskip(
        "sentence_transformers", reason="sentence-transformers is not installed: pip install sentence-transformers"
    )
    pytest.importorskip("onnxruntime")
    (evaluate,) = commands("python", "examples/evaluate.py")
    run(*evaluate, *["--updates", "2", "--batch-size", "4", "--seeds", "2"])
    assert "similarity" in (folder / "evaluated" / "results.md").read_text()
    code = {}
    for block in (block for block in readme.blocks_of(WALK) if block.language == "python"):
        exec(block.text, code)  # noqa: S102 - the document's
    assert code["states"].shape[0] == 2
