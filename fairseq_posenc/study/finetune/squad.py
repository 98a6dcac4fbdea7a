"""Fine-tune a pretrained checkpoint on SQuAD 1.1 or 2.0, predict its development set, and score it as the official scripts do.

DATA holds train-v1.1.json and dev-v1.1.json, or train-v2.0.json and dev-v2.0.json. Each learning rate and seed is one run of
fairseq-train (--task squad --criterion squad); the same command again does only what is not done yet. OUT gets report.html,
results.md, results.csv, results.json, and a folder per run with predictions.json, metrics.json and, for 2.0, null_odds.json.

    fairseq-posenc squad --data squad --version 2.0 --checkpoint checkpoints/checkpoint_best.pt --out squad-tisa
"""

from dataclasses import dataclass
from pathlib import Path

from ...base.commands import existing, option
from ...base.errors import InputError
from .hyperparameters import Settings, SharedOptions, resolve
from .squad_data import VERSIONS, Limits, find

DEFAULTS = Settings(lrs=(1.5e-5,), seeds=1, epochs=2, batch_size=48, weight_decay=0.01)
"""RoBERTa's (Liu et al. 2019, table 10)."""
TASKS = tuple(f"SQuAD-{version}" for version in VERSIONS)


@dataclass(frozen=True, kw_only=True)
class Options(SharedOptions):
    """The flags of ``fairseq-posenc squad``, with their defaults."""

    data: Path = option("the folder of SQuAD's JSON files", parse=existing, metavar="DIR")
    version: str = option("2.0 has questions without an answer", choices=VERSIONS)
    null_threshold: float | None = option(
        "2.0: predict no answer if its score exceeds the best answer's by more than this (default: what gives the best F1 on the "
        "development set)", None, metavar="T",
    )  # fmt: skip
    limits: Limits
    settings: Settings = DEFAULTS


def main(options: Options) -> None:
    """Fine-tune and score the runs that are not done, and print the table.

    Raises:
        InputError, OSError: a flag, or a file that it names, cannot be used.
    """
    from ...plugin.checkpoint.checkpoint import Checkpoint
    from .squad_runs import SquadRuns
    from .tuning import fine_tune

    if options.null_threshold is not None and options.version == "1.1":
        raise InputError("--null-threshold is for --version 2.0: in 1.1 every question has an answer")
    pretrained = Checkpoint(options.checkpoint, options.data_bin)
    files = find(options.data, options.version)
    settings = resolve(options, f"SQuAD-{options.version}", TASKS)
    fine_tune("squad", [SquadRuns(files, pretrained, settings, options)], options)
