"""From the command's flags to rows: what is timed, how, and what is written."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from .. import ownership
from ..attention import BACKENDS, choose
from ..commands import show
from ..errors import InputError
from ..families import ROBERTA, expressions
from ..files import atomic_write
from ..models.option_set import naming_flags
from ..runs.grid import Cell, Progress, run_grid
from ..runs.record import versions, write_json
from . import peers, report, training
from .attention import call_of, positions_of
from .flags import INSTALLED, SIZES, STOCK, Options
from .step import FAIRSEQS
from .steps import DISAGREES, Contender, Steps
from .work import Machine, Shape

FEW = 16  # tokens with which a scheme is built to see whether it can be; all of them could take gigabytes


def bench(options: Options) -> None:
    """Do what is not done yet, and write and print all of it.

    Raises:
        InputError, OSError: as :func:`.command.main`.
    """
    machine = Machine.of(options)
    sizes, tokens = SIZES[options.size], sorted({*options.tokens})
    model = Shape(options.layers, sizes["encoder_embed_dim"], sizes["encoder_ffn_embed_dim"], sizes["encoder_attention_heads"],
                  options.vocab_size, tokens[0], options.batch_size)  # fmt: skip
    lengths = [dataclasses.replace(model, tokens=n, sequences=max(1, options.batch_size * tokens[0] // n)) for n in tokens]
    baseline = _baseline(options.baseline)
    rows = _rows(options, lengths, baseline, machine)
    if options.plot:
        from ..plotting import require_matplotlib

        require_matplotlib()  # now, not after minutes
    memory = "peak MiB" if machine.on_gpu else "process, MiB" if options.train else "kept for backward, MiB"
    with _folder(options.out, [] if options.data is None else [("--data", options.data)]) as (out, locks):
        by_key = {(row.model, row.backend or "own", shape.tokens): (row, shape) for row, shape in rows}
        cells = [
            Cell(dict(zip(("model", "backend", "tokens"), key, strict=True)), _configuration(options, shape, baseline, machine))
            for key, (_, shape) in by_key.items()
        ]
        steps = Steps(baseline, machine, options.repeats)
        data = (options.data or _generate(out, lengths, options.updates)) if options.train else Path()
        trainings = training.Trainings(baseline, machine, options, data, locks)

        def run(cell: Cell, folder: Path, progress: Progress) -> dict[str, Any]:
            contender, shape = by_key[tuple(cell.key.values())]  # type: ignore[index]
            return trainings(contender, shape, folder, progress) if options.train else steps(contender, shape, progress)

        results = run_grid(cells, out, run)
        title = _title(options, lengths, machine)
        content = report.table(results, options.baseline, memory, options.markdown)
        if options.out is not None:
            facts = {"title": title, "machine": machine.describe(), "versions": versions(), "results": results}
            write_json(ownership.own(out / "results.json"), facts)
            with atomic_write(ownership.own(out / "results.md")) as stream:
                stream.write(f"{title}\n\n{content}\n")
        if options.plot:
            from ..plotting import save

            save(report.figure(results, title, memory), ownership.own(out / "results.png"))
    show(f"{title}\n{content}")
    refused = [result for result in results if result["refused"]]
    for result in refused:
        ran = f" ({result['ran']})" if result["ran"] else ""
        print(f"{result['model']}{ran} at n = {result['tokens']} was not timed: {result['refused']}", file=sys.stderr)
    if any(result["refused"].startswith(DISAGREES) for result in refused):
        raise InputError("not all backends agree with the reference: see above. Those rows were not timed.")


def _rows(options: Options, lengths: Sequence[Shape], baseline: Contender, machine: Machine) -> list[tuple[Contender, Shape]]:
    """By length: the baseline, peers, and schemes by backends.

    Raises:
        InputError: an unknown name, or a scheme that was named cannot run in the only backend.
    """
    known = expressions()
    for name in options.schemes:
        if name not in known:
            raise InputError(f"--schemes {name}: name some of {', '.join(known)}")
    for name in options.attention_backend:
        if name not in ("auto", *BACKENDS):
            raise InputError(f"--attention-backend {name}: name some of auto, {', '.join(BACKENDS)}")
    others = [name for name, peer in peers.PEERS.items() if peer.installed] if options.peers == (INSTALLED,) else options.peers
    peers.require_installed(others)
    rows, left_out = [], []
    for shape in lengths:  # which have one baseline after the other
        rows += [(contender, shape) for contender in (baseline, *map(Contender, others))]
        for name, backend in itertools.product(options.schemes or known, options.attention_backend):
            try:
                _require_runnable(known[name], backend, shape, machine)
            except InputError as error:
                if options.schemes and len(options.attention_backend) == 1:
                    raise
                left_out.append(f"left out: {error}")  # because of the backend, or of what a user's own scheme needs
                continue
            rows.append((Contender(ROBERTA.architecture(name), known[name], backend), shape))
    for reason in dict.fromkeys(left_out):
        print(reason, file=sys.stderr)
    return rows


def _require_runnable(expression: str, backend: str, shape: Shape, machine: Machine) -> None:
    """Check one combination before anything is timed.

    Raises:
        InputError: the scheme cannot be built here, or the backend cannot run it.
    """
    with naming_flags():
        positions_of(expression, dataclasses.replace(shape, tokens=min(shape.tokens, FEW)))
        with torch.device("meta"):
            choose(backend, positions_of(expression, shape).probe(), call_of(shape, machine.device, machine.dtype))


def _baseline(name: str) -> Contender:
    if name == STOCK:
        return Contender(FAIRSEQS)
    if name not in expressions():
        raise InputError(f"--baseline {name}: name {STOCK} (fairseq's), or one of {', '.join(expressions())}")
    return Contender(ROBERTA.architecture(name), expressions()[name], "auto")


def _configuration(options: Options, shape: Shape, baseline: Contender, machine: Machine) -> dict[str, Any]:
    """Everything that decides a cell's result besides its key."""
    data = options.data and str(options.data.absolute())
    own = {"updates": options.updates, "flags": options.train_flags, "data": data} if options.train else None
    sizes = {name: value for name, value in dataclasses.asdict(shape).items() if name != "tokens"}
    return {
        **sizes,
        **machine.describe(),
        "peak": machine.peak,
        "baseline": baseline.model,
        "repeats": options.repeats,
        "train": own,
    }


@contextlib.contextmanager
def _folder(out: Path | None, inputs: ownership.Inputs) -> Iterator[tuple[Path, list[int]]]:
    """Where the grid is, and its lock's file descriptor; without ``--out``, a folder that goes in the end."""
    if out is None:
        with tempfile.TemporaryDirectory() as folder:
            ownership.claim(Path(folder), "bench")
            yield Path(folder), []
        return
    with ownership.output(out, "bench", inputs) as lock:
        yield out, [lock]


def _generate(out: Path, lengths: Sequence[Shape], updates: int) -> Path:
    """Data for the longest run, made once."""
    symbols, tokens = lengths[0].symbols, (updates + 1) * max(shape.batch for shape in lengths)
    data = out / f"data-{symbols}-{tokens}"
    if not (data / "train.idx").exists():
        training.write_data(data, symbols, tokens)
    return data.absolute()


def _title(options: Options, lengths: Sequence[Shape], machine: Machine) -> str:
    """The conditions of the table."""
    facts = machine.describe()
    parts = [
        f"fairseq-train, {options.updates} updates" if options.train else "",
        f"{options.layers} layers, D = {lengths[0].dim}, {options.vocab_size} symbols",
        f"batch {', '.join(f'{shape.sequences} × {shape.tokens}' for shape in lengths)} tokens",
        f"{facts['device']} ({machine.device}), {facts['dtype']}",
        f"threads: {facts['threads']}" if "threads" in facts else "",
        f"PyTorch {facts['torch']}, median (range) of {options.repeats}",
    ]
    return ", ".join(filter(None, parts))
