"""Fine-tune a pretrained checkpoint on GLUE, and score it.

DATA has one folder per task (CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE, WNLI) with the benchmark's tsv files. Each task is
fine-tuned by fairseq's trainer once per learning rate and seed; the same command again does only what is not done yet.
OUT gets report.html, results.md, results.csv, results.json, and a folder per run with its result and log.

    fairseq-posenc glue --data glue_data --checkpoint checkpoints/checkpoint_best.pt --tasks RTE,MRPC --out glue-tisa
    fairseq-posenc glue … --out glue-absolute
"""

from argparse import ArgumentTypeError
from dataclasses import dataclass
from pathlib import Path

from ...base.commands import existing, option
from ...base.errors import require_extras
from .glue_data import TASKS, GlueTask, find
from .hyperparameters import SharedOptions, resolve


def _tasks(text: str) -> tuple[GlueTask, ...]:
    by_name = {name.lower(): task for name, task in TASKS.items()}
    names = dict.fromkeys(name.strip().lower() for name in text.split(","))
    for name in names:
        if name not in by_name:
            raise ArgumentTypeError(f"{name!r} is not a GLUE task; those are {', '.join(TASKS)}")
    return tuple(by_name[name] for name in names)


@dataclass(frozen=True, kw_only=True)
class Options(SharedOptions):
    """The flags of ``fairseq-posenc glue``, with their defaults."""

    data: Path = option("the folder that holds the tasks' folders", parse=existing, metavar="DIR")
    tasks: tuple[GlueTask, ...] = option(
        "which of them (default: all nine)", tuple(TASKS.values()), parse=_tasks, metavar="TASK[,TASK…]"
    )
    max_length: int | None = option(
        "tokens per sequence, the rest is cut off (default: those of a sample in pretraining, at most 512)", None, metavar="N"
    )


def main(options: Options) -> None:
    """Fine-tune and score the runs that are not done, and print the table.

    Raises:
        InputError, OSError: a flag, or a file that it names, cannot be used.
    """
    require_extras("glue")
    from ...plugin.checkpoint.checkpoint import Checkpoint
    from .glue_runs import GlueRuns
    from .tuning import fine_tune

    files = find(options.tasks, options.data)
    pretrained = Checkpoint(options.checkpoint, options.data_bin)
    tasks = [GlueRuns(TASKS[name], paths, pretrained, resolve(options, name, TASKS), options) for name, paths in files.items()]
    fine_tune("glue", tasks, options)
