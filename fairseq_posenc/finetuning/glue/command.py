"""Fine-tune a pretrained checkpoint on GLUE, and score it.

DATA has one folder a task (CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE, WNLI) with the benchmark's tsv files. Each task is
fine-tuned by fairseq's trainer once for every learning rate and seed; the same command again does only what is not done yet.
OUT gets results.json, results.md, and a folder a run with its result and log.

    fairseq-posenc glue --data glue_data --checkpoint checkpoints/checkpoint_best.pt --tasks RTE,MRPC --out glue-tisa
    fairseq-posenc glue … --out glue-absolute
    fairseq-posenc glue … --out glue-tisa --baseline glue-absolute/results.json
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ... import ownership
from .. import hyperparameters
from ..grid import run_grid
from ..options import add_common_flags, inputs
from ..pretrained import Pretrained
from ..report import best_run, read_baseline, write_report
from ..tuning import remove_starts
from .metrics import measures
from .prepare import PREPARATION
from .runs import DEFAULTS, LRS, SEEDS, TaskRuns
from .submission import collect, prediction_file
from .tasks import TASKS, GlueTask


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's flags."""
    parser.add_argument("--data", required=True, type=Path, metavar="DIR", help="the folder that holds the tasks' folders")
    parser.add_argument(
        "--tasks", type=_tasks, default=list(TASKS.values()), metavar="TASK[,TASK…]", help="which of them (default: all nine)"
    )
    add_common_flags(parser)
    parser.add_argument("--max-length", type=int, metavar="N", help="tokens of a sequence, the rest is cut off (default: 512, "
                        "or what the model's positions reach)")  # fmt: skip
    parser.add_argument("--skip-bad", action="store_true", help="leave out rows that cannot be read rather than stop")
    parser.add_argument("--select", choices=("best", "last"), default="best", help="score the epoch with the best validation "
                        "accuracy (STS-B: loss), or the last (default: best)")  # fmt: skip
    parser.add_argument("--predict", action="store_true",
                        help="label the test sets too, and write the leaderboard's files to OUT/submission")  # fmt: skip
    hyperparameters.add_flags(parser, DEFAULTS, LRS, SEEDS)


def main(args: argparse.Namespace) -> None:
    """Run the command.

    Raises:
        ValueError, OSError: what is wrong with a flag, a file or the checkpoint, and what to do.
    """
    measures()  # rather than find out after training that they are not installed
    baseline = read_baseline(args.baseline) if args.baseline else None
    pretrained = Pretrained(args.checkpoint, args.data_bin)
    read = [*inputs(args, pretrained), *(("--data", args.data / task.name) for task in args.tasks)]
    with ownership.output(args.out, PREPARATION.command, read, PREPARATION.made_before):
        runs = {task.name: TaskRuns(task, args, pretrained) for task in args.tasks}
        cells = [cell for run in runs.values() for cell in run.cells]
        needs = {name: [prediction_file(test) for test in run.tests] for name, run in runs.items()}
        results = run_grid(cells, args.out, lambda cell, *rest: runs[cell.task].run(cell, *rest), needs, args.keep_checkpoints)
        remove_starts(args.out, runs)
        print(write_report(results, args.out, baseline))
        if args.predict:
            for name, run in runs.items():
                best = best_run([result for result in results if result["task"] == name])
                collect(run.tests, args.out / best["folder"], args.out / "submission")


def _tasks(text: str) -> list[GlueTask]:
    by_name = {name.lower(): task for name, task in TASKS.items()}
    names = dict.fromkeys(name.strip().lower() for name in text.split(","))
    for name in names:
        if name not in by_name:
            raise argparse.ArgumentTypeError(f"{name!r} is no task of GLUE; those are {', '.join(TASKS)}")
    return [by_name[name] for name in names]
