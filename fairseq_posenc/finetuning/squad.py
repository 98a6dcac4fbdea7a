"""Fine-tune a pretrained checkpoint on SQuAD 1.1 or 2.0, predict its development set, and score it as the official scripts do.

DATA holds train-v1.1.json and dev-v1.1.json, or train-v2.0.json and dev-v2.0.json. Each learning rate and seed is one run of
fairseq's trainer (--task squad --criterion squad); the same command again does only what is not done yet. OUT gets results.json,
results.md, and a folder per run with predictions.json, nbest.json, metrics.json and, for 2.0, null_odds.json.

    fairseq-posenc squad --data squad --version 2.0 --checkpoint checkpoints/checkpoint_best.pt --out squad-tisa
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from ..errors import InputError, flag_of
from .settings import Settings, add_flags, resolve
from .squad_data import VERSIONS, find

DEFAULTS = Settings(lrs=[1.5e-5], seeds=1, epochs=2, batch_size=48, weight_decay=0.01)
"""RoBERTa's (Liu et al. 2019, table 10)."""
TASKS = tuple(f"SQuAD-{version}" for version in VERSIONS)
LENGTH = 384


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's flags."""
    parser.add_argument("--data", required=True, type=Path, metavar="DIR", help="the folder of SQuAD's JSON files")
    parser.add_argument("--version", required=True, choices=VERSIONS, help="2.0 has questions without an answer")
    add = parser.add_argument_group("windows and answers").add_argument
    add("--max-length", type=int, metavar="N", help=f"tokens per window (default: as in a pretraining sample, at most {LENGTH})")
    add("--doc-stride", type=int, default=128, metavar="N",
        help="tokens from one window's part of the context to the next (default: %(default)s)")  # fmt: skip
    add("--max-question-length", type=int, default=64, metavar="N",
        help="tokens per question, the rest is cut off (default: %(default)s)")  # fmt: skip
    add("--max-answer-length", type=int, default=30, metavar="N", help="tokens per answer (default: %(default)s)")
    add("--n-best", type=int, default=20, metavar="N", help="answers per question in nbest.json (default: %(default)s)")
    add("--null-threshold", type=float, metavar="T", help="2.0: predict no answer if its score exceeds the best answer's by "
        "more than this (default: what gives the best F1 on the development set)")  # fmt: skip
    add_flags(parser, DEFAULTS)


def main(args: argparse.Namespace) -> None:
    """Run the command.

    Raises:
        InputError, OSError: what is wrong with a flag, a file or the checkpoint, and what to do.
    """
    from ..models.checkpoint import Checkpoint
    from .squad_runs import Limits, SquadRuns
    from .tuning import Options, fine_tune, max_length, opened

    for flag in ("n_best", "max_answer_length", "max_question_length", "doc_stride"):
        if getattr(args, flag) < 1:
            raise InputError(f"{flag_of(flag)} {getattr(args, flag)}: at least 1 is needed")
    if args.null_threshold is not None and args.version == "1.1":
        raise InputError("--null-threshold is for --version 2.0: in 1.1 every question has an answer")
    if args.null_threshold is not None and not math.isfinite(args.null_threshold):
        raise InputError(f"--null-threshold must be a finite number, got {args.null_threshold}")
    pretrained = Checkpoint(args.checkpoint, args.data_bin)
    options = Options.of(vars(args))
    with opened(options, "squad", pretrained, [args.data / f"train-v{args.version}.json"]) as lock:
        files = find(args.data, args.version)
        settings = resolve(vars(args), f"SQuAD-{args.version}", TASKS, DEFAULTS)
        length = max_length(args.max_length, pretrained, least=1, default=LENGTH)
        limits = Limits(length, args.doc_stride, args.max_question_length, args.max_answer_length, args.n_best)
        fine_tune([SquadRuns(args.version, files, limits, args.null_threshold, pretrained, settings, options)], options, lock)
