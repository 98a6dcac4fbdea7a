"""Compare positional encodings under equal conditions: train each several times, and report which is better, at what cost.

    fairseq-posenc compare examples/compare/english.yaml --data data-bin --out compared

The file names schemes (expressions, or architectures, with options), one budget, a small grid of learning rates and the number of
seeds. Every scheme is trained with each learning rate and two seeds. The rate with the least loss on the first half of the
validation text is used for the other seeds, and the second half gives the result. Runs of a seed share batches, masks and initial
weights. Runs that diverge or fail are recorded, and the others go on. At the end, a training step of each scheme is timed in
turn with one of the reference. A plan with sizes, recipes, lengths or budgets has a table for each combination, in a folder of
its own, and one page for all. OUT gets report.html, results.md, results.csv, results.json, pictures, and a folder per run. The
same command again does only what is not done yet, also of rows that were added to the file.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from ...base.commands import existing, option, show
from ...base.errors import InputError, require_extras
from ..engine.grid import Bar, Cell, RunCell

if TYPE_CHECKING:
    from ..engine.study import Study
    from .cells import Runs
    from .claims import Claim

COMMAND = "fairseq-posenc compare"


@dataclass(kw_only=True)
class Options:
    """The command's flags."""

    plan: Path = option("what is compared: a YAML file, as in examples/compare", names=("plan",), parse=existing, metavar="PLAN")
    data: Path = option(
        "a data-bin of 'fairseq-posenc prepare'", names=("--data", "--data-bin"), parse=existing, metavar="DATA_BIN"
    )
    out: Path = option("the folder to write", metavar="DIR")
    jobs: int = option("runs at a time; GPUs are divided among them", 1, minimum=1, metavar="N")
    claims: Path | None = option(
        "file of claims to test on the results, as examples/compare/claims.yaml", None, parse=existing, metavar="YAML"
    )
    keep_checkpoints: bool = option("keep the trained models in OUT/runs", False)
    dry_run: bool = option("run nothing: print the commands of runs that are not done, and report those that are", False)


def main(options: Options) -> None:
    """Run the command."""
    require_extras("compare")
    import torch

    from ...base.record import digests
    from ..engine.study import Failures, Study
    from .cells import LAST, Runs
    from .claims import read_claims
    from .plan import read_plan
    from .tables import Outcome, report

    claims = read_claims(options.claims) if options.claims else ()
    if not (options.data / "train.idx").is_file():
        raise InputError(f"--data {options.data} has no train.idx: name a data-bin of 'fairseq-posenc prepare'")
    if (added := options.out / "added.json").exists():
        raise InputError(f"{added} has rows of --add, which 0.1.0 had: write them into {options.plan}, and remove this file")
    files = {name: options.data / name for name in ("dict.txt", "train.bin", "train.idx", "valid.bin", "valid.idx")}
    read = [("--data", options.data / "dict.txt"), ("PLAN", options.plan)]
    with Study.open(options.out, COMMAND, read, dry=options.dry_run) as study:
        plan, recorded = read_plan(options.plan), digests(files)
        tables, plans = {}, plan.tables()
        for name, table in plans.items():
            budgets = {plans[other].constant_until: options.out / other for other in plan.beside(name)}
            tables[name] = Runs(table, options.data, recorded, options.plan, budgets)
            tables[name].check()
        torch.set_num_threads(plan.threads)
        if not plan.has_axes:
            _compare(options, tables[""], study, claims)
            return
        failures, outcomes = [], list[Outcome]()
        for name, runs in tables.items():
            show(f"{name}:")
            try:
                with Study.open(options.out / name, COMMAND, read, dry=options.dry_run) as below:
                    outcomes.append(Outcome(name, runs.plan, *_compare(options, runs, below, claims)))
            except Failures as error:
                failures.append(f"{name}: {error}")
        if any(outcome.runs for outcome in outcomes):
            show(report(plan, outcomes).write(study.out))
    if failures:
        raise OSError(" ".join(failures))
    # From the checkpoints of some runs, those with larger budgets have continued by now.
    for name, runs in tables.items() if not options.dry_run else ():
        for path in (options.out / name).glob(f"runs/*/*/checkpoint_*_{runs.plan.constant_until}.pt"):
            if not (path.parent / LAST).exists():  # the models were not to be kept
                path.unlink()


def _compare(options: Options, runs: "Runs", study: "Study", claims: Sequence["Claim"]) -> tuple[list[Any], list[Any]]:
    """Do the runs of one table, and write it; returns its rows and runs."""
    from . import costs
    from .claims import judge
    from .report import report
    from .results import choose, finished, summarise

    plan = runs.plan

    def execute(cells: Sequence[Cell], measure: RunCell, jobs: int, bar: Bar | None) -> list[dict[str, Any]]:
        """Run a part of the grid; its results have the runs that failed, too."""
        failed_before = len(study.failed)
        done = study.run(cells, measure, jobs=jobs, keep_temporary=options.keep_checkpoints, bar=bar)
        return [*done, *list(study.failed.values())[failed_before:]]

    with nullcontext() if options.dry_run else Bar(plan.total) as bar:
        results = execute(runs.first(study.out), runs.measure, options.jobs, bar)
        chosen = {scheme: lr for scheme, lr in choose(results).items() if lr is not None}
        if options.dry_run:  # of a rate that is not chosen yet, the commands are those of the first
            chosen = dict.fromkeys(plan.schemes, plan.learning_rates[0]) | chosen
        results += execute(runs.further(chosen, study.out), runs.measure, options.jobs, bar)
        done = [run for group in finished(results).values() for run in group]
        scores = execute(runs.benchmarks(done, study.out), runs.score, options.jobs, bar)
    left = list(study.left)
    # These take seconds, and have a bar of their own.
    times = execute(costs.cells(runs), partial(costs.measure, runs.data), 1, None)
    for cell in left:
        show(runs.shown(cell))
    rows = summarise(plan, results, times, scores)
    if results:
        show(report(plan, rows, results, judge(claims, results), scores, len(left) + len(study.failed)).write(study.out))
    if options.dry_run:
        show(_remaining(left, plan.total, results, options.jobs))
    return rows, results


def _remaining(left: Sequence[Cell], total: int, results: Sequence[dict[str, Any]], jobs: int) -> str:
    """Return a sentence on the number of runs that are not done and their time, by that of runs that are."""
    seconds = [result["seconds"] for result in results if "loss" in result]
    time = "their time is not known, since no run has finished"
    if seconds:
        each = median(seconds)
        time = f"about {len(left) * each / jobs / 3600:.1f} hours with --jobs {jobs}, at {each / 60:.1f} minutes, the median of "
        time += f"{len(seconds)} that finished"
    return f"{len(left)} of {total} runs are left: {time}."
