"""Try every command with careless and hostile flags, files and state files, and after kills; say where one misbehaves.

    bash scripts/fuzz.sh --seed 1 --seconds 600

The seed decides every try, the budget how many there are. A try misbehaves where the command does not end, is ended by a
signal, shows a traceback, refuses without a word, runs code from a file, or changes or removes a file that is not its own.
The exit status is 1 if any did. ``--try N`` does one try again and keeps its folder.
"""

from __future__ import annotations

import argparse
import pkgutil
import random
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import fairseq  # noqa: F401 - registers the plugin, before tries are forked
import mutations
import torch
from jobs import JOBS, Job, make_inputs
from tries import Outcome, faults, run, snapshot

import fairseq_posenc

LIBRARIES = ("deepspeed", "matplotlib.figure", "sklearn.metrics", "scipy.stats", "transformers.models.roberta.modeling_roberta")


@dataclass(frozen=True)
class Try:
    """What was done, and how it ended."""

    what: str
    outcome: Outcome
    faults: list[str]


def main() -> int:
    """Run the tries; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=600, help="budget (default: %(default)s)")
    parser.add_argument("--tries", type=int, default=1 << 60, help="at most so many")
    parser.add_argument("--only", nargs="*", metavar="COMMAND", help=f"of {', '.join(job.name for job in JOBS)}")
    parser.add_argument("--try", type=int, dest="one", metavar="N", help="only this one, and keep its folder")
    args = parser.parse_args()
    torch.set_num_threads(1)
    _import_everything()
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    print(f"making inputs in {folder} …", file=sys.stderr)
    try:
        left = make_inputs(folder)
        return _fuzz(args, folder, left)
    finally:
        if args.one is None:
            shutil.rmtree(folder)


def _import_everything() -> None:
    """What the commands import, so that the tries, forked from here, need not."""
    names = (module.name for module in pkgutil.walk_packages(fairseq_posenc.__path__, "fairseq_posenc."))
    for name in (*(name for name in names if not name.endswith("__main__")), *LIBRARIES):
        try:
            import_module(name)
        except ModuleNotFoundError as missing:
            if missing.name != "triton":  # which only the kernels need, and is there for GPUs alone
                raise


def _fuzz(args: argparse.Namespace, folder: Path, left: dict[str, Path]) -> int:
    jobs = [job for job in JOBS if not args.only or job.name in args.only]
    bad, done, end = 0, 0, time.monotonic() + args.seconds
    numbers = range(args.tries) if args.one is None else [args.one]
    for number in numbers:
        if time.monotonic() > end:
            break
        made = _try(jobs[number % len(jobs)], random.Random(f"{args.seed} {number}"), folder, left, args.one is not None)
        done += 1
        if made.faults or args.one is not None:
            bad += bool(made.faults)
            output = "\n".join(f"    {line}" for line in made.outcome.output.strip().splitlines()[-12:])
            print(f"try {number}: {made.what}\n  {'; '.join(made.faults)}\n{output}", flush=True)
    print(f"{done} tries with seed {args.seed}, {bad} misbehaved")
    return int(bad > 0)


def _try(job: Job, rng: random.Random, folder: Path, left: dict[str, Path], keep: bool) -> Try:
    here = folder / "try"
    shutil.rmtree(here, ignore_errors=True)
    shutil.copytree(folder / "inputs", here, symlinks=True)
    argv, out = list(job.argv), here / job.out
    kind = rng.choices(("flags", "file", "state", "kill"), (4, 4, 2, 1))[0]
    if kind == "state" and left[job.name].is_dir():
        shutil.copytree(left[job.name], out, symlinks=True)
    elif kind != "state":  # else what this job has made, and another reads, is there
        shutil.rmtree(out, ignore_errors=True)
    if kind == "flags":
        argv, what = mutations.flags(argv, rng)
    elif kind == "kill":
        after = rng.uniform(0, 6)
        run(job.action(), here, job.seconds, kill_after=after)
        what = f"killed after {after:.1f} s and started again"
    else:
        read = {here / word.split("/")[0] for word in argv} - {out}
        files = _files(out) if kind == "state" else [path for place in sorted(read) for path in _files(place)]
        what = mutations.file(rng.choice(files), files, rng) if files else "nothing changed"
    own = [path for path in here.iterdir() if path != out and not path.name.startswith(f"{out.name}.")]
    before = snapshot(own)
    outcome = run(job.action(argv), here, job.seconds)
    found = faults(outcome, here, before, snapshot(own))
    if kind == "kill" and outcome.status and job.goes_on:
        found.append("it does not go on after a kill")
    if not keep:
        shutil.rmtree(here)
    return Try(f"{' '.join(map(repr, argv)) if kind == 'flags' else job.name}: {what}", outcome, found)


def _files(place: Path) -> list[Path]:
    found = place.rglob("*") if place.is_dir() else [place]
    return sorted(path for path in found if path.is_file() and not path.is_symlink())


if __name__ == "__main__":
    sys.exit(main())
