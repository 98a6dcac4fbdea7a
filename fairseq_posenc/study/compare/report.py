"""The report of a comparison: a page, tables in Markdown, CSV and JSON, and pictures."""

from __future__ import annotations

import csv
import html
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from tabulate import tabulate

from ...base.files import atomic_write
from ...base.ownership import own
from ...base.plotting import save
from ...base.record import DIVERGED, FINISHED, FORMAT, write_json
from ..engine import page
from ..engine.statistics import by
from . import charts
from .claims import NOT_RUN, Claim, judge
from .plan import Plan
from .results import Run, choose, finished
from .statistics import estimate

PAGE, MARKDOWN, CSV, JSON = "report.html", "results.md", "results.csv", "results.json"
FIGURES = "figures"
TITLE = "Comparison of positional encodings"
UNIGRAM = "(unigram: no context)"
UNSOUND = {
    "diverged": ("diverged", "diverged"),
    "failed": ("failed", "failed"),
    "unlearned": ("without word order", "did not learn word order"),
}
"""Fields of a row that count runs: in the table, and after "Runs that"."""
MARKS = {True: "✓", False: "", None: "–"}
"""By a row's ``in_set``."""
Row = Mapping[str, Any]
Table = tuple[list[str], list[list[str]]]
"""The head and the rows."""
MEANING = (
    "The loss is the mean over the seeds that all schemes have, in bits per predicted token of text that neither training nor "
    "the choice of the learning rate has used; perplexity is 2^loss. What follows ± is half of the 95% interval, by Student's t"
    " over seeds. A difference is that of runs with the same seed; p is that of the paired t test, corrected by Holm's method "
    "for the number of schemes. A tick marks the schemes that cannot be distinguished from the best: no other is better by "
    "Welch's t test with Holm's correction for all pairs; a dash, those that are not tested, with fewer than three seeds or a "
    "run that diverged. Time is that of a training step, relative to the reference, timed in turn with it. Parameters are those"
    " of the positions."
)


def write(
    out: Path,
    plan: Plan,
    rows: Sequence[Row],
    runs: Sequence[Run],
    claims: Sequence[Claim] = (),
    tasks: tuple[Sequence[Row], Path] | None = None,
    scores: Sequence[Run] = (),
) -> str:
    """Write report.html, results.md, results.csv, results.json and figures/ into ``out``; return the ranked table in Markdown.

    Args:
        out: the folder.
        plan: of the comparison.
        rows: of :func:`.results.summarise`.
        runs: the results of all cells.
        claims: to be tested.
        tasks: the results of ``fairseq-posenc tasks`` (:func:`.order_report.read`).
        scores: the results of fine-tuning (:meth:`.cells.Runs.score`).
    """
    verdicts = judge(claims, runs)
    done = finished(runs)
    unigram = next((run["unigram"] for run in runs if run.get("unigram") is not None), None)
    pictures = _pictures(out / FIGURES, plan, rows, done)
    opening = f"{answer(rows, plan.reference)} {state(plan, runs, scores)}".rstrip()
    sections = list(_sections(plan, rows, runs, done, verdicts, pictures, tasks, scores))
    ranked = ranking(rows, plan.reference, unigram)
    body = page.paragraph(opening) + page.scroll(_html(ranked)) + f'<p class="soft">{MEANING}</p>\n'
    figures = (page.figure(*pictures[name], wide=False) for name in ("ranking", "cost") if name in pictures)
    body += f'<div class="row">{"".join(figures)}</div>\n'
    footer = "Made by fairseq-posenc compare. All numbers are in results.json; each picture is a PNG and a PDF in figures/."
    page.write(own(out / PAGE), TITLE, TITLE, body, sections, footer)
    tables = [claims_table(verdicts), benchmarks(scores)]
    text = "\n\n".join([opening, _pipe(ranked), MEANING, *(_pipe(table) for table in tables if table[1])])
    with atomic_write(own(out / MARKDOWN)) as stream:
        stream.write(f"{text}\n")
    _write_csv(own(out / CSV), rows)
    result = {"format": FORMAT, "plan": plan.model_dump(mode="json"), "unigram": unigram, "schemes": rows, "claims": verdicts}
    write_json(own(out / JSON), {**result, "runs": runs, "benchmarks": scores})
    return _pipe(ranked)


def answer(rows: Sequence[Row], reference: str) -> str:
    """Return the result in sentences."""
    ranked = [row for row in rows if row["loss"] is not None]
    if not ranked:
        return "No run has finished."
    best, among = ranked[0], [row["scheme"] for row in ranked if row["in_set"]]
    level = f"{best['loss']:.3f} bits per predicted token, perplexity {best['perplexity']:.1f}"
    tested = [row["scheme"] for row in ranked if row["in_set"] is not None]
    sentences = [f"{best['scheme']} has the least loss ({level})."]
    if best["scheme"] not in tested or len(tested) < 2:
        sentences.append("This may be chance: it, or all others, have fewer than three seeds or a run that diverged.")
    elif len(among) == len(tested):
        sentences.append(f"None of the {len(tested)} schemes with three seeds or more can be distinguished from it.")
    elif len(among) > 1:
        others = ", ".join(name for name in among if name != best["scheme"])
        sentences.append(f"These cannot be distinguished from it: {others}.")
    else:
        sentences.append("All other schemes with three seeds or more are worse by more than chance.")
    if best["scheme"] == reference:
        sentences.append("It is the reference.")
    elif difference := best["difference"]:
        least, most = sorted((-difference["low"], -difference["high"]))
        sentences.append(
            f"The reference, {reference}, is {_number(-difference['mean'])} bits worse than {best['scheme']} "
            f"(95% interval {_number(least)} to {_number(most)}, {difference['seeds']} seeds)."
        )
    for name, (_, words) in UNSOUND.items():
        if concerned := [f"{row['scheme']} ({row[name]})" for row in rows if row[name]]:
            sentences.append(f"Runs that {words}: {', '.join(concerned)}.")
    return " ".join(sentences)


def state(plan: Plan, runs: Sequence[Run], scores: Sequence[Run] = ()) -> str:
    """Return sentences on runs that are not done, and on runs of several devices or versions; empty where there are none."""
    sentences = []
    done = sum(run["status"] in (FINISHED, DIVERGED) for run in (*runs, *scores))
    if done < plan.total:
        sentences.append(f"The comparison is not complete: {done} of {plan.total} runs are done.")
    if len({(run.get("device"), *sorted(run["versions"].items())) for run in runs if run["status"] == FINISHED}) > 1:
        sentences.append("The runs are of several devices or versions, between which losses may differ.")
    return " ".join(sentences)


def ranking(rows: Sequence[Row], reference: str, unigram: float | None) -> Table:
    """Return the ranked table."""
    head = ["", "scheme", "loss", "best", "perplexity", f"− {reference}", "p (Holm)", "time", "parameters", "runs"]
    lines = []
    for rank, row in enumerate(rows, 1):
        difference = row["difference"] or dict.fromkeys(("mean", "low", "high", "p_holm"))
        unsound = [f"{row[name]} {words}" for name, (words, _) in UNSOUND.items() if row[name]]
        lines.append(
            [
                str(rank),
                row["scheme"],
                _with_interval(row["loss"], row),
                MARKS[row["in_set"]],
                _number(row["perplexity"], ".1f"),
                _with_interval(difference["mean"], difference, "+.3f"),
                _number(difference["p_holm"], ".2g"),
                _number(row["cost"], ".2f"),
                _number(row["parameters"], ",d"),
                "; ".join([str(row["runs"]), *unsound]),
            ]
        )
    if unigram is not None:
        lines.append(["", UNIGRAM, _number(unigram), "", _number(2**unigram, ".1f"), *[""] * 5])
    return head, lines


def claims_table(claims: Sequence[Row]) -> Table:
    """Return the claims with their verdicts."""
    lines = []
    for claim in claims:
        findings = [
            finding["name"]
            if finding["value"] is None
            else f"{finding['name']}: {_with_interval(finding['value']['mean'], finding['value'])} {finding['unit']}".rstrip()
            + f", {finding['value']['seeds']} seeds"
            for finding in claim["findings"]
        ]
        here = claim["reason"] if claim["verdict"] == NOT_RUN else "; ".join(findings)
        lines.append([claim["verdict"], claim["text"], here, claim["published"], claim["source"]])
    return ["verdict", "claim", "here", "published", "source"], lines


def learning_rates(runs: Sequence[Run]) -> Table:
    """Return the loss on the first half of the validation text with seed 1, by scheme and learning rate."""
    rates, chosen = sorted({run["lr"] for run in runs}), choose(runs)
    tried = {(run["scheme"], run["lr"]): run for run in runs if run["seed"] == 1}
    lines = []
    for scheme in dict.fromkeys(run["scheme"] for run in runs):
        of_scheme = [tried.get((scheme, lr)) for lr in rates]
        cells = [
            "–" if run is None else f"{run['selection']:.3f}" if run["status"] == FINISHED else run["status"] for run in of_scheme
        ]
        marked = zip(rates, cells, strict=True)
        lines.append([scheme, *(f"{cell} ←" if lr == chosen[scheme] and len(rates) > 1 else cell for lr, cell in marked)])
    return ["scheme", *(f"{lr:g}" for lr in rates)], lines


def lengths(done: Mapping[str, Sequence[Run]], rows: Sequence[Row]) -> Table:
    """Return the mean loss on longer sequences of the schemes that take them, over the seeds that all of them have."""
    every = {row["scheme"]: {run["seed"]: run for run in done.get(row["scheme"], ()) if run["by_length"]} for row in rows}
    measured = {scheme: runs for scheme, runs in every.items() if runs}
    common = set.intersection(*map(set, measured.values())) if measured else set()
    columns = sorted({length for runs in measured.values() for run in runs.values() for length in run["by_length"]}, key=int)
    lines = []
    for scheme, runs in measured.items():
        of_length = [{**run["by_length"], "": run["loss"]} for seed, run in runs.items() if seed in common or not common]
        values = [[losses[length] for losses in of_length if length in losses] for length in ("", *columns)]
        lines.append([scheme, *(_number(sum(column) / len(column)) if column else "–" for column in values)])
    return ["scheme", "as in training", *(f"{length} tokens" for length in columns)], lines


def benchmarks(scores: Sequence[Run]) -> Table:
    """Return the mean score of each scheme on each task, with half of its 95% interval; a dash where a run failed."""
    tasks = {task: run["benchmark"] for run in scores for task in run.get("scores", ())}
    lines = []
    for scheme, group in by("scheme", scores).items():
        by_benchmark = by("benchmark", group)
        columns = [[run.get("scores", {}).get(task) for run in by_benchmark.get(name, ())] for task, name in tasks.items()]
        lines.append([scheme, *map(_score, columns)])
    return ["scheme", *tasks], lines


def _pictures(folder: Path, plan: Plan, rows: Sequence[Row], done: Mapping[str, Sequence[Run]]) -> dict[str, tuple[str, Path]]:
    """Draw the pictures; returns the caption and the file of each."""
    reference = plan.reference
    colours = f"Blue: cannot be distinguished from the best. Orange: the reference, {reference}. Hollow: not tested."
    drawn: dict[str, tuple[str, Any]] = {}
    if any(row["loss"] is not None for row in rows):
        caption = f"Loss of each scheme, its 95% interval, and its runs. {colours} An arrow points to what is beyond the axis."
        drawn["ranking"] = caption, charts.ranking(rows, reference)
    if any(row["loss"] is not None and row["cost"] is not None for row in rows if row["scheme"] != reference):
        line = (
            "A number is the rank in the table; the dotted line joins the schemes of which no other is both cheaper and better."
        )
        caption = f"Quality against cost. {line} {colours} A loss beyond the axis is left out."
        drawn["cost"] = caption, charts.quality_against_cost(rows, reference)
    if any(done.values()):
        band = f"The line is the mean of a scheme's runs, the band reaches from the least to the largest loss; grey: {reference}."
        drawn["updates"] = f"Loss during training against updates. {band}", charts.curves(rows, done, reference)
        if "cost" in drawn:
            caption = f"Loss during training against time, in updates of {reference}. {band}"
            drawn["time"] = caption, charts.curves(rows, done, reference, by_time=True)
    if by_position := charts.by_position(rows, done, reference, plan.tokens_per_sample):
        drawn["position"] = "Loss by position in the sequence. The best schemes, the reference and the last.", by_position
    for name, (_, figure) in drawn.items():
        for suffix in ("png", "pdf"):
            save(figure, own(folder / f"{name}.{suffix}"))
    return {name: (caption, folder / f"{name}.png") for name, (caption, _) in drawn.items()}


def _sections(
    plan: Plan,
    rows: Sequence[Row],
    runs: Sequence[Run],
    done: Mapping[str, Sequence[Run]],
    claims: Sequence[Row],
    pictures: Mapping[str, tuple[str, Path]],
    tasks: tuple[Sequence[Row], Path] | None,
    scores: Sequence[Run],
) -> Iterator[tuple[str, str]]:
    """The names and the HTML of the sections."""
    if claims:
        tally = {claim["verdict"]: sum(other["verdict"] == claim["verdict"] for other in claims) for claim in claims}
        counts = ", ".join(f"{count} {verdict}" for verdict, count in tally.items())
        text = f"{len(claims)} published claims: {counts}. A difference is that of the losses here, with its 95% interval."
        yield "Claims", page.paragraph(text) + page.scroll(_html(claims_table(claims)), "sentences")
    if during := [page.figure(*pictures[name]) for name in ("updates", "time") if name in pictures]:
        yield "During training", "".join(during)
    by_length = lengths(done, rows)
    if "position" in pictures or by_length[1]:
        content = page.figure(*pictures["position"]) if "position" in pictures else ""
        if by_length[1]:
            content += page.paragraph("Loss on longer sequences than those of training, of the schemes that take them.")
            content += page.scroll(_html(by_length))
        yield "Position and length", content
    if scores:
        text = "Scores on development sets in per cent: the mean over models, of which each has the median over its seeds."
        yield "Fine-tuning", page.paragraph(text) + page.scroll(_html(benchmarks(scores)))
    if tasks is not None:
        caption = "Tasks that need word order. The accuracy of each scheme on each task."
        content = page.figure(caption, tasks[1])
        if ranked_by := ", ".join(tasks[0][0]["ranked_by"]):
            content += page.paragraph(f"Over {ranked_by}, which every scheme has run:") + page.scroll(_html(_tasks(tasks[0])))
        yield "Tasks", content
    text = "Loss on the first half of the validation text, seed 1. An arrow marks the learning rate that is used; at the edge of "
    text += "the grid, a rate beyond it might be better."
    yield "Learning rates", page.paragraph(text) + page.scroll(_html(learning_rates(runs)))
    yield "To repeat it", _repeat(plan, runs)


def _tasks(rows: Sequence[Row]) -> Table:
    lines = [
        [row["scheme"], f"{row['learned']} of {row['runs']}", _number(row["within"]), _number(row["beyond"])] for row in rows
    ]
    return ["scheme", "runs that learned", "accuracy within the training lengths", "beyond"], lines


def _repeat(plan: Plan, runs: Sequence[Run]) -> str:
    versions = {f"{name} {number}" for run in runs for name, number in run["versions"].items()}
    digests = {f"{name} {digest}" for run in runs for name, digest in run["configuration"].get("data", {}).items()}
    facts = {
        "Versions": sorted(versions),
        "Machines": sorted({run["device"] for run in runs if run.get("device")}),
        "SHA-256 of the data": sorted(digests),
    }
    content = "".join(page.paragraph(f"{name}: {', '.join(values)}.") for name, values in facts.items() if values)
    plan_text = yaml.safe_dump(plan.model_dump(mode="json", exclude_defaults=True), sort_keys=False, allow_unicode=True)
    commands = "\n".join(run["command"] for run in runs if run.get("command"))
    for name, text in (("The plan", plan_text), (f"The commands of {len(runs)} runs", commands)):
        pre = page.scroll(f"<pre>{html.escape(text)}</pre>")
        content += f"<details><summary>{name}</summary>{pre}</details>\n"
    return content


def _write_csv(path: Path, rows: Sequence[Row]) -> None:
    flat = []
    for row in rows:
        scalars = {name: value for name, value in row.items() if not isinstance(value, (dict, list, tuple))}
        losses = {f"loss_seed_{seed}": loss for seed, loss in row["losses"].items()}
        difference = {
            f"difference_{name}": value for name, value in (row["difference"] or {}).items() if name != "multi_bootstrap"
        }
        flat.append(scalars | difference | losses)
    with atomic_write(path) as stream:
        writer = csv.DictWriter(stream, list(dict.fromkeys(name for row in flat for name in row)), lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)


def _number(value: float | None, form: str = ".3f") -> str:
    return "–" if value is None else f"{value:{form}}".replace("-", "−")


def _score(values: Sequence[float | None]) -> str:
    if len(values) < 2 or None in values:
        return _number(values[0] if len(values) == 1 else None, ".2f")
    mean = estimate(np.array(values))
    return _with_interval(mean.mean, vars(mean), ".2f")


def _with_interval(mean: float | None, ends: Row, form: str = ".3f") -> str:
    half = "" if ends["low"] is None else f" ± {_number((ends['high'] - ends['low']) / 2, form.lstrip('+'))}"
    return _number(mean, form) + half


def _html(table: Table) -> str:
    return str(tabulate(table[1], table[0], "html", disable_numparse=True, colalign=_alignment(table)))


def _pipe(table: Table) -> str:
    return tabulate(table[1], table[0], "pipe", disable_numparse=True, colalign=_alignment(table))


def _alignment(table: Table) -> list[str]:
    """Columns of numbers to the right, but for those with intervals of different width."""
    columns = ("".join(column) for column in zip(*table[1], strict=True))
    numeric = (set(column) <= set("0123456789.,+−–e") for column in columns)
    return ["right" if right else "left" for right in numeric]
