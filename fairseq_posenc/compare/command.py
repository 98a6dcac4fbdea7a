"""Compare positional encodings under equal conditions: train each several times, and report which is better, at what cost.

    fairseq-posenc compare examples/compare/english.yaml --data data-bin --out compared
    fairseq-posenc compare … --add fire,kerple                              extends a finished table

The file names schemes (expressions, or architectures, with options), one budget, a small grid of learning rates and the number of
seeds. Every scheme is trained with each learning rate and seed 1. The rate with the least loss on the first half of the
validation text is used for the other seeds, and the second half gives the result. Runs of a seed share batches, masks and initial
weights. Runs that diverge or fail are recorded, and the others go on. OUT gets report.html, results.md, results.csv,
results.json, pictures, and a folder per run. The same command again does only what is not done yet.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import ownership
from ..commands import option, show
from ..errors import InputError

if TYPE_CHECKING:
    from .cells import Runs

COMMAND = "fairseq-posenc compare"
ADDED, FORMAT = "added.json", 1


@dataclass(kw_only=True)
class Options:
    """The command's flags."""

    plan: Path = option("what is compared: a YAML file, as in examples/compare", names=("plan",), metavar="PLAN")
    data: Path = option("a data-bin of 'fairseq-posenc prepare'", metavar="DATA_BIN")
    out: Path = option("the folder to write", metavar="DIR")
    add: tuple[str, ...] = option("expressions to compare besides those of PLAN, now and from now on", (), metavar="SCHEME[,…]")
    jobs: int = option("runs at a time; GPUs are divided among them", 1, minimum=1, metavar="N")
    claims: Path | None = option("file of claims to test on the results, as examples/compare/claims.yaml", None, metavar="YAML")
    tasks: Path | None = option("the folder of 'fairseq-posenc tasks', to show its results in the report", None, metavar="DIR")
    commands: bool = option("print the command of each run instead of running it", False)


def main(options: Options) -> None:
    """Run the command."""
    from ..plotting import require_matplotlib
    from ..runs.record import digests, read_object, write_json
    from .cells import Runs
    from .plan import read_plan

    require_matplotlib()
    if not (options.data / "train.idx").is_file():
        raise InputError(f"--data {options.data} has no train.idx: name a data-bin of 'fairseq-posenc prepare'")
    files = ("dict.txt", "train.bin", "train.idx", "valid.bin", "valid.idx")
    read = [("--data", options.data / "dict.txt"), ("PLAN", options.plan)]
    with ownership.output(options.out, COMMAND, read) as lock:
        before = read_object(options.out / ADDED, FORMAT) or {"schemes": []}
        added = list(dict.fromkeys([*before["schemes"], *options.add]))
        plan = read_plan(options.plan, added)
        runs = Runs(plan, options.data, digests({name: options.data / name for name in files}))
        runs.check()
        if options.commands:
            for cell in runs.first(options.out):
                show(runs.shown(cell))
            return
        if added:
            write_json(ownership.own(options.out / ADDED), {"format": FORMAT, "schemes": added})
        _run(runs, options, lock)


def _run(runs: "Runs", options: Options, lock: int) -> None:
    """Run both parts of the grid, and report."""
    import torch

    from ..runs.grid import Bar, Failures, run_grid
    from . import order_report
    from .claims import read_claims
    from .report import write
    from .results import choose, summarise

    claims = read_claims(options.claims) if options.claims else ()
    tasks = order_report.read(options.tasks) if options.tasks else None
    torch.set_num_threads(runs.plan.threads)
    results: list[dict[str, Any]] = []
    failures: list[Failures] = []

    def finish(cells: Any, bar: Bar) -> None:
        try:
            results.extend(
                run_grid(
                    cells, options.out, runs.measure, jobs=options.jobs, devices=torch.cuda.device_count(), lock=lock, bar=bar
                )
            )
        except Failures as error:
            failures.append(error)
            results.extend([*error.results, *error.failed])

    first = runs.first(options.out)
    with Bar(len(first) + sum(runs.plan.seeds_of(name) - 1 for name in runs.plan.schemes)) as bar:
        finish(first, bar)
        finish(runs.further(choose(results), options.out), bar)
    show(write(options.out, runs.plan, summarise(runs.plan, results, options.out), results, claims, tasks))
    if failures:
        raise failures[0]
