"""Rewrites the tables in README.md, in pages of docs/ and in FIDELITY.md, the picture in README.md, and the comparison's page.

They come from the live modules and from the committed runs in examples/compare/results. A test compares the tables.
With --trained OUT, it draws instead what the models of a comparison in OUT add to the scores, for the site's pages of schemes.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from tabulate import tabulate

from fairseq_posenc.base import ownership
from fairseq_posenc.base.plotting import save
from fairseq_posenc.base.record import DIVERGED, FINISHED, FORMAT, RESULT, read_object
from fairseq_posenc.huggingface import translation
from fairseq_posenc.huggingface.conversion import choose
from fairseq_posenc.huggingface.types.base import Head
from fairseq_posenc.plugin.models.building import complete, dictionary_of, encoder_config, parse
from fairseq_posenc.plugin.options.option_set import ENCODER_OPTIONS, LANGUAGE_MODEL_OPTIONS, TRANSLATION_OPTIONS
from fairseq_posenc.study.analyze import models
from fairseq_posenc.study.catalogue import pictures
from fairseq_posenc.study.catalogue.listing import COLUMNS, find, text_of
from fairseq_posenc.study.compare import charts, report, tables
from fairseq_posenc.study.compare.cells import LAST
from fairseq_posenc.study.compare.claims import judge, read_claims
from fairseq_posenc.study.compare.plan import Plan, read_plan
from fairseq_posenc.study.compare.results import finished, level, summarise
from fairseq_posenc.study.engine import report as engine_report
from fairseq_posenc.study.engine.grid import Cell
from fairseq_posenc.study.word_order import report as order_report
from fairseq_posenc.study.word_order.report import updates_needed
from fairseq_posenc.study.word_order.settings import PAPERS

ROOT = Path(__file__).parents[1]
RESULTS, CLAIMS = ROOT / "examples/compare/results", ROOT / "examples/compare/claims.yaml"
PICTURE, PAGE = RESULTS / "english.png", RESULTS / "english.html"
"""Loss, start and time of each scheme, and the report of the comparison."""
STARTS = RESULTS / "ladder/starts.png"
"""The start of word order against the length of samples."""
TRAINED = RESULTS / "english/pictures"
"""What the comparison's models add to the scores: a picture named after each expression."""
TOKENS = 32
"""In the pictures of schemes."""
PLANS = ("english", "variants", "length")
"""Of examples/compare, with the same data-bin."""
COMPARED = (
    *("", "scheme", "loss", "state", "− absolute", "p", "start", "÷ absolute", "started", "all pairs", "word order", "time"),
    *("parameters", "runs"),
)
"""The columns of the comparison's table in README.md, as far as they were measured."""


METHODS = {
    "deberta": "DeBERTa",
    "m4": "Huang et al.'s method 4",
    "untied+t5+reset": "TUPE-R",
    "rope": "RoPE",
    "tisa": "TISA",
    "absolute+t5": "absolute positions and T5's biases",
    "absolute": "learned absolute positions",
    "none": "no positions",
}
"""The schemes in README.md's table, by the names of the methods."""


def schemes() -> str:
    """Return the table of all schemes with all columns."""
    cells = [[text_of(row[column]).replace("|", "∣") for column in COLUMNS] for row in find()]
    return tabulate(cells, COLUMNS, "github", disable_numparse=True)


def order_task() -> str:
    """Return how soon each scheme learned the task ``order``, and the accuracy of those that did not."""
    budget = PAPERS["order"].updates
    names: dict[int, list[str]] = {}
    runs = [run for run in order_report.recorded(RESULTS / "tasks") if run["task"] == "order" and run["seed"] == 1]
    for run in sorted(runs, key=lambda run: (-run["within"], run["scheme"])):
        needed = updates_needed(run)
        name = run["scheme"] if needed else f"{run['scheme']} {run['within']:.2f}"
        names.setdefault(needed or budget + 1, []).append(name)
    rows = [
        (f"{needed:,}" if needed <= budget else f"more than {budget:,}", ", ".join(sorted(of) if needed <= budget else of))
        for needed, of in sorted(names.items())
    ]
    return tabulate(rows, ("updates", "architectures"), "github", disable_numparse=True)


@cache
def comparison_of(name: str, results: str = "english") -> tuple[Plan, list[Mapping[str, Any]], list[dict[str, Any]]]:
    """Return a plan for the English text, its finished and diverged runs, and the rows of its table.

    The runs of most plans are in one folder, where plans share those with the same flags.
    """
    folder = RESULTS / results
    plan = read_plan(ROOT / f"examples/compare/{name}.yaml")
    done = [run for run in recorded(folder, "runs/*/*") if run["status"] in (FINISHED, DIVERGED)]
    flags = {scheme: plan.flags(scheme) for scheme in plan.schemes}
    done = [run for run in done if run["configuration"]["flags"] == flags.get(run["scheme"])]
    runs = [run for run in done if run["lr"] in plan.learning_rates and run["seed"] <= plan.seeds_of(run["scheme"])]
    return plan, runs, summarise(plan, runs, recorded(folder, "costs/*/*"), recorded(folder, "benchmarks/pairs/*/*"))


def recorded(folder: Path, cells: str) -> list[Mapping[str, Any]]:
    """Return the results of some cells in the output folder of a comparison."""
    return [result for path in sorted(folder.glob(f"{cells}/{RESULT}")) if (result := read_object(path, FORMAT))]


def draw_trained(out: Path, folder: Path) -> None:
    """Draw what trained models add to the scores: of each scheme, the first seed with its learning rate.

    Args:
        out: the output folder of a comparison that kept its checkpoints; schemes without one are left out.
        folder: of the pictures.
    """
    for scheme, runs in finished(recorded(out, "runs/*/*")).items():
        keys = [{name: run[name] for name in ("scheme", "lr", "seed")} for run in runs]
        checkpoints = [path for key in keys if (path := Cell(key, {}).folder(out) / LAST).exists()]
        if checkpoints:
            folder.mkdir(exist_ok=True)
            encoder = models.read(str(checkpoints[0]), None, with_text=False).encoder
            pictures.write(folder / f"{scheme}.png", {scheme: encoder}, TOKENS, range(1, encoder.config.layers + 1))


def comparison() -> str:
    """Return the ranked table of the comparison."""
    shown, cells = ranked()
    return tabulate(cells, shown, "github", disable_numparse=True)


def main_schemes() -> str:
    """Return the rows of the best-known schemes, in the order of the ranked table, without the numbers of runs."""
    head, cells = ranked()
    kept = [place for place, column in enumerate(head) if column not in ("", "scheme", "started", "all pairs", "runs")]
    rows = [[METHODS[line[1]], f"`{line[1]}`", *(line[place] for place in kept)] for line in cells if line[1] in METHODS]
    return tabulate(rows, ["method", "scheme", *(head[place] for place in kept)], "github", disable_numparse=True)


def ranked() -> tuple[list[str], list[list[str]]]:
    """Return the head and the lines of the ranked table, with the columns of :data:`COMPARED`."""
    plan, runs, rows = comparison_of("english")
    table = report.ranking(rows, plan, next(run["unigram"] for run in runs if "unigram" in run))
    shown = [column for column in COMPARED if column in table.head]
    return shown, [[line[table.head.index(column)] for column in shown] for line in table.rows]


@cache
def verdicts() -> list[dict[str, Any]]:
    """Return the verdicts on the published claims by the runs of all plans."""
    runs = {(run["scheme"], run["lr"], run["seed"]): run for name in PLANS for run in comparison_of(name)[1]}
    return judge(read_claims(CLAIMS), [*runs.values()])


def claims() -> str:
    """Return the published claims with their verdicts."""
    table = report.claims_table(verdicts())
    return tabulate(table.rows, table.head, "github", disable_numparse=True)


def language_models() -> str:
    """Return the ranked table of decoders, with their losses on longer sequences."""
    plan, runs, rows = comparison_of("language_model", "decoders")
    ranks, longer = report.ranking(rows, plan, None), report.lengths(finished(runs), rows)
    losses = {scheme: cells for scheme, _, *cells in longer.rows}
    shown = ("scheme", "loss", "state", f"− {plan.reference}", "p", "start", "parameters")
    lines = [[line[ranks.head.index(column)] for column in shown] for line in ranks.rows]
    lines = [[*line, *losses[line[0]]] for line in lines]
    return tabulate(lines, (*shown, *longer.head[2:]), "github", disable_numparse=True)


def language_model_claims() -> str:
    """Return the published claims on decoders with their verdicts."""
    _, runs, _ = comparison_of("language_model", "decoders")
    table = report.claims_table(judge(read_claims(CLAIMS.with_name("language_model_claims.yaml")), runs))
    return tabulate(table.rows, table.head, "github", disable_numparse=True)


@cache
def ladder(name: str) -> tuple[Plan, list[tables.Outcome]]:
    """Return a plan with several tables, and those of them that have runs."""
    plan, outcomes = read_plan(ROOT / f"examples/compare/ladder_{name}.yaml"), []
    for table, of_table in plan.tables().items():
        found = recorded(RESULTS / "ladder" / name / table, "runs/*/*")
        rates = of_table.learning_rates
        if runs := [run for run in found if run["status"] in (FINISHED, DIVERGED) and run["lr"] in rates]:
            outcomes.append(tables.Outcome(table, of_table, summarise(of_table, runs), runs))
    return plan, outcomes


def ladder_budget() -> str:
    """Return the losses, ranks and leads by scheme and budget."""
    return tabulate(by_table(*ladder("budget")), "keys", "github", disable_numparse=True)


def by_table(plan: Plan, outcomes: Sequence[tables.Outcome]) -> dict[str, list[str]]:
    """Return the losses, ranks, leads and starts of the schemes that have runs, as columns."""
    schemes = [name for name in plan.schemes if any(name in finished(outcome.runs) for outcome in outcomes)]
    columns = {"scheme": schemes}
    for outcome in outcomes:
        losses = {name: {run["seed"]: run["loss"] for run in of} for name, of in finished(outcome.runs).items()}
        ranks = {row["scheme"]: (rank, row) for rank, row in enumerate(outcome.rows, 1)}
        cells = [
            (f"{row['loss']:.3f} ({rank})", lead(losses, name, plan.reference), report.start_with_ends(row["start"]))
            if row is not None
            else ("–", "–", "–")
            for name, (rank, row) in ((name, ranks.get(name, (0, None))) for name in schemes)
        ]
        heads = [f"{outcome.name}: {head}" for head in ("loss (rank)", f"− {plan.reference}", "start")]
        columns |= dict(zip(heads, map(list, zip(*cells, strict=True)), strict=True))
    return columns


def lead(losses: Mapping[str, Mapping[int, float]], scheme: str, reference: str) -> str:
    """Return the mean difference of a scheme's losses by seed from the reference's, with its interval above one seed."""
    own, other = losses[scheme], losses[reference]
    differences = level(np.array([own[seed] - other[seed] for seed in sorted(own.keys() & other.keys())]), "mean")
    return "–" if scheme == reference else engine_report.with_interval(differences, "+.3f")


def ladder_size() -> str:
    """Return the losses, ranks, leads and starts by scheme and size, of which the smallest is that of english.yaml."""
    plan, larger = ladder("size")
    smallest, *_ = plan.tables().items()
    runs = [run for run in comparison_of("english")[1] if run["scheme"] in plan.schemes]
    outcomes = [tables.Outcome(*smallest, summarise(smallest[1], runs), runs), *larger]
    taus = [f"{each['tau']:.2f} ({' and '.join(each['tables'])})" for each in tables.agreement(plan, outcomes)]
    found = tabulate(by_table(plan, outcomes), "keys", "github", disable_numparse=True)
    return f"{found}\n\nKendall's τ of the orders by loss, with the seeds that both have: {', '.join(taus)}."


def ladder_length() -> str:
    """Return the starts of word order by scheme and length, and the exponents of their growth."""
    plan, outcomes = ladder("length")
    starts = tables.first_uses(plan, outcomes)
    growth = tables.exponent_table(tables.exponents(tables.start_points(plan, outcomes)))
    exponents = {line[0]: line[1] for line in growth.rows}
    lines = [
        [scheme, *cells, exponents.get(scheme, "–")]
        for scheme, *cells in zip(starts.head[1:], *(row[1:] for row in starts.rows), strict=True)
    ]
    head = ["scheme", *(f"{outcome.plan.tokens_per_sample} tokens" for outcome in outcomes), "exponent"]
    return tabulate(lines, head, "github", disable_numparse=True)


def ladder_cause() -> str:
    """Return the starts of word order by recipe."""
    table = tables.first_uses(*ladder("cause"))
    return tabulate(table.rows, ["recipe", *table.head[1:]], "github", disable_numparse=True)


def by_initial_scale() -> str:
    """Return the updates after which runs use word order, by what their initial values are multiplied by."""
    plan, _, rows = comparison_of("starts", "starts")
    table = report.ranking(rows, plan, None)
    starts = {line[table.head.index("scheme")]: line[table.head.index("start")] for line in table.rows}
    schemes = [scheme for scheme in plan.schemes if f"{scheme}-10" in plan.schemes]
    lines = [[scheme, *(starts[f"{scheme}{scale}"] for scale in ("-0.1", "", "-10"))] for scheme in schemes]
    return tabulate(lines, ("scheme", "× 0.1", "× 1", "× 10"), "github", disable_numparse=True)


def by_length() -> str:
    """Return the losses on longer sequences of schemes that are trained with positions as they are, and with sampled ones."""
    plan, runs, rows = comparison_of("length")
    losses = {scheme: cells for scheme, *cells in report.lengths(finished(runs), rows).rows}
    lengths = [f"{factor * plan.tokens_per_sample}{kind}" for kind in ("", ", sampled") for factor in (1, 2, 4)]
    lines = [
        [scheme.removesuffix("-128"), *cells, *losses.get(f"{scheme}-random", ["–"] * 3)]
        for scheme, cells in losses.items()
        if not scheme.endswith("-random")
    ]
    return tabulate(lines, ("scheme", *lengths), "github", disable_numparse=True, colalign=("left", *["right"] * len(lengths)))


def fine_tuning() -> str:
    """Return the losses of pretrained models, and their scores and those of models from random weights after fine-tuning."""
    folder = RESULTS / "finetune"
    losses = {run["scheme"]: f"{run['loss']:.3f}" for run in recorded(folder, "runs/*/*") if run["status"] == FINISHED}
    table = report.benchmarks(recorded(folder, "benchmarks/*/*/*"))
    first, *tasks = table.head
    rows = [[scheme, losses.get(scheme, "–"), *scores] for scheme, *scores in table.rows]
    return tabulate(
        rows, (first, "loss", *tasks), "github", disable_numparse=True, colalign=("left", *["right"] * (1 + len(tasks)))
    )


def results_by_scheme() -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield each result of a scheme: a title, the expression, and a table's row by column."""
    plan, _, rows = comparison_of("english")
    table = report.ranking(rows, plan, None)
    for row, line in zip(rows, table.rows, strict=True):
        cells = dict(zip(table.head, line, strict=True))
        yield (
            "Comparison on English text",
            row["positions"],
            {column or "rank": cells[column] for column in COMPARED if column in cells},
        )
    for row in order_report.summarise(order_report.recorded(RESULTS / "tasks")):
        for task, means in row["tasks"].items():
            learned = f"{means['learned']} of {means['runs']}"
            accuracy = {f"accuracy {score}": f"{means[score]:.2f}" for score in order_report.SCORES}
            cells = {
                "positions": row["positions"],
                "task": task,
                "runs that learned": learned,
                "updates": f"{means['updates']:,.0f}",
            }
            yield "Tasks that need word order", row["positions"], cells | accuracy


NORM_FIRST = "--encoder-normalize-before"
LLAMA = "--norm rms --gated-ffn --no-linear-bias --activation-fn silu"
EXPORTS = (  # architectures, and flags of fairseq-train
    "roberta_absolute",
    "roberta_sinusoidal",
    f"roberta_absolute {NORM_FIRST}",
    "albert_absolute",
    "roberta_t5",
    "roberta_posenc --positions absolute+t5",
    "roberta_rope",
    f"roberta_rope {NORM_FIRST}",
    "roberta_rope --gated-ffn --no-linear-bias",
    f"roberta_rope {NORM_FIRST} {LLAMA} --no-layernorm-embedding --no-head-layer --no-output-bias",
    "modernbert_rope",
    "roberta_deberta --deberta-projections content --deberta-indexing original --layer-norm-eps 1e-7",
    "transformer_lm_absolute",
    "transformer_lm_sinusoidal",
    "transformer_lm_rope --decoder-normalize-before",
    f"transformer_lm_rope --decoder-normalize-before {LLAMA}",
    "transformer_lm_alibi --decoder-normalize-before --layernorm-embedding --activation-fn gelu_accurate",
    "transformer_sinusoidal",
    f"transformer_sinusoidal {NORM_FIRST}",
    f"transformer_sinusoidal {NORM_FIRST} --sinusoidal-layout fairseq",
    "transformer_absolute --layernorm-embedding",
    f"transformer_absolute --layernorm-embedding {NORM_FIRST}",
    f"transformer_absolute {NORM_FIRST}",
    "roberta_tisa",
    "transformer_lm_rope",
)
"""The rows of the table of exports; tests/huggingface/test_native_classes.py and test_translation.py export each."""
OF_5 = ("EuroBert", "JinaEmbeddingsV3", "NomicBert")
"""Beginnings of the names of classes that transformers 4.57 lacks."""
SERVERS = {  # by the beginnings of the names of classes, as their documentation lists them, looked up on 27 November 2026
    # huggingface.co/docs/text-embeddings-inference/supported_models; its NomicBERT reads another configuration
    "TEI": ("Roberta", "MPNet", "ModernBert"),
    # docs/models/supported_models.md and docs/models/pooling_models/embed.md of vllm-project/vllm; encoders without a head
    "vLLM": ("Roberta", "ModernBert", "OPT", "GPTNeoX", "Llama", "Bloom"),
}


def is_translation(row: str) -> bool:
    """Return whether a row of :data:`EXPORTS` is a model of translation."""
    return row.startswith("transformer_") and not row.startswith("transformer_lm_")


def exported_class(row: str, *sizes: str) -> str:
    """Return the class that an untrained model of an architecture with flags is exported to."""
    arch, *flags = row.split()
    causal, translates = arch.startswith("transformer_lm_"), is_translation(row)
    of_kind = LANGUAGE_MODEL_OPTIONS if causal else TRANSLATION_OPTIONS if translates else ENCODER_OPTIONS
    length = [] if translates else ["--tokens-per-sample", "512"]
    cfg = parse(["DATA", "--task", of_kind.task, *length, "--arch", arch, *flags, *sizes])
    options, dictionary = complete(cfg.model, cfg.task, of_kind), dictionary_of(16)
    encoder = encoder_config(options, dictionary, of_kind)
    if translates:
        return translation.choose(encoder).model
    head = Head("CausalLM" if causal else "MaskedLM", True, None, "tanh", 0.0)
    kind, *_ = choose(encoder, {}, head, {"vocab_size": len(dictionary)}, dictionary)
    return kind.model_class(head.kind).__name__


def exports() -> str:
    """Return the class of each row of :data:`EXPORTS`, and what can load it."""
    lines = []
    for row in EXPORTS:
        name = exported_class(row)
        own = name.startswith("Posenc")
        begins = name.rpartition("For")[0] or name
        served = ["yes" if begins in names else "–" for names in SERVERS.values()]
        old = "–" if begins in OF_5 else "yes"
        lines.append([f"`{row}`", f"`{name}`", "needed" if own else "no", old, *served])
    head = ("architecture and flags", "class", "remote code", "transformers 4.57", *SERVERS)
    return tabulate(lines, head, "github", disable_numparse=True)


TABLES = {
    "examples/huggingface/README.md": {"exports": exports},
    "README.md": {"main schemes": main_schemes},
    "docs/compare.md": {
        "comparison": comparison,
        "claims": claims,
        "language models": language_models,
        "language model claims": language_model_claims,
        "ladder: budget": ladder_budget,
        "ladder: size": ladder_size,
        "ladder: length": ladder_length,
        "ladder: cause": ladder_cause,
        "initial values": by_initial_scale,
        "fine-tuning": fine_tuning,
    },
    "docs/length.md": {"lengths": by_length},
    "docs/schemes.md": {"schemes": schemes},
    "fairseq_posenc/core/schemes/FIDELITY.md": {"order task": order_task},
}


def renewed(file: str) -> str:
    """Return the text of a file with new tables."""
    text = (ROOT / file).read_text(encoding="utf-8")
    for name, table in TABLES[file].items():
        start, end = f"<!-- {name}: written by `python scripts/write_tables.py` -->\n", f"<!-- /{name} -->\n"
        before, rest = text.split(start)
        text = f"{before}{start}\n{table()}\n\n{end}{rest.split(end)[1]}"
    return text


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trained", type=Path, metavar="OUT", help="the output folder of a comparison")
    if (out := parser.parse_args().trained) is not None:
        draw_trained(out, TRAINED)
    else:
        for file in TABLES:
            (ROOT / file).write_text(renewed(file), encoding="utf-8")
        plan, runs, rows = comparison_of("english")
        save(charts.overview(rows), PICTURE)
        of_lengths = ladder("length")
        save(tables.start_against_length(of_lengths[0], tables.start_points(*of_lengths)), STARTS)
        with TemporaryDirectory() as folder:
            ownership.claim(Path(folder), "compare")
            report.report(plan, rows, runs, verdicts()).write(Path(folder))
            PAGE.write_bytes((Path(folder) / engine_report.PAGE).read_bytes())
