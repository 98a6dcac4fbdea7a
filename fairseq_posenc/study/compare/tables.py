"""What several tables of one plan say together: whether the order of the schemes holds at other sizes, lengths and budgets."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, pairwise
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure as Drawing
from scipy.stats import kendalltau

from ...base.plotting import grid, line_style
from ...base.record import FORMAT
from ..engine.report import Figure, Part, Report, Table, number, with_ends, with_interval
from ..engine.statistics import by
from . import starts
from .charts import BITS, common_curves
from .plan import Plan
from .report import STOPPED, Row, start_with_ends
from .results import counted, finished, level
from .starts import Run
from .statistics import LEVEL, geometric

RESAMPLES = 2000
Starts = dict[tuple[str, str], list[dict[str, Any]]]
"""The starts of runs, by their scheme and what distinguishes their tables besides the length."""


class Outcome(NamedTuple):
    """A table: the name of its folder, its plan, its rows as of :func:`.results.summarise`, and its runs."""

    name: str
    plan: Plan
    rows: Sequence[Mapping[str, Any]]
    runs: Sequence[Run]


def report(plan: Plan, outcomes: Sequence[Outcome]) -> Report:
    """Return the report of all tables."""
    names = ", ".join(f"{outcome.name}/report.html" for outcome in outcomes)
    rows = [{"table": outcome.name, **row} for outcome in outcomes for row in outcome.rows]
    agreed, starts_of = [] if plan.stop else agreement(plan, outcomes), start_points(plan, outcomes)
    compared: list[Part] = [STOPPED] if plan.stop else [losses(plan, outcomes), leads(plan, outcomes)]
    growth = exponents(starts_of)
    starting: list[Part] = [first_uses(plan, outcomes)] if starts_of else []
    if growth:
        starting += [exponent_table(growth), Figure("figures/starts", STARTS, start_against_length(plan, starts_of))]
    tokens = Figure("figures/tokens", "Loss against tokens, the mean of the runs of each scheme.", _loss_against_tokens(outcomes))
    return Report(
        title="Comparison of positional encodings in several tables",
        summary=[f"Each table has a page of its own: {names}.", *compared],
        data={"format": FORMAT, "tables": rows, "agreement": agreed, "exponents": growth},
        rows=rows,
        sections={
            "The order of the schemes": _agreement(agreed),
            "Start of word order": starting,
            "Tokens": [tokens] if plan.stop else [tokens_table(plan, outcomes), tokens],
        },
    )


STARTS = (
    "The updates after which runs use word order, by the length of their samples, both on logarithmic axes: a point per run and "
    "a line through the medians of a scheme; an arrow is of a run that did not within its updates."
)


def losses(plan: Plan, outcomes: Sequence[Outcome]) -> Table:
    """Return the mean loss of each scheme, and its rank, by table."""

    def cell(rank: int, row: Row) -> str:
        return number(row["loss"]) + f" ({rank})" * (row["loss"] is not None)

    return _by_table("loss (rank)", plan.schemes, outcomes, cell)


def leads(plan: Plan, outcomes: Sequence[Outcome]) -> Table:
    """Return the difference of each scheme's loss from the reference's, with half of its 95% interval, by table."""
    head = f"loss − {plan.reference}"
    return _by_table(head, _others(plan), outcomes, lambda rank, row: with_interval(row["difference"], "+.3f"))


def first_uses(plan: Plan, outcomes: Sequence[Outcome]) -> Table:
    """Return the median start of each scheme in updates, with the first and the last, by table."""
    return _by_table("start, updates", plan.schemes, outcomes, lambda rank, row: start_with_ends(row["start"]))


def _by_table(head: str, schemes: Iterable[str], outcomes: Sequence[Outcome], cell: Callable[[int, Row], str]) -> Table:
    """A row for each outcome, with a cell for each scheme, of its rank and its row."""
    cells = [{row["scheme"]: cell(rank, row) for rank, row in enumerate(outcome.rows, 1)} for outcome in outcomes]
    lines = [[outcome.name, *(of.get(scheme, "–") for scheme in schemes)] for outcome, of in zip(outcomes, cells, strict=True)]
    return Table([head, *schemes], lines)


def _others(plan: Plan) -> list[str]:
    return [name for name in plan.schemes if name != plan.reference]


def agreement(plan: Plan, outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Return Kendall's τ of the orders of the schemes of each two tables that differ in one axis alone.

    ``tau`` is that of the mean losses over the seeds that all of these schemes have, and ``low`` and ``high`` are the ends of its
    95% interval by a bootstrap over these seeds, which is None below three.
    """
    found = []
    for one, other in combinations(outcomes, 2):
        if sum(a != b for a, b in zip(*(plan.combinations[each.name] for each in (one, other)), strict=True)) != 1:
            continue
        losses = [
            {name: {run["seed"]: run["loss"] for run in runs} for name, runs in finished(each.runs).items()}
            for each in (one, other)
        ]
        schemes = [name for name in plan.schemes if all(of_table.get(name) for of_table in losses)]
        seeds = sorted(set.intersection(*({*of_table[name]} for of_table in losses for name in schemes))) if schemes else []
        if len(schemes) < 2 or not seeds:
            continue
        values = np.array([[[of_table[name][seed] for seed in seeds] for name in schemes] for of_table in losses])
        drawn = np.random.default_rng(1).integers(len(seeds), size=(RESAMPLES, len(seeds)))
        if not math.isfinite(tau := float(kendalltau(*values.mean(-1)).statistic)):  # all losses of a table are equal
            continue
        taus = [kendalltau(*values[:, :, seed].mean(-1)).statistic for seed in drawn] if len(seeds) > 2 else []
        low, high = map(float, np.nanquantile(taus, [LEVEL / 2, 1 - LEVEL / 2])) if taus else (None, None)
        of = {"tables": [one.name, other.name], "schemes": len(schemes), "seeds": len(seeds)}
        found.append(of | {"tau": tau, "low": low, "high": high})
    return found


def _agreement(found: Sequence[Mapping[str, Any]]) -> list[Part]:
    lines = [
        [" and ".join(each["tables"]), with_ends(each, "tau", to=" to "), str(each["schemes"]), str(each["seeds"])]
        for each in found
    ]
    text = "Kendall's τ of the orders by loss: 1 if they are equal, 0 if unrelated; 95% interval by a bootstrap over the seeds."
    return [text, Table(["tables", "τ", "schemes", "seeds"], lines)] if lines else []


def exponents(starts_of: Starts) -> list[dict[str, Any]]:
    """Return for each scheme and setting the exponent of the start as a power of the length: its mean over the seeds.

    A run that did not start counts with its last update, so that the exponent is then a lower bound: ``censored`` runs.
    """
    found = []
    for (scheme, setting), points in starts_of.items():
        lines = [np.log([(point["length"], point["updates"]) for point in of_seed]).T for of_seed in by("seed", points).values()]
        if slopes := [np.polyfit(x, y, 1)[0] for x, y in lines if len({*x}) > 1]:
            censored = sum(point["censored"] for point in points)
            found.append({"scheme": scheme, "setting": setting, "censored": censored, **level(np.array(slopes), "exponent")})
    return found


def exponent_table(growth: Sequence[Mapping[str, Any]]) -> Table:
    """Return the exponents with their intervals."""
    shown = [("at least " if each["censored"] else "") + with_interval(each, ".2f", "exponent") for each in growth]
    titles = [_title(each["scheme"], each["setting"]) for each in growth]
    return Table(["", "start ∝ length to the power of"], list(map(list, zip(titles, shown, strict=True))))


def start_points(plan: Plan, outcomes: Sequence[Outcome]) -> Starts:
    """Return the start of each run by its scheme and by what its table's name has besides the length."""
    found: Starts = {}
    for outcome in outcomes:
        length, (size, recipe, _, updates) = outcome.plan.tokens_per_sample, plan.combinations[outcome.name]
        setting = "_".join(filter(None, (size, recipe, f"u{updates}" if updates else "")))
        for scheme, runs in counted(outcome.runs).items():
            for run in (run for run in runs if run.get("permuted") is not None):
                at, last = starts.start(run), starts.last_update([run])
                point = {"seed": run["seed"], "length": length, "updates": min(at, last), "censored": at == math.inf}
                found.setdefault((scheme, setting), []).append(point)
    return {key: points for key, points in found.items() if any(not point["censored"] for point in points)}


def _title(scheme: str, setting: str) -> str:
    return " ".join(filter(None, [scheme, setting]))


def tokens_table(plan: Plan, outcomes: Sequence[Outcome]) -> Table:
    """Return the share of the reference's tokens after which a scheme has the reference's last loss, by table.

    It is the mean over two or more seeds on a logarithmic scale, with its 95% interval, of the validations during training.
    """

    def cell(outcome: Outcome, scheme: str) -> str:
        done = finished(outcome.runs)
        own, ends = ({run["seed"]: run["curve"] for run in done.get(name, ())} for name in (scheme, plan.reference))
        last = {seed: ends[seed][-1] for seed in own if seed in ends}
        ratios = [_reached(own[seed], end["loss"]) / end["updates"] for seed, end in last.items()]
        return "not reached" if math.inf in ratios else with_ends(geometric(ratios) if len(ratios) > 1 else None)

    head = f"tokens to the last loss of {plan.reference}, ÷ its own"
    lines = [[outcome.name, *(cell(outcome, scheme) for scheme in _others(plan))] for outcome in outcomes]
    return Table([head, *_others(plan)], lines)


def _reached(curve: Sequence[Mapping[str, Any]], loss: float) -> float:
    """The updates at which a curve first falls to a loss, between two validations on a straight line; infinity if it does not."""
    for before, point in pairwise([curve[0], *curve]):
        if point["loss"] <= loss:
            return float(np.interp(loss, [point["loss"], before["loss"]], [point["updates"], before["updates"]]))
    return math.inf


def _loss_against_tokens(outcomes: Sequence[Outcome]) -> Drawing:
    figure, panels = grid([outcome.name for outcome in outcomes], columns=2, x_label="tokens, millions", y_label=BITS)
    for panel, outcome in zip(panels, outcomes, strict=True):
        for place, (scheme, runs) in enumerate(finished(outcome.runs).items()):
            if runs:
                updates, losses = common_curves(runs)
                tokens = [1e-6 * at * outcome.plan.tokens_per_update for at in updates]
                panel.loglog(tokens, losses.mean(0), label=scheme, **{**line_style(place), "marker": ""})
        for axis, minor in ((panel.xaxis, ""), (panel.yaxis, "{x:g}")):
            axis.set_major_formatter("{x:g}")
            axis.set_minor_formatter(minor)
        panel.legend(handles=panel.lines, frameon=False, fontsize="small")
    return figure


def start_against_length(plan: Plan, starts_of: Starts) -> Drawing:
    """Draw the start of each run against the length of its samples (:data:`STARTS`)."""
    figure, (panel,) = grid([""], (5.4, 3.6), x_label="tokens per sample", y_label="start, updates")
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xticks(plan.lengths, list(map(str, plan.lengths)))
    for place, ((scheme, setting), points) in enumerate(starts_of.items()):
        style = line_style(place)
        medians = {n: median(point["updates"] for point in group) for n, group in sorted(by("length", points).items())}
        panel.plot([*medians], [*medians.values()], label=_title(scheme, setting), **{**style, "marker": ""})
        for point in points:
            marker, size = ("$↑$", 9) if point["censored"] else (style["marker"], 3.5)
            panel.plot(point["length"], point["updates"], marker=marker, markersize=size, color=style["color"])
    panel.legend(frameon=False, fontsize="small")
    return figure
