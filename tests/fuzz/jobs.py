"""The commands that are tried, and small inputs for them, made once."""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tries import run

from fairseq_posenc import cli

WORDS = (
    "red",
    "green",
    "blue",
    "small",
    "large",
    "round",
    "flat",
    "wooden",
    "iron",
    "ball",
    "box",
    "cup",
    "door",
    "lamp",
    "bird",
)
SIZES = "--encoder-embed-dim 32 --encoder-ffn-embed-dim 64 --encoder-attention-heads 2 --encoder-layers 2"
TRAINING = (
    f"--task masked_lm --criterion masked_lm {SIZES} --tokens-per-sample 32 --batch-size 8 --optimizer adam --lr 1e-3 "
    "--max-update 2 --cpu --num-workers 0 --log-format none --no-epoch-checkpoints"
)
FINE_TUNING = "--checkpoint tisa/checkpoint_last.pt --data-bin bin --seeds 1 --epochs 1 --batch-size 8 --max-length 32"


@dataclass(frozen=True)
class Job:
    """A command that is right as it stands.

    Attributes:
        argv: its words; paths are below the folder that it runs in.
        out: the folder or file that it writes; everything else there is the user's.
        entry: what runs it.
        seconds: in which it must end, on a busy machine.
        goes_on: whether the same command again goes on or does nothing, rather than refuse to write over what is there.
    """

    name: str
    argv: tuple[str, ...]
    out: str
    entry: Callable[[list[str]], int]
    seconds: float = 60
    goes_on: bool = True

    def action(self, argv: list[str] | None = None) -> Callable[[], int]:
        """What :func:`tries.run` is given."""
        return lambda: self.entry(list(self.argv if argv is None else argv))


def fairseq_train(argv: list[str]) -> int:
    """``fairseq-train`` in this process."""
    from fairseq_cli import train

    sys.argv = ["fairseq-train", *argv]
    train.cli_main()
    return 0


def sharded_train(argv: list[str]) -> int:
    """``python -m fairseq_posenc.train`` in this process."""
    from fairseq_posenc import train

    sys.argv = ["fairseq_posenc.train", *argv]
    return train.main() or 0


def _command(line: str, out: str, seconds: float = 60, name: str | None = None) -> Job:
    words = line.split()
    goes_on = words[0] in ("prepare", "glue", "squad", "analyze", "extrapolate", "bench", "tasks")
    return Job(name or words[0], tuple(words), out, cli.main, seconds, goes_on=goes_on)


def _training(name: str, line: str, out: str, entry: Callable[[list[str]], int], seconds: float) -> Job:
    return Job(name, tuple(line.split()), out, entry, seconds)


PREPARE = _command("prepare text.txt --valid more.txt --out bin --vocab-size 60 --workers 1", "bin")
TRAIN = _training("fairseq-train", f"bin --arch roberta_tisa {TRAINING} --save-dir tisa", "tisa", fairseq_train, 120)
TRAIN_ABSOLUTE = _training(
    "fairseq-train-absolute", f"bin --arch roberta_absolute {TRAINING} --save-dir absolute", "absolute", fairseq_train, 120
)
TRAIN_SHARDED = _training(
    "fairseq_posenc.train", f"bin --arch roberta_tisa {TRAINING} --save-dir sharded --deepspeed-config zero.json", "sharded",
    sharded_train, 240,
)  # fmt: skip
EXPORT_ABSOLUTE = _command("export-hf absolute/checkpoint_last.pt --data bin --out roberta", "roberta", 120, "export-hf-absolute")
SHARDS = (TRAIN_SHARDED, _command("consolidate sharded --out whole.pt", "whole.pt")) if find_spec("deepspeed") else ()
JOBS = (
    PREPARE,
    _command("prepare rows.jsonl --out rows --vocab-size 60 --valid-fraction 0.1 --shards 2 --workers 1", "rows",
             name="prepare-rows"),
    TRAIN,
    TRAIN_ABSOLUTE,
    *SHARDS,
    _command(f"glue --data glue --tasks RTE,STS-B {FINE_TUNING} --lrs 1e-3 --predict --out glue-out", "glue-out", 240),
    _command(f"squad --data squad --version 2.0 {FINE_TUNING} --max-question-length 8 --out squad-out", "squad-out", 240),
    _command("export-hf tisa/checkpoint_last.pt --data bin --out tisa-hf", "tisa-hf", 120),
    EXPORT_ABSOLUTE,
    _command("import-hf roberta --positions absolute+tisa --tisa-kernels 2 --out imported/model.pt", "imported", 120),
    _command("analyze tisa/checkpoint_last.pt roberta --text text.txt --length 16 --windows 4 --out analysis",
             "analysis", 240),
    _command("extrapolate tisa/checkpoint_last.pt --data bin --lengths 16,40 --tokens 200 --out longer", "longer", 120),
    _command("grow absolute/checkpoint_last.pt --max-positions 48 --out grown.pt", "grown.pt"),
    _command("init-tisa absolute/checkpoint_last.pt --kernels 2 --replace --out fitted/model.pt", "fitted", 120),
    _command("plan roberta_m4m_tiny --gpus 4 --deepspeed-config zero.json --batch-size 2 "
             "--tokens-per-sample 64 --vocab-size 500", "plan", 120),
    _command("bench --schemes tisa,m4 --baseline absolute --attention-backend auto,eager --size tiny --layers 1 --vocab-size 50 "
             "--tokens 9,16 --batch-size 1 --repeats 1 --device cpu --out bench-out", "bench-out", 240),
    _command("tasks --tasks copy,flip_flop --schemes tisa --updates 2 --lengths 2 --batch-size 2 --out tasks-out",
             "tasks-out", 120),
    _command("schemes", "none"),
    _command("schemes tisa/checkpoint_last.pt --layers 1,2 --length 8 --plot scores.png", "scores.png",
             name="schemes-plot"),
)  # fmt: skip


def make_inputs(folder: Path) -> dict[str, Path]:
    """Write texts and data sets into ``folder/inputs``, then run every job once; returns what each left, by its name.

    Raises:
        RuntimeError: a command that is right as it stands fails.
    """
    here = folder / "inputs"
    here.mkdir(parents=True)
    rng = random.Random(0)
    documents = ["\n".join(_sentence(rng) for _ in range(3)) for _ in range(60)]
    (here / "text.txt").write_text("\n\n".join(documents), "utf-8")
    (here / "more.txt").write_text("\n\n".join(_sentence(rng) for _ in range(20)), "utf-8")
    (here / "rows.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in documents), "utf-8")
    (here / "zero.json").write_text(json.dumps({"zero_optimization": {"stage": 2}}), "utf-8")
    _write_glue(here / "glue", rng)
    _write_squad(here / "squad", rng)
    left = {}
    for job in JOBS:
        outcome = run(job.action(), here, job.seconds)
        if outcome.status:
            raise RuntimeError(f"{job.name} as it stands has status {outcome.status}:\n{outcome.output}")
        left[job.name] = folder / f"after-{job.name}"
        if job.out not in NEEDED and (here / job.out).exists():
            shutil.move(here / job.out, left[job.name])
    return left


NEEDED = {job.out for job in (PREPARE, TRAIN, TRAIN_ABSOLUTE, TRAIN_SHARDED, EXPORT_ABSOLUTE)}
"""What one command writes and another reads."""


def _sentence(rng: random.Random, words: int = 6) -> str:
    return " ".join(rng.choices(WORDS, k=words)).capitalize() + "."


def _write_glue(folder: Path, rng: random.Random) -> None:
    pairs = [(_sentence(rng), _sentence(rng)) for _ in range(12)]
    for task, header, targets in (
        ("RTE", "index\tsentence1\tsentence2\tlabel", ("entailment", "not_entailment")),
        ("STS-B", "index\tsentence1\tsentence2\tscore", ("1.0", "4.5")),
    ):
        (folder / task).mkdir(parents=True)
        rows = [f"{i}\t{a}\t{b}\t{targets[i % 2]}" for i, (a, b) in enumerate(pairs)]
        for split in ("train", "dev"):
            (folder / task / f"{split}.tsv").write_text("\n".join([header, *rows]) + "\n", "utf-8")
        tests = [header.rpartition("\t")[0], *(row.rpartition("\t")[0] for row in rows)]
        (folder / task / "test.tsv").write_text("\n".join(tests) + "\n", "utf-8")


def _write_squad(folder: Path, rng: random.Random) -> None:
    paragraphs = []
    for number in range(4):
        context = f"{_sentence(rng)} {_sentence(rng)}"
        answer = context.split()[2]
        answers = [{"text": answer, "answer_start": context.index(answer)}]
        found = {"id": f"q{number}", "question": "What is it?", "answers": answers, "is_impossible": False}
        none = {"id": f"n{number}", "question": "Who was it?", "answers": [], "is_impossible": True}
        paragraphs.append({"context": context, "qas": [found, none]})
    folder.mkdir()
    content = json.dumps({"version": "2.0", "data": [{"title": "Things", "paragraphs": paragraphs}]})
    for split in ("train", "dev"):
        (folder / f"{split}-v2.0.json").write_text(content, "utf-8")
