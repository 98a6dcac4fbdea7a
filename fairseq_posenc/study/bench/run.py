"""Chooses the models and lengths to time from the flags, times them, and writes the results."""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.commands import show
from ...base.errors import InputError, require_known
from ...base.record import FORMAT, versions
from ...core.attention import BACKENDS
from ...core.families import Family, expressions, known_schemes, scheme_of
from ...core.schemes import parse
from ..engine.grid import BEGUN, Cell, Progress
from ..engine.report import Report, Table
from ..engine.study import Study
from ..measure.work import Machine, Shape, shapes
from . import ENCODERS, SIZES, STOCK, peers
from .steps import ATTENTION, DISAGREES, FAIRSEQS, STEP, TOO_LARGE, Model, Steps

if TYPE_CHECKING:
    from .command import Options


def bench(options: Options) -> None:
    """Time what is not timed yet, and write and print all results."""
    machine = Machine.of(options.device, options.bf16)
    family = ENCODERS[options.family]
    sizes = family.sizes[SIZES[options.size]]
    dropout = family.options.get("attention_dropout", Shape.dropout)
    shortest = Shape(options.layers, sizes["encoder_embed_dim"], sizes["encoder_ffn_embed_dim"], sizes["encoder_attention_heads"],
                  options.vocab_size, min(options.tokens), options.batch_size, dropout)  # fmt: skip
    lengths = shapes(shortest, sorted(set(options.tokens)))
    stock = options.baseline in (STOCK, FAIRSEQS)
    baseline = Model(FAIRSEQS) if stock else _of_scheme(family, "--baseline", options.baseline, "auto")
    common = {**machine.describe(), "baseline": baseline.name, "repeats": options.repeats}
    cells = {
        Cell(
            {"model": model.name, "backend": model.backend or "own", "tokens": shape.tokens},
            {size: value for size, value in vars(shape).items() if size != "tokens"} | common,
        ): (model, shape)
        for model, shape in _rows(options, lengths, baseline)
    }
    steps = Steps(baseline, machine, options.repeats)

    def run(cell: Cell, folder: Path, progress: Progress) -> dict[str, Any]:
        result = steps(*cells[cell], progress)
        return {**result, "status": BEGUN} if result["refused"] else result  # the same command tries it again

    with tempfile.TemporaryDirectory() as temporary, Study.open(options.out or Path(temporary), "bench") as study:
        results = study.run([*cells], run)
        memory = "peak MiB" if machine.on_gpu else "kept for backward, MiB"
        table, title = _table(results, options.baseline, memory), _title(options, lengths, machine)
        data = {"format": FORMAT, "title": title, "machine": machine.describe(), "versions": versions(), "results": results}
        show(Report("Time and memory of each scheme", [title, table], data, results).write(study.out))
    refused = [result for result in results if result["refused"]]
    for result in refused:
        ran = f" ({result['ran']})" if result["ran"] else ""
        print(f"{result['model']}{ran} at n = {result['tokens']} was not timed: {result['refused']}", file=sys.stderr)
    wrong = any(result["refused"].startswith(DISAGREES) for result in refused)
    if wrong or (options.schemes is not None and any(result["refused"] != TOO_LARGE for result in refused)):
        raise InputError("not all rows could be timed: see above")


def _rows(options: Options, lengths: Sequence[Shape], baseline: Model) -> Iterable[tuple[Model, Shape]]:
    """Return by length: the baseline, peers, and schemes by backends, each once; raises InputError if one has no meaning."""
    schemes, backends, family = options.schemes or known_schemes(), options.attention_backend, ENCODERS[options.family]
    require_known("--attention-backend", backends, ["auto", *BACKENDS])
    require_known("--peers", options.peers, peers.PEERS)
    if options.peers:
        import transformers  # noqa: F401 - fails now rather than after minutes
    models = [_of_scheme(family, "--schemes", name, backend) for name, backend in itertools.product(schemes, backends)]
    # The baseline is built once per length.
    return dict.fromkeys((model, shape) for shape in lengths for model in (baseline, *map(Model, options.peers), *models))


def _of_scheme(family: Family, flag: str, name: str, backend: str) -> Model:
    """Return the model of an architecture's scheme or of an expression, or raise InputError if it is neither."""
    scheme = "".join(scheme_of(name).split())
    try:
        parse(expression := family.expression(scheme))
    except InputError as error:
        raise InputError(f"{flag} {name}: {error}") from None
    return Model(family.architecture(scheme) if scheme in expressions() else scheme, expression, backend, family.model)


def _title(options: Options, lengths: Sequence[Shape], machine: Machine) -> str:
    facts = machine.describe()
    parts = [
        f"{options.layers} layers, D = {lengths[0].dim}, {lengths[0].symbols} symbols",
        f"batch {', '.join(f'{shape.sequences} × {shape.tokens}' for shape in lengths)} tokens",
        f"{facts['device']} ({machine.device}), {facts['dtype']}",
        f"threads: {facts['threads']}" if "threads" in facts else "",
        f"PyTorch {facts['torch']}, median (range) of {options.repeats}",
    ]
    return ", ".join(filter(None, parts))


def _table(results: Sequence[Mapping[str, Any]], baseline: str, memory: str) -> Table:
    """Return one row per result that was timed: of times and ratios the medians, with the range of the ratios in brackets.

    Args:
        results: of :class:`.steps.Steps`.
        baseline: what ratios are to.
        memory: the title of the column of memory.
    """
    head = ["architecture", "backend", "n", "attention, ms", "÷ plain", "ms per step", f"÷ {baseline}", "tokens/s", memory]
    rows = []
    for result in (result for result in results if result["timings"]):
        attention, step = (result["timings"].get(part) for part in (ATTENTION, STEP))
        further = ["", ""] if step is None else [f"{step['tokens_per_second']:,.0f}", _number(step["mebibytes"])]
        rows.append([result["model"], result["ran"], f"{result['tokens']:,}", *_times(attention), *_times(step), *further])
    return Table(head, rows)


def _times(timing: Mapping[str, Any] | None) -> tuple[str, str]:
    if timing is None:
        return "", ""
    return _number(timing["milliseconds"]["median"]), "{median:.2f} ({min:.2f}–{max:.2f})".format(**timing["ratio"])


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
