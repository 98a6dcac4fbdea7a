"""The architectures as rows made from the live modules, and the forms in which they are shown."""

import json
import re
import shutil
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from tabulate import tabulate
from torch import nn

from ..attention import BACKENDS
from ..errors import InputError, flag_of, flag_value, nearest
from ..families import ROBERTA, architectures, expressions
from ..schemes import REGISTRY, Positions, Settings, build, option_fields, parse, scheme_options
from .equations import equation_of, source_of
from .properties import PROPERTIES, differing

COLUMNS = ("architecture", "positions", "equation", "source", *PROPERTIES, "backends", "parameters")
MIN_WIDTH = 16  # of the column of equations
MARGIN = 26  # where the right-hand side of a card begins
Row = dict[str, Any]


def positions_of(
    expression: str,
    n: int = 512,
    dim: int = 768,
    heads: int = 12,
    options: Mapping[str, Any] | None = None,
    embed_dim: int | None = None,
    layers: int = 12,
) -> Positions:
    """Return the positions of a model for sequences of ``n`` tokens, as the encoder would make them, without memory.

    The model has base size by default. ``embed_dim`` is the width of the word embeddings, if that is not ``dim``.
    """
    with torch.device("meta"):
        settings = Settings(layers=layers, heads=heads, dim=dim, max_positions=n, separator=2, embed_dim=embed_dim)
        return build(expression, settings, options)


def count(module: nn.Module) -> int:
    """Return the number of parameters."""
    return sum(parameter.numel() for parameter in module.parameters())


def find(name: str | None = None, properties: Sequence[str] = ()) -> list[Row]:
    """Return the rows of the architecture or positions of that name, or else of all with it in their name.

    They are those of RoBERTa at base size; by its whole name, an architecture of any family and size.

    Args:
        name: all, if it is None.
        properties: those that each row must have, of :data:`PROPERTIES`.

    Raises:
        InputError: there is none; the message names the nearest.
    """
    architecture = architectures().get(name or "")
    if architecture is not None and architecture.expression is not None:
        options, sizes = architecture.options, ("layers", "embed_dim", "attention_heads")
        layers, dim, heads = (options[f"encoder_{size}"] for size in sizes)
        embed_dim = options.get("embedding_size")
        positions = positions_of(options["positions"], layers=layers, dim=dim, heads=heads, embed_dim=embed_dim)
        rows = [describe(architecture.name, positions)]
    else:
        rows = [describe(arch, positions_of(expression)) for arch, expression in _matching(name)]
    rows = [row for row in rows if all(row[property_] for property_ in properties)]
    if not rows:
        raise InputError(f"no scheme is {' and '.join(properties)}" + (f" of those with {name} in their name" if name else ""))
    return rows


def _matching(name: str | None) -> Sequence[tuple[str, str]]:
    """Return the names of architectures, or "", and their expressions."""
    known = expressions()
    parts = {scheme.name for expression in known.values() for scheme in parse(expression)}
    pairs = [(ROBERTA.architecture(scheme), expression) for scheme, expression in known.items()]
    if name is not None and name in known:
        return [(ROBERTA.architecture(name), known[name])]
    if name is not None and set(re.findall(r"(?:^|[+|]) *(\w+)", name)) <= REGISTRY.keys():
        return [(next((architecture for architecture, expression in pairs if expression == name), ""), name)]
    pairs += [("", scheme) for scheme in REGISTRY if scheme not in parts]
    matching = [pair for pair in pairs if name is None or name in f"{pair[0]} {pair[1]}"]
    if not matching:
        near = nearest(name or "", [*known, *REGISTRY])
        raise InputError(f"there is no {name}. Similar are {', '.join(dict.fromkeys(near)) or ', '.join(known)}")
    return matching


def describe(architecture: str, positions: Positions) -> Row:
    """Return one row: column -> value."""
    schemes, settings = positions.schemes, positions.settings
    parameters = count(positions)
    return {
        "architecture": architecture,
        "positions": positions.expression,
        "equation": equation_of(positions),
        "source": source_of(positions),
        "inductive": positions.inductive,
        "data-driven": any(scheme.data_driven for scheme in schemes),
        "parameter-efficient": parameters < settings.max_positions * settings.embedding_dim,
        "translation-invariant": positions.terms_are_invariant and all(scheme.translation_invariant for scheme in schemes),
        "parallelisable": all(scheme.parallelisable for scheme in schemes),
        "interpretable": all(scheme.interpretable for scheme in schemes),
        "backends": [
            name for name, backend in BACKENDS.items() if all(backend.objection(probe) is None for probe in positions.probes())
        ],
        "parameters": parameters,
    }


def scheme_name(row: Row) -> str:
    """Return the scheme's name in those of architectures, or its expression if there is no architecture."""
    return architectures()[row["architecture"]].scheme if row["architecture"] else row["positions"]


def as_table(rows: Sequence[Row]) -> str:
    """Return names, equations and parameters, fitted to the terminal, and the positions that a name does not contain."""
    names = []
    for row in rows:
        name = scheme_name(row) if row["architecture"] else "–"
        names.append(name if name == row["positions"] else f"{name}\n= {row['positions']}")
    header = [ROBERTA.architecture("…"), "equation", "parameters"]

    def table(equations: Sequence[str]) -> str:
        cells = [(name, equation, text_of(row["parameters"])) for name, equation, row in zip(names, equations, rows, strict=True)]
        return tabulate(cells, header, "simple", disable_numparse=True, colalign=("left", "left", "right"))

    others = len(table(["=" * MIN_WIDTH] * len(rows)).splitlines()[1]) - MIN_WIDTH
    width = max(MIN_WIDTH, shutil.get_terminal_size().columns - others)
    return table(["\n".join(line for part in row["equation"].split("; ") for line in textwrap.wrap(part, width)) for row in rows])


def as_markdown(rows: Sequence[Row], columns: Sequence[str] = COLUMNS) -> str:
    """Return a table for a Markdown file. A property that a paper has otherwise is "theirs / here", with a note."""
    cells: list[list[str]] = []
    notes: list[str] = []
    for row in rows:
        texts = {column: text_of(row[column]).replace("|", "∣") for column in columns}
        for name, reason in differing(row):
            if name in texts:
                notes.append(f"{len(notes) + 1}. {row['positions']}, {name}; {reason}.")
                texts[name] = f"{text_of(not row[name])} / {texts[name]} ({len(notes)})"
        cells.append(list(texts.values()))
    table = tabulate(cells, columns, "github", disable_numparse=True)
    return "\n".join([table, "", "The paper / here:", "", *notes]) if notes else table


def card(row: Row) -> str:
    """Return everything about one row, and the options of its schemes, fitted to the terminal."""
    facts = {name: text_of(row[name]) for name in COLUMNS[2:]}
    for name, reason in differing(row):
        facts[name] += f" ({text_of(not row[name])} in {reason})"
    title = f"{row['architecture'] or 'no architecture of its own'}: --positions {row['positions']}"
    return "\n".join([title, "", *map(_entry, facts.items()), "", *map(_entry, options_of(row["positions"]).items())])


def options_of(expression: str) -> dict[str, str]:
    """Return the meaning of each flag that applies to an expression, with its choices and its default."""
    options, positions = {}, positions_of(expression)
    own = {name: getattr(scheme.options, declared.name) for scheme in positions.schemes
           for name, declared in scheme_options(type(scheme)).items()}  # fmt: skip
    effective = positions.effective_options  # without those that the expression gives, and some of those that are None
    shown = {name: value for name, value in own.items() if value is None or name in effective}
    for name, default in {**shown, **effective}.items():
        metadata = option_fields()[name].metadata
        choices = f" ({'|'.join(metadata['choices'])})" if "choices" in metadata else ""
        options[flag_of(name)] = f"{metadata['help']}{choices} (default: {_default(default)})"
    return options


def _entry(entry: tuple[str, str]) -> str:
    name, text = entry
    width = max(2 * MARGIN, shutil.get_terminal_size().columns)
    return textwrap.fill(f"  {f'{name} ':{MARGIN - 2}}{text}", width, subsequent_indent=" " * MARGIN, break_on_hyphens=False)


def _default(value: Any) -> str:
    if isinstance(value, dict):  # schemes whose defaults differ
        return ", ".join(f"{_default(of_scheme)} for {scheme}" for scheme, of_scheme in value.items())
    return "–" if value is None else flag_value(value)


def text_of(value: Any) -> str:
    """Return a cell of a table."""
    if isinstance(value, bool):
        return "✓" if value else "–"
    if isinstance(value, list):
        return " ".join(value)
    return f"{value:,}" if isinstance(value, int) else value


FORMS: dict[str, Callable[[Sequence[Row]], str]] = {
    "markdown": as_markdown,
    "json": partial(json.dumps, indent=1, ensure_ascii=False),
}
