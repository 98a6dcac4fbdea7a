"""Train small models on synthetic tasks that need word order, with every positional encoding.

    fairseq-posenc tasks --out tasks                                        the default tasks, every scheme
    fairseq-posenc tasks --out tasks --tasks copy,flip_flop --schemes rope,absolute+tisa --seeds 3

A model trains on sequences of random symbols of N lengths, and is tested on these lengths and on longer ones, up to four times
the longest. A run ends when it has learned the task, at an accuracy of 0.99 within the lengths of training on sequences drawn
independently of its batches, or at its budget of updates. Short sequences of few symbols also occur in training, so that only the
tests beyond its lengths exclude memorising. Runs with the same seed have the same batches and, where the shapes agree, the
same initial weights, whatever the scheme. A scheme with a table of positions gets one for the longest test, so that its last rows
are untrained. SCHEME@SAMPLING, such as absolute@random:200, draws the positions of each update (docs/length.md).

OUT gets report.html, results.md, results.csv, results.json, tasks.png, and runs.jsonl, a line per run. The same command again
does only the runs that have not finished; other tasks, schemes and seeds are added to the results. A folder with runs.jsonl alone
is continued, too.
"""

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ...base.commands import option, show
from ...base.errors import InputError, require_extras, require_known
from ..engine.grid import Cell, Progress
from .settings import COUNT, PAPERS, Setting

DEFAULT = ("offset_2", "flip_flop", "indirect_indexing", "offset_5", "copy", "reverse")
"""All but ``order``, which has a setting of its own."""


@dataclass(frozen=True, kw_only=True)
class Options(Setting):
    """The flags of ``fairseq-posenc tasks``, with their defaults."""

    out: Path = option("the folder to write", metavar="DIR")
    tasks: tuple[str, ...] = option("which tasks", DEFAULT, metavar="A,B")
    schemes: tuple[str, ...] = option(
        "expressions such as absolute+tisa, or architectures, also with @SAMPLING (default: all schemes)", (), metavar="A,B"
    )
    seeds: int = option("runs of each scheme on each task: the seeds 1 … N", 1, **COUNT, maximum=1000)
    jobs: int = option("runs at a time, each in a thread", 1, **COUNT, maximum=256)


def main(options: Options) -> None:
    """Train and test the models that are not done, and print the table.

    Raises:
        InputError, OSError: a flag, or a file that it names, cannot be used.
    """
    require_extras("compare")
    from ..engine.study import Study
    from .report import recorded, report, require_comparable, write_runs

    cells = _cells(options)
    with Study.open(options.out, "tasks") as study:
        runs = recorded(options.out)
        require_comparable(options.out, runs, cells)
        done = [(run["task"], run["scheme"], run["seed"]) for run in runs]
        runs += study.run([cell for cell in cells if tuple(cell.key.values()) not in done], _run, jobs=options.jobs)
        show(report(write_runs(options.out, runs)).write(study.out))


def _run(cell: Cell, folder: Path, progress: Progress) -> dict[str, Any]:
    from .runs import learn

    configuration = dict(cell.configuration)
    positions = configuration.pop("positions")
    return learn(str(cell.key["task"]), positions, Setting(**configuration), int(cell.key["seed"]), progress)


def _cells(options: Options) -> list[Cell]:
    """The runs of every scheme on the first task, then those on the second.

    Raises:
        InputError: a task or a scheme is not known, or the sampled positions are fewer than the tokens of the longest test.
    """
    from ...core.families import expression_of, known_schemes
    from ...core.schemes import parse
    from ...core.transformer import PositionSampling
    from .report import TaskRun
    from .runs import longest_test
    from .tasks import TASKS

    require_known("--tasks", options.tasks, TASKS)
    positions, limits = dict[str, str](), dict[str, int]()
    for scheme in ("".join(name.split()) for name in options.schemes or known_schemes()):
        name, at, sampling = scheme.partition("@")
        expression = expression_of(name)
        positions[scheme] = f"{expression}{at}{sampling}"
        try:
            parse(expression)
            if (drawn := PositionSampling.parse(sampling if at else None, None)) and drawn.max_length is not None:
                limits[scheme] = drawn.max_length
        except InputError as error:
            raise InputError(f"--schemes {scheme}: {error}") from None
    setting = Setting(**{declared.name: getattr(options, declared.name) for declared in fields(Setting)})
    settings = {task: PAPERS.get(task, setting) for task in options.tasks}
    for task in (name for name in settings if limits):
        longest = longest_test(task, settings[task])
        for scheme, limit in limits.items():
            if limit < longest:
                raise InputError(
                    f"--schemes {scheme}: {limit} positions are less than the longest test of {task}, {longest} tokens"
                )
    return [
        Cell({"task": task, "scheme": scheme, "seed": seed}, {"positions": expression, **asdict(settings[task])}, outcome=TaskRun)
        for task in settings
        for scheme, expression in positions.items()
        for seed in range(1, options.seeds + 1)
    ]
