"""From the command's flags to rows: what is timed, how, and what is written."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import torch

from .. import ownership
from ..attention import BACKENDS, choose
from ..errors import InputError
from ..families import ROBERTA, expressions
from ..files import atomic_write
from ..models.flags import naming_flags
from ..output import show
from ..runs.grid import Cell, Progress, run_grid
from ..runs.record import versions, write_json
from . import INSTALLED, MAKER, SIZES, STOCK, peers, report, training
from .attention import call_of, positions_of
from .machine import Machine
from .shape import Shape, shapes
from .step import FAIRSEQS
from .timers import Contender, Steps, Trainings

FEW = 16
"""Tokens with which a scheme is built to see whether it can be; all of them could take gigabytes."""


def bench(args: argparse.Namespace) -> None:
    """Do what is not done yet, and write and print all of it.

    Raises:
        InputError, OSError: as :func:`.command.main`.
    """
    machine = Machine.of(args)
    sizes = SIZES[args.size]
    model = Shape(args.layers, sizes["encoder_embed_dim"], sizes["encoder_ffn_embed_dim"], sizes["encoder_attention_heads"],
                  args.vocab_size, args.tokens[0], args.batch_size)  # fmt: skip
    lengths = shapes(model, args.tokens)
    baseline = _baseline(args.baseline)
    rows = _rows(args, lengths, baseline, machine)
    if args.train and args.updates < training.least_updates():
        raise InputError(f"--updates {args.updates}: at least {training.least_updates()} are needed")
    if args.plot:
        from ..analysis.figure import require_matplotlib

        require_matplotlib()  # now, not after minutes
    with _folder(args.out, [] if args.data is None else [("--data", args.data)]) as (out, locks):
        measure: Steps | Trainings
        if args.train:
            measure = Trainings(baseline, machine, args, args.data or _generate(out, lengths, args.updates), locks)
        else:
            measure = Steps(baseline, machine, args.repeats)
        by_key = {_key(*row): row for row in rows}
        cells = [Cell(dict(key), _configuration(args, shape, baseline, machine)) for key, (_, shape) in by_key.items()]

        def run(cell: Cell, folder: Path, progress: Progress) -> dict[str, Any]:
            return measure(*by_key[tuple(cell.key.items())], folder, progress)

        results = cast("list[report.Result]", run_grid(cells, out, run, report.RECORDS))
        title = _title(args, lengths, machine)
        content = report.table(results, args.baseline, measure.memory, args.markdown)
        if args.out is not None:
            _write(out, title, machine, results, content)
            if args.plot:
                from ..analysis.figure import save
                from .figure import figure

                save(figure(results, title, measure.memory), out / "results.png")
    show(f"{title}\n{content}")
    for refusal in report.refusals(results):
        print(refusal, file=sys.stderr)
    if any((result["refused"] or "").startswith(report.DISAGREES) for result in results):
        raise InputError("not all backends agree with the reference: see above. Those rows were not timed.")


def _rows(
    args: argparse.Namespace, lengths: Sequence[Shape], baseline: Contender, machine: Machine
) -> list[tuple[Contender, Shape]]:
    """By length: the baseline, peers, and schemes by backends.

    Raises:
        InputError: an unknown name, or a scheme that was named cannot run in the only backend.
    """
    known = expressions()
    for name in args.schemes or []:
        if name not in known:
            raise InputError(f"--schemes: there is no {ROBERTA.architecture(name)}; there are {', '.join(known)}")
    for name in args.attention_backend:
        if name not in ("auto", *BACKENDS):
            raise InputError(f"--attention-backend {name}: there are auto, {', '.join(BACKENDS)}")
    others = [name for name, peer in peers.PEERS.items() if peer.installed] if args.peers == [INSTALLED] else args.peers
    peers.require_installed(others)
    rows, left_out = [], []
    for shape in lengths:  # which have one baseline after the other
        rows += [(contender, shape) for contender in (baseline, *map(Contender, others))]
        for name, backend in itertools.product(args.schemes or known, args.attention_backend):
            try:
                _require_runnable(known[name], backend, shape, machine)
            except InputError as error:
                if args.schemes is not None and len(args.attention_backend) == 1:
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
        raise InputError(f"--baseline {name}: there are {STOCK} (fairseq's), {', '.join(expressions())}")
    return Contender(ROBERTA.architecture(name), expressions()[name], "auto")


def _key(contender: Contender, shape: Shape) -> tuple[tuple[str, str | int | float], ...]:
    return (("model", contender.model), ("backend", contender.backend or "own"), ("tokens", shape.tokens))


def _configuration(args: argparse.Namespace, shape: Shape, baseline: Contender, machine: Machine) -> dict[str, Any]:
    """Everything that decides a cell's result besides its key."""
    data = None if args.data is None else str(args.data.absolute())
    own = {"updates": args.updates, "flags": args.train_flags, "data": data} if args.train else None
    sizes = {name: value for name, value in dataclasses.asdict(shape).items() if name != "tokens"}
    return {
        **sizes,
        **machine.describe(),
        "peak": machine.peak,
        "baseline": baseline.model,
        "repeats": args.repeats,
        "train": own,
    }


@contextlib.contextmanager
def _folder(out: Path | None, inputs: ownership.Inputs) -> Iterator[tuple[Path, list[int]]]:
    """Where the grid is, and its lock's file descriptor; without ``--out``, a folder that goes in the end."""
    if out is None:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder), []
        return
    with ownership.output(out, MAKER, inputs) as lock:
        yield out, [lock]


def _generate(out: Path, lengths: Sequence[Shape], updates: int) -> Path:
    """Data for the longest run, made once."""
    symbols, tokens = lengths[0].symbols, (updates + 1) * max(shape.batch for shape in lengths)
    data = out / f"data-{symbols}-{tokens}"
    if not (data / "train.idx").exists():
        training.write_data(data, symbols, tokens)
    return data.absolute()


def _write(out: Path, title: str, machine: Machine, results: Sequence[report.Result], content: str) -> None:
    write_json(out / "results.json", {"title": title, "machine": machine.describe(), "versions": versions(), "results": results})
    with atomic_write(out / "results.md") as stream:
        stream.write(f"{title}\n\n{content}\n")


def _title(args: argparse.Namespace, lengths: Sequence[Shape], machine: Machine) -> str:
    """What the table is of."""
    facts = machine.describe()
    return ", ".join(
        [
            *([f"fairseq-train, {args.updates} updates"] if args.train else []),
            f"{args.layers} layers",
            f"D = {lengths[0].dim}",
            f"{args.vocab_size} symbols",
            f"batch {', '.join(f'{shape.sequences} × {shape.tokens}' for shape in lengths)} tokens",
            f"{facts['device']} ({machine.device})",
            facts["dtype"],
            *([f"threads: {facts['threads']}"] if "threads" in facts else []),
            f"PyTorch {facts['torch']}",
            f"median (range) of {args.repeats}",
        ]
    )
