"""The report of a comparison: sentences, tables and pictures."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import yaml

from ...base.record import DIVERGED, FAILED, FINISHED, FORMAT
from ..engine.report import Figure, Folded, Part, Report, Table, number, with_ends, with_interval
from ..engine.statistics import by
from . import charts, starts
from .claims import NOT_TESTED
from .plan import PAIRS, SELECTION, Plan
from .results import ACCURACIES, BEST, MARGIN, TOLERANCE, UNDECIDED, choose, counted, finished, level, shared_seeds
from .starts import USED, Run
from .statistics import LEVEL, holm

FIGURES = "figures"
UNIGRAM = "(unigram: no context)"
Row = Mapping[str, Any]
STOPPED = "Runs end once they use word order, after different numbers of updates: their starts compare, and their losses do not."
COLOURS = "Blue: best; orange: worse; grey: undecided."
COLUMNS = {
    "loss": "mean over the seeds, in bits per predicted token of text that no choice has used, ± half of its 95% interval",
    "state": f"best: less than {MARGIN} bits above the least loss with 95% confidence; worse: else, above it by more than chance",
    "−": "mean difference from the reference, of runs with the same seed, ± half of its 95% interval",
    "p": "of the paired t test of this difference, corrected for the number of schemes, as its interval is not; – where most "
    "runs of one of both have not started",
    "start": f"updates from which the order of words saves {USED} bits until the end: median (first–last; never is the latest), "
    "interpolated between validations",
    "tokens": "read until then, in millions",
    "÷": "start relative to the reference's with the same seed, on a log scale, and its 95% interval",
    "started": "runs that used word order at the end; a run that diverged or failed did not",
    "of started": "mean loss at the end of the runs that started",
    "at age": "mean loss so many updates after the start, of the runs that are as old, at the validations during training; the "
    "later the start, the smaller the learning rate there",
    "all pairs": "accuracy on minimal pairs in per cent: mean over the seeds, ± half of its 95% interval",
    "word order": "the same of pairs whose order alone differs, of which an encoder without positions must get 50",
    "time": "of a training step relative to the reference, timed in turn with it: median (range over several models)",
    "parameters": "of the positions",
    "runs": "that finished, and others",
}
"""What the columns of the ranked table mean; those with data are shown."""
SCORES = "Scores on development sets in per cent: the mean over models, of which each has the median over its seeds."
TOLERATED = 1.0
"""Per cent by which the accuracy of models without positions may differ from 50, as rounding decides on a tie now and then."""
RATES = (
    "Losses on the first half of the validation text. The arrow marks the rate that is used: the least of those whose mean is "
    f"within {TOLERANCE} bits of the best; none with a run that failed or diverged."
)


def report(
    plan: Plan, rows: Sequence[Row], runs: Sequence[Run], verdicts: Sequence[Row] = (), scores: Sequence[Run] = (), left: int = 0
) -> Report:
    """Return the report.

    Args:
        plan: of the comparison.
        rows: of :func:`.results.summarise`.
        runs: the results of all cells.
        verdicts: on claims, of :func:`.claims.judge`.
        scores: the results of fine-tuning (:meth:`.cells.Runs.score`).
        left: the number of cells that are not done.
    """
    done = finished(runs)
    unigram = next((run["unigram"] for run in runs if run.get("unigram") is not None and not plan.stop), None)
    meanings = [[head, COLUMNS[name]] for name, head in _columns(rows, plan).items() if name in COLUMNS]
    columns = Table(["column", "meaning"], meanings)
    summary: list[Part] = [setting(plan, runs), answer(rows, plan), ranking(rows, plan, unigram), columns]
    summary += [caveats] if (caveats := state(plan, runs, rows, left)) else []
    result = {"format": FORMAT, "plan": plan.model_dump(mode="json"), "unigram": unigram, "schemes": rows, "claims": verdicts}
    return Report(
        title="Comparison of positional encodings",
        summary=summary,
        data={**result, "runs": runs, "benchmarks": scores},
        rows=rows,
        sections={
            "Claims": _claims(verdicts),
            "During training": _curves(plan, rows, done),
            "Longer sequences": _with_text("Loss on longer sequences; – where a scheme takes none.", lengths(done, rows)),
            "Minimal pairs": _pairs(rows),
            "Fine-tuning": _with_text(SCORES, benchmarks([run for run in scores if run["benchmark"] != PAIRS])),
            "Learning rates": _with_text(RATES, learning_rates(runs)) if len({run["lr"] for run in runs}) > 1 else [],
            "To repeat it": _repeat(plan, runs),
        },
        picture=_overview(rows) if any(row["loss"] or (row["start"] or {}).get("median") for row in rows) else None,
    )


def setting(plan: Plan, runs: Sequence[Run]) -> str:
    """Return a line on the model, the budget, the length, the seeds and the text."""
    digests = (run["configuration"].get("data", {}).get("train.bin") for run in runs)
    text = plan.text or f"train.bin with the SHA-256 {next(filter(None, digests), '?')[:12]}…"
    samples = f"{plan.batch_size} samples of {plan.tokens_per_sample} tokens"
    chosen = "the same for all schemes" if len(plan.learning_rates) == 1 else "chosen for each scheme"
    rates = f"learning rate {' or '.join(f'{rate:g}' for rate in plan.learning_rates)}, {chosen}"
    return f"{plan.arch}; {_budget(plan)} of {samples}; seeds: {plan.seeds}; {rates}; {plan.weight_decay}; text: {text}"


def answer(rows: Sequence[Row], plan: Plan) -> str:
    """Return the result in sentences: which scheme is the best, at what cost, or which starts first, and what is not known.

    The first says so where a scheme has not begun to use word order: its loss then shows nothing about its positions.
    """
    ranked = [row for row in rows if row["runs"]]
    if not ranked:
        return "No run has finished."
    sentences = []
    for row, start in ((row, row["start"]) for row in ranked if row["late"] and row["start"]):
        sentences.append(
            f"Not decided: {row['scheme']} used no word order in {start['of'] - start['started']} of {start['of']} runs of "
            f"{_budget(plan)}; it needs more (at the end, its loss falls by {start['slope']:.3f} bits per 100 updates)."
        )
    first = f"{ranked[0]['scheme']} starts first, after {start_with_ends(ranked[0]['start'])} updates."
    sentences += [STOPPED, first] if plan.stop else _least(ranked, plan)
    others = sum(row["scheme"] != plan.reference for row in ranked)
    ratios = {row["scheme"]: row["start"]["ratio"] for row in ranked if row["start"] and row["start"]["ratio"]}
    corrected = holm([ratio["p"] for ratio in ratios.values()])
    if sooner := [ratio["mean"] for ratio, p in zip(ratios.values(), corrected, strict=True) if p < LEVEL and ratio["mean"] < 1]:
        share = f"after {min(sooner):.2f} to {max(sooner):.2f} of its updates (p < {LEVEL} each, corrected for their number)"
        sentences.append(f"{len(sooner)} of {others} schemes use word order sooner than {plan.reference}, {share}.")
    unknown = _names([row for row in ranked[1:] if row["state"] == UNDECIDED and not row["late"] and not plan.stop])
    failed = ", ".join(f"{row['scheme']} ({row[DIVERGED] + row[FAILED]})" for row in rows if row[DIVERGED] + row[FAILED])
    gaps = [f"how these compare, whose losses vary too much or whose runs are not complete: {unknown}"] if unknown else []
    gaps += [f"runs that diverged or failed: {failed}"] if failed else []
    return " ".join([*sentences, *([f"Not known: {'; '.join(gaps)}."] if gaps else [])])


def _least(ranked: Sequence[Row], plan: Plan) -> list[str]:
    """Return sentences on the scheme with the least loss, and on its cost."""
    best, sentences = ranked[0], []
    sentence = f"{best['scheme']} has the least loss, {best['loss']:.3f} bits per predicted token"
    compared = [row for row in ranked if row["scheme"] == plan.reference and row is not best and row["start"]]
    if best["start"] and best["start"]["median"] is not None:
        others = "".join(f", {row['scheme']} after {start_with_ends(row['start'])}" for row in compared)
        sentence += f", and uses word order after {start_with_ends(best['start'])} updates{others}"
    among = [row for row in ranked[1:] if row["state"] == BEST]
    if best["state"] == UNDECIDED:
        tested = f"it was not tested, and of the schemes that were, {among[0]['scheme']} has the least" if among else ""
        sentences.append(f"{sentence}; {tested or 'this may be chance, since fewer than two schemes were tested'}.")
    else:
        sentences.append(f"{sentence}; as good within {MARGIN} bits: {_names(among) or 'no other scheme'}.")
    if best["cost"]:
        cheapest = min((row for row in (best, *among) if row["cost"]), key=lambda row: row["cost"]["median"])
        other = "" if cheapest is best else f", and one of {cheapest['scheme']}, the fastest of these, {_cost(cheapest)}"
        sentences.append(f"A training step of {best['scheme']} takes {_cost(best)} times one of {plan.reference}{other}.")
    return sentences


def state(plan: Plan, runs: Sequence[Run], rows: Sequence[Row] = (), left: int = 0) -> str:
    """Return sentences on what is not done or not measured, and on several devices or versions; empty where there are none."""
    sentences, done = [], [run for group in finished(runs).values() for run in group]
    if left:
        sentences.append(f"The comparison is not complete: {left} runs are left.")
    seeds = sorted(shared_seeds(counted(runs))) if rows else []
    if seeds and (others := sum(run["seed"] not in seeds for run in done)):
        sentences.append(f"The table is of the seeds {', '.join(map(str, seeds))}: {others} other runs count for claims alone.")
    if not starts.is_measured(done):
        sentences.append("When runs begin to use word order was not measured.")
    unordered = {run["scheme"] for run in done if starts.never_starts(run)}
    for row in (row for row in rows if row["scheme"] in unordered):
        if row["word order"] and abs(row["word order"]["mean"] - 50) > TOLERATED:
            sentences.append(f"{row['scheme']} has no positions, and does not get 50% of {ACCURACIES[1]}: something is wrong.")
    devices = {(run["scheme"], run["seed"]): run.get("device") for run in done}
    if len(count_of := Counter(devices.values())) > 1:
        pairs = [a != b for x, y in combinations(devices, 2) if x[1] == y[1] for a, b in [(devices[x], devices[y])]]
        named = ", ".join(f"{count} on {device}" for device, count in count_of.items())
        sentences.append(
            f"The runs are of several devices ({named}), which round differently: of {len(pairs):,} pairs of runs with one seed, "
            f"{sum(pairs):,} are of two."
        )
    if len({tuple(sorted(run["versions"].items())) for run in done}) > 1:
        sentences.append("The runs are of several versions, between which losses may differ.")
    return " ".join(sentences)


def ranking(rows: Sequence[Row], plan: Plan, unigram: float | None) -> Table:
    """Return the ranked table."""
    columns = _columns(rows, plan)
    lines = [[str(rank), *(_cells(row, plan)[name] for name in columns)] for rank, row in enumerate(rows, 1)]
    if unigram is not None:
        lines.append(["", *({"scheme": UNIGRAM, "loss": number(unigram)}.get(name, "") for name in columns)])
    return Table(["", *columns.values()], lines)


def _columns(rows: Sequence[Row], plan: Plan) -> dict[str, str]:
    """The columns with data, and how they are headed."""
    age = next((f"at age {row['start']['age']:,}" for row in rows if row["start"]), "")
    heads = {"−": f"− {plan.reference}", "÷": f"÷ {plan.reference}", "at age": age}
    filled = {name for row in rows for name, cell in _cells(row, plan).items() if cell != "–"}
    return {name: heads.get(name, name) for name in ("scheme", *COLUMNS) if name in filled}


def _cells(row: Row, plan: Plan) -> dict[str, str]:
    start = row["start"] or {}
    tokens = 1e-6 * (start.get("median") or 0) * plan.tokens_per_update
    return {
        "scheme": row["scheme"],
        "loss": with_interval(row, name="loss"),
        "state": "–" if plan.stop else row["state"],
        "−": with_interval(row["difference"], "+.3f"),
        "p": number(row["difference"] and row["difference"]["p_holm"], ".2g"),
        "start": start_with_ends(start),
        "tokens": number(tokens or None, ".1f"),
        "÷": with_ends(start.get("ratio")),
        "started": f"{start['started']} of {start['of']}" if start else "–",
        "of started": number(start.get("loss")),
        "at age": number(start.get("loss_at_age")),
        **{name: with_interval(row[name], ".1f") for name in ACCURACIES},
        "time": _cost(row),
        "parameters": number(row["parameters"], ",d"),
        "runs": "; ".join([str(row["runs"]), *(f"{row[status]} {status}" for status in (DIVERGED, FAILED) if row[status])]),
    }


def claims_table(claims: Sequence[Row]) -> Table:
    """Return the claims with their verdicts; those that hold by construction come last."""
    lines = []
    for claim in sorted(claims, key=lambda claim: claim["check"]):
        verdict, corrected = claim["verdict"], "–" if claim["check"] else number(claim["p_holm"], ".2g")
        here = claim["reason"] if verdict == NOT_TESTED else "; ".join(map(_finding, claim["findings"]))
        shown = f"check: {verdict}" if claim["check"] else verdict
        lines.append([shown, claim["text"], here, number(claim["p"], ".2g"), corrected, claim["published"], claim["source"]])
    return Table(["verdict", "claim", "here", "p", "p (Holm)", "published", "source"], lines)


def learning_rates(runs: Sequence[Run]) -> Table:
    """Return the loss on the first half of the validation text of the runs that choose the learning rate, by scheme and rate."""
    rates, chosen = sorted({run["lr"] for run in runs}), choose(runs)
    lines = []
    for scheme, group in by("scheme", (run for run in runs if run["seed"] in SELECTION)).items():
        cells: dict[float, list[str]] = {lr: [] for lr in rates}
        for run in group:
            cells[run["lr"]].append(f"{run['selection']:.3f}" if run["status"] == FINISHED else run["status"])
        lines.append([scheme, *(f"{', '.join(of) or '–'}{' ←' * (lr == chosen[scheme])}" for lr, of in cells.items())])
    return Table(["scheme", *(f"{lr:g}" for lr in rates)], lines)


def lengths(done: Mapping[str, Sequence[Run]], rows: Sequence[Row]) -> Table:
    """Return the mean loss on longer sequences, over the seeds that all schemes have that take them; a dash for others."""
    every = {row["scheme"]: {run["seed"]: run for run in done[row["scheme"]]} for row in rows if row["losses"]}
    measured = [runs for runs in every.values() if any(run["by_length"] for run in runs.values())]
    common = set.intersection(*map(set, measured)) if measured else set()
    columns = sorted({length for runs in measured for run in runs.values() for length in run["by_length"]}, key=int)
    lines = []
    for scheme, runs in every.items() if measured else ():
        of_length = [{**run["by_length"], "": run["loss"]} for seed, run in runs.items() if seed in common or not common]
        values = [[losses[length] for losses in of_length if length in losses] for length in ("", *columns)]
        lines.append([scheme, *(number(sum(column) / len(column)) if column else "–" for column in values)])
    return Table(["scheme", "as in training", *(f"{length} tokens" for length in columns)], lines)


def benchmarks(scores: Sequence[Run]) -> Table:
    """Return the mean score of each scheme on each task, with half of its 95% interval; a dash where a run failed."""
    tasks = {task: run["benchmark"] for run in scores for task in run.get("scores", ())}
    lines = []
    for scheme, group in by("scheme", scores).items():
        by_benchmark = by("benchmark", group)
        columns = [[run.get("scores", {}).get(task) for run in by_benchmark.get(name, ())] for task, name in tasks.items()]
        lines.append([scheme, *map(_score, columns)])
    return Table(["scheme", *tasks], lines)


def _overview(rows: Sequence[Row]) -> Figure:
    caption = "Loss, start and cost of each scheme, with the interval of the loss and the ranges of the others."
    return Figure(f"{FIGURES}/overview", f"{caption} {COLOURS}", charts.overview(rows), wide=False)


def _pairs(rows: Sequence[Row]) -> list[Part]:
    if not any(row["all pairs"] and row["loss"] is not None for row in rows):
        return []
    caption = f"Accuracy against loss, with the intervals over the seeds; the dotted line is chance. {COLOURS}"
    return [Figure(f"{FIGURES}/pairs", caption, charts.accuracies(rows), wide=False)]


def _curves(plan: Plan, rows: Sequence[Row], done: Mapping[str, Sequence[Run]]) -> list[Part]:
    if not any(done.values()):
        return []
    caption = f"Loss during training: the mean of a scheme's runs, and a band for all of them; wide: {plan.reference}. {COLOURS}"
    return [Figure(f"{FIGURES}/updates", caption, charts.curves(rows, done, plan.reference), wide=False)]


def _claims(claims: Sequence[Row]) -> list[Part]:
    counted = Counter(claim["verdict"] for claim in claims if not claim["check"])
    counts = ", ".join(f"{count} {verdict}" for verdict, count in counted.items())
    text = f"{counted.total()} claims: {counts}. p is that of all tests of a claim, raw and corrected by Holm's "
    text += "method over the claims, by which it is judged. Checks hold by construction and are not counted."
    return _with_text(text, claims_table(claims))


def _with_text(text: str, table: Table) -> list[Part]:
    return [text, table] if table.rows else []


def _repeat(plan: Plan, runs: Sequence[Run]) -> list[Part]:
    facts = {
        "Versions": {f"{name} {version}" for run in runs for name, version in run["versions"].items()},
        "Machines": {run["device"] for run in runs if run.get("device")},
        "SHA-256 of the data": {
            f"{name} {digest}" for run in runs for name, digest in run["configuration"].get("data", {}).items()
        },
    }
    plan_text = yaml.safe_dump(plan.model_dump(mode="json", exclude_defaults=True), sort_keys=False, allow_unicode=True)
    commands = "\n".join(run["command"] for run in runs if run.get("command"))
    return [
        *(f"{name}: {', '.join(sorted(values))}." for name, values in facts.items() if values),
        Folded("The plan", plan_text),
        Folded(f"The commands of {len(runs)} runs", commands),
    ]


def _interval(value: Row) -> str:
    """The mean and its interval: half of it, or both ends of one that is not symmetric, as that of a ratio."""
    symmetric = abs(value["high"] + value["low"] - 2 * value["mean"]) < 1e-6
    return with_interval(value) if symmetric else with_ends(value)


def _finding(finding: Row) -> str:
    value = finding["value"]
    measured = "" if value is None else f": {_interval(value)} {finding['unit']}".rstrip() + f", {value['seeds']} seeds"
    return f"{finding['name']}{measured}"


def _cost(row: Row) -> str:
    return with_ends(row["cost"], "median")


def start_with_ends(start: Row | None) -> str:
    """Return the ``median`` of starts in updates, with the first and the last where they differ; a dash for none."""
    if not start:
        return number(None)
    middle, first, last = ("never" if start[name] is None else f"{start[name]:,.0f}" for name in ("median", "first", "last"))
    return middle if first == last else f"{middle} ({first}–{last})"


def _budget(plan: Plan) -> str:
    return f"{plan.budget.minutes:g} minutes of updates" if plan.updates is None else f"{plan.updates:,} updates"


def _names(rows: Sequence[Row]) -> str:
    return ", ".join(row["scheme"] for row in rows)


def _score(values: Sequence[float | None]) -> str:
    return with_interval(None if None in values else level(np.array(values), "mean"), ".2f")
