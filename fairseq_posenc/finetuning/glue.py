"""Fine-tune a pretrained checkpoint on GLUE, and score it.

DATA has one folder per task (CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE, WNLI) with the benchmark's tsv files. Each task is
fine-tuned by fairseq's trainer once per learning rate and seed; the same command again does only what is not done yet.
OUT gets results.json, results.md, and a folder per run with its result and log.

    fairseq-posenc glue --data glue_data --checkpoint checkpoints/checkpoint_best.pt --tasks RTE,MRPC --out glue-tisa
    fairseq-posenc glue … --out glue-absolute
    fairseq-posenc glue … --out glue-tisa --baseline glue-absolute/results.json
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .glue_data import AVERAGES, TASKS, GlueTask, columns_of, find
from .settings import Settings, add_flags, resolve

AVAILABLE = "available"
DEFAULTS = Settings()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's flags."""
    parser.add_argument("--data", required=True, type=Path, metavar="DIR", help="the folder that holds the tasks' folders")
    parser.add_argument(
        "--tasks", type=_tasks, default=list(TASKS.values()), metavar="TASK[,TASK…]", help="which of them (default: all nine), "
        f"or '{AVAILABLE}': those whose files are there"
    )  # fmt: skip
    parser.add_argument("--max-length", type=int, metavar="N", help="tokens per sequence, the rest is cut off (default: those "
                        "of a sample in pretraining, at most 512)")  # fmt: skip
    parser.add_argument("--average", choices=AVERAGES, help="over nine columns of one metric each, as that paper takes it "
                        "(default: over tasks, each the mean of its metrics)")  # fmt: skip
    parser.add_argument("--predict", action="store_true",
                        help="also label the test sets, and write the leaderboard's files to OUT/submission")  # fmt: skip
    add_flags(parser, DEFAULTS)


def main(args: argparse.Namespace) -> None:
    """Run the command.

    Raises:
        InputError, OSError: what is wrong with a flag, a file or the checkpoint, and what to do.
    """
    from ..models.checkpoint import Checkpoint
    from .glue_runs import GlueRuns, collect, measures
    from .report import best_run
    from .tuning import Options, fine_tune, opened

    measures()  # fails now rather than after training if they are not installed
    files = find(args.tasks, args.data, args.predict)
    columns = columns_of(args.average, files)
    pretrained = Checkpoint(args.checkpoint, args.data_bin)
    options = Options.of(vars(args))
    with opened(options, "glue", pretrained, [args.data / name for name in files]) as lock:
        settings = {name: resolve(vars(args), name, TASKS, DEFAULTS) for name in files}
        tasks = [
            GlueRuns(TASKS[name], found, pretrained, settings[name], options, args.max_length) for name, found in files.items()
        ]
        results = fine_tune(tasks, options, lock, columns)
        for name, found in files.items():
            if found.tests and results:
                collect(found.tests, best_run([result for result in results if result["task"] == name]), args.out)


def _tasks(text: str) -> list[GlueTask] | None:
    if text.strip().lower() == AVAILABLE:
        return None
    by_name = {name.lower(): task for name, task in TASKS.items()}
    names = dict.fromkeys(name.strip().lower() for name in text.split(","))
    for name in names:
        if name not in by_name:
            raise argparse.ArgumentTypeError(f"{name!r} is not a GLUE task; those are {', '.join(TASKS)}")
    return [by_name[name] for name in names]
