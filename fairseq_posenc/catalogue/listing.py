"""The architectures as rows made from the live modules, and the forms in which they are shown."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import shutil
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from tabulate import tabulate

from ..attention import BACKENDS
from ..errors import InputError, flag_of, nearest
from ..families import ROBERTA, Architecture, architectures, expressions
from ..schemes import REGISTRY, Positions, option_fields
from .build import PROPERTIES, count, positions_of
from .equations import equation_of, source_of
from .properties import differing

COLUMNS = ("architecture", "positions", "equation", "source", *PROPERTIES, "backends", "parameters")
NARROWEST = 16  # an equation's column, however narrow the terminal
MARGIN = 26  # where the right-hand side of a card begins
Row = dict[str, Any]


def find(name: str | None = None, properties: Sequence[str] = ()) -> list[Row]:
    """The architecture or positions of that name, or else all with it in their name, if they have the properties.

    All those of RoBERTa at base size; by its whole name, an architecture of any family and size.

    Raises:
        InputError: there is none; the message names the nearest.
    """
    asked = architectures().get(name or "")
    if asked is not None and asked.expression is not None:
        rows = [describe(asked.name, _positions(asked))]
    else:
        rows = [describe(architecture, positions_of(expression)) for architecture, expression in _matching(name)]
    rows = [row for row in rows if all(row[property_] for property_ in properties)]
    if not rows:
        raise InputError(f"no scheme is {' and '.join(properties)}" + (f" of those with {name} in their name" if name else ""))
    return rows


def _positions(architecture: Architecture) -> Positions:
    options = architecture.options
    return positions_of(
        options["positions"],
        layers=options["encoder_layers"],
        dim=options["encoder_embed_dim"],
        heads=options["encoder_attention_heads"],
        embed_dim=options.get("embedding_size"),
    )


def _matching(name: str | None) -> Sequence[tuple[str, str]]:
    """Architectures, or "", and their expressions."""
    known = {ROBERTA.architecture(scheme): expression for scheme, expression in expressions().items()}
    named = {part for expression in known.values() for part in expression.split("+")}
    pairs = [*known.items(), *(("", scheme) for scheme in REGISTRY if scheme not in named)]
    if name is None:
        return pairs
    found = _exact(name, pairs) or [pair for pair in pairs if name in f"{pair[0]} {pair[1]}"]
    if not found:
        near = nearest(name, [*expressions(), *REGISTRY])
        raise InputError(f"there is no {name}. Similar are {', '.join(dict.fromkeys(near)) or ', '.join(expressions())}")
    return found


def _exact(name: str, pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    for architecture, expression in pairs:
        if architecture and name == _scheme(architecture):
            return [(architecture, expression)]
    if not set(name.split("+")) <= REGISTRY.keys():
        return []
    return [(next((architecture for architecture, expression in pairs if expression == name), ""), name)]


def _scheme(architecture: str) -> str:
    """The scheme in an architecture's name."""
    return architectures()[architecture].scheme


def describe(architecture: str, positions: Positions) -> Row:
    """One row: column -> value."""
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
        "translation-invariant": all(scheme.translation_invariant for scheme in schemes),
        "parallelisable": all(scheme.parallelisable for scheme in schemes),
        "interpretable": all(scheme.interpretable for scheme in schemes),
        "backends": [name for name, backend in BACKENDS.items() if backend.objection(positions.probe()) is None],
        "parameters": parameters,
    }


def as_table(rows: Sequence[Row]) -> str:
    """Names, equations and parameters, fitted to the terminal. Positions are shown if the name does not tell them."""
    names = [_scheme(row["architecture"]) if row["architecture"] else "–" for row in rows]
    for i, row in enumerate(rows):
        if names[i] != row["positions"]:
            names[i] += f"\n= {row['positions']}"
    counts = [_text(row["parameters"]) for row in rows]
    header = [ROBERTA.architecture("…"), "parameters"]
    others = tabulate([*zip(names, counts, strict=True)], header, "simple", disable_numparse=True)
    width = max(NARROWEST, shutil.get_terminal_size().columns - len(others.splitlines()[1]) - 2)  # the rule's; 2 for the gap
    equations = ["\n".join(line for part in row["equation"].split("; ") for line in textwrap.wrap(part, width)) for row in rows]
    cells = [*zip(names, equations, counts, strict=True)]
    return tabulate(
        cells, [header[0], "equation", header[1]], "simple", disable_numparse=True, colalign=("left", "left", "right")
    )


def as_markdown(rows: Sequence[Row], columns: Sequence[str] = COLUMNS) -> str:
    """A table for a Markdown file, where | ends a cell. One that a paper has otherwise is "theirs / here", with a note."""
    cells: list[list[str]] = []
    notes: list[str] = []
    for row in rows:
        texts = {column: _text(row[column]).replace("|", "∣") for column in columns}
        for name, reason in differing(row):
            if name in texts:
                notes.append(f"{len(notes) + 1}. {row['positions']}, {name}; {reason}.")
                texts[name] = f"{_text(not row[name])} / {texts[name]} ({len(notes)})"
        cells.append(list(texts.values()))
    table = tabulate(cells, columns, "github", disable_numparse=True)
    return "\n".join([table, "", "The paper / here:", "", *notes]) if notes else table


def as_csv(rows: Sequence[Row]) -> str:
    """A header and one line each; booleans are true and false, backends are separated by spaces."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow(
            str(value).lower() if isinstance(value, bool) else " ".join(value) if isinstance(value, list) else value
            for value in row.values()
        )
    return stream.getvalue().rstrip("\n")


def as_json(rows: Sequence[Row]) -> str:
    """A list of objects."""
    return json.dumps(rows, indent=1, ensure_ascii=False)


def card(row: Row) -> str:
    """Everything about one row, and the options of its schemes, fitted to the terminal."""
    facts = {name: _text(row[name]) for name in COLUMNS[2:]}
    for name, reason in differing(row):
        facts[name] += f" ({_text(not row[name])} in {reason})"
    known, positions = option_fields(), positions_of(row["positions"])
    return "\n".join(
        [
            f"{row['architecture'] or 'no architecture of its own'}: --positions {row['positions']}",
            "",
            *(_entry(*fact) for fact in facts.items()),
            "",
            *(_entry(flag_of(name), _help(known[name], value)) for name, value in positions.effective_options.items()),
        ]
    )


def _entry(name: str, text: str) -> str:
    width = max(2 * MARGIN, shutil.get_terminal_size().columns)
    return textwrap.fill(f"  {name:{MARGIN - 2}}{text}", width, subsequent_indent=" " * MARGIN, break_on_hyphens=False)


def _help(declared: dataclasses.Field, default: Any) -> str:
    choices = f" ({'|'.join(declared.metadata['choices'])})" if "choices" in declared.metadata else ""
    return f"{declared.metadata['help']}{choices} (default: {_default(default)})"


def _default(value: Any) -> str:
    if isinstance(value, dict):  # schemes that choose differently
        return ", ".join(f"{_default(own)} for {scheme}" for scheme, own in value.items())
    return str(value).lower() if isinstance(value, bool) else str(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "✓" if value else "–"
    if isinstance(value, list):
        return " ".join(value)
    return f"{value:,}" if isinstance(value, int) else value


FORMS: dict[str | None, Callable[[Sequence[Row]], str]] = {
    None: as_table,
    "markdown": as_markdown,
    "csv": as_csv,
    "json": as_json,
}
