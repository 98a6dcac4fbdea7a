"""Chooses the models and lengths to time from the flags, times them, and writes the results."""

import contextlib
import dataclasses
import itertools
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import torch

from ...base import ownership
from ...base.commands import show
from ...base.errors import InputError, suggestion
from ...base.files import atomic_write
from ...base.record import versions, write_json
from ...core.attention import BACKENDS, choose
from ...core.families import Family, expressions, known_schemes, scheme_of
from ...core.schemes import parse
from ...plugin.options.option_set import field_errors_as_flags
from ..engine.grid import BEGUN, Cell, Progress, run_grid
from ..measure.work import Machine, Shape, shapes
from . import ENCODERS, MAKER, SIZES, STOCK, peers, results_table
from .attention import call_of, positions_of
from .flags import Options
from .steps import DISAGREES, FAIRSEQS, Contender, Steps

BUILT = 16  # tokens with which a scheme is built as a check; more could take gigabytes


def bench(options: Options) -> None:
    """Time what is not timed yet, and write and print all results."""
    machine = Machine.of(options.device, options.bf16)
    family = ENCODERS[options.family]
    sizes = family.sizes[SIZES[options.size]]
    dropout = family.options.get("attention_dropout", Shape.dropout)
    model = Shape(options.layers, sizes["encoder_embed_dim"], sizes["encoder_ffn_embed_dim"], sizes["encoder_attention_heads"],
                  options.vocab_size, min(options.tokens), options.batch_size, dropout)  # fmt: skip
    lengths = shapes(model, sorted(set(options.tokens)))
    stock = options.baseline in (STOCK, FAIRSEQS)
    baseline = Contender(FAIRSEQS) if stock else _of_scheme(family, "--baseline", options.baseline, "auto")
    rows = _rows(options, lengths, baseline, machine)
    memory = "peak MiB" if machine.on_gpu else "kept for backward, MiB"
    with contextlib.ExitStack() as stack:
        out = options.out or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(ownership.output(out, MAKER))
        by_key = {(row.model, row.backend or "own", shape.tokens): (row, shape) for row, shape in rows}
        cells = [
            Cell(dict(zip(("model", "backend", "tokens"), key, strict=True)),
                 _configuration(options, shape, baseline, machine))
            for key, (_, shape) in by_key.items()
        ]  # fmt: skip
        steps = Steps(baseline, machine, options.repeats)

        def run(cell: Cell, folder: Path, progress: Progress) -> dict[str, Any]:
            contender, shape = by_key[tuple(cell.key.values())]  # type: ignore[index]
            result = steps(contender, shape, progress)
            return {**result, "status": BEGUN} if result["refused"] else result  # the same command tries it again

        results = run_grid(cells, out, run)
        title = _title(options, lengths, machine)
        content = results_table.table(results, options.baseline, memory, options.markdown)
        if options.out is not None:
            facts = {"title": title, "machine": machine.describe(), "versions": versions(), "results": results}
            write_json(ownership.own(out / "results.json"), facts)
            with atomic_write(ownership.own(out / "results.md")) as stream:
                stream.write(f"{title}\n\n{content}\n")
    show(f"{title}\n{content}")
    refused = [result for result in results if result["refused"]]
    for result in refused:
        ran = f" ({result['ran']})" if result["ran"] else ""
        print(f"{result['model']}{ran} at n = {result['tokens']} was not timed: {result['refused']}", file=sys.stderr)
    if any(result["refused"].startswith(DISAGREES) for result in refused):
        raise InputError("not all backends agree with the reference: see above. Those rows were not timed.")


def _rows(options: Options, lengths: Sequence[Shape], baseline: Contender, machine: Machine) -> list[tuple[Contender, Shape]]:
    """Return by length: the baseline, peers, and schemes by backends; raises InputError if a named one cannot run."""
    schemes, backends, family = options.schemes or known_schemes(), options.attention_backend, ENCODERS[options.family]
    _require_known("--attention-backend", backends, ["auto", *BACKENDS])
    _require_known("--peers", options.peers, peers.PEERS)
    if options.peers:
        import transformers  # noqa: F401 - fails now rather than after minutes
    rows, left_out = [], []
    for shape in lengths:  # the baseline is built once per length
        rows += [(contender, shape) for contender in (baseline, *map(Contender, options.peers))]
        for name, backend in itertools.product(schemes, backends):
            contender = _of_scheme(family, "--schemes", name, backend)
            try:
                _require_runnable(contender, shape, machine)
            except InputError as error:
                if options.schemes is not None and len(backends) == 1:
                    raise
                left_out.append(f"left out: {error}")  # because of the backend, or of what a user's own scheme needs
                continue
            rows.append((contender, shape))
    for reason in dict.fromkeys(left_out):
        print(reason, file=sys.stderr)
    return rows


def _require_known(flag: str, names: Sequence[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise InputError(f"{flag} {name}: {suggestion(name, known)}they are {', '.join(known)}")


def _of_scheme(family: Family, flag: str, name: str, backend: str) -> Contender:
    """Return the model of an architecture's scheme or of an expression, or raise InputError if it is neither."""
    scheme = "".join(scheme_of(name).split())
    try:
        parse(expression := family.expression(scheme))
    except InputError as error:
        raise InputError(f"{flag} {name}: {error}") from None
    return Contender(family.architecture(scheme) if scheme in expressions() else scheme, expression, backend, family.model)


def _require_runnable(contender: Contender, shape: Shape, machine: Machine) -> None:
    """Raise InputError if the scheme cannot be built here, or the backend cannot run it."""
    assert contender.expression is not None
    with field_errors_as_flags():
        positions_of(contender.expression, dataclasses.replace(shape, tokens=min(shape.tokens, BUILT)))
        with torch.device("meta"):
            probe = positions_of(contender.expression, shape).probes()[0]
            choose(contender.backend, probe, call_of(shape, machine.device, machine.dtype))


def _configuration(options: Options, shape: Shape, baseline: Contender, machine: Machine) -> dict[str, Any]:
    sizes = {name: value for name, value in dataclasses.asdict(shape).items() if name != "tokens"}
    others = {"baseline": baseline.model, "repeats": options.repeats}
    return {**sizes, **machine.describe(), **others}


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
