"""The architectures as rows made from the live modules, and the forms in which they are shown."""

import itertools
import re
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from ...base.errors import InputError, flag_of, flag_value, nearest
from ...core.attention import BACKENDS
from ...core.families import ROBERTA, architectures, expression_of, expressions, known_schemes
from ...core.schemes import REGISTRY, Positions, Settings, build, option_fields, scheme_options
from ...core.schemes.positions import PATTERNS
from . import PROPERTIES
from .equations import facts_of

COLUMNS = ("positions", "architecture", "family", "advice", "equation", "source", *PROPERTIES, "backends", "parameters")
FAMILIES = (
    "added to word embeddings", "rotations", "scalar biases by offset", "vectors by offset", "keys of neighbours",
    "scales of scores", "untied positions (TUPE)", "scalar factors by offset", "dynamics", "no products of words", "no positions",
)  # fmt: skip
"""In the order in which they are listed; others follow."""
NAMES = r"(?:^|[+|]) *(\w+)"
MIN_WIDTH = 16  # of the column of equations
MARGIN = 26  # where the right-hand side of a card begins
Row = dict[str, Any]


def positions_of(expression: str, n: int = 512, options: Mapping[str, Any] | None = None, **sizes: Any) -> Positions:
    """Return the positions of a model for sequences of ``n`` tokens, as the encoder would make them.

    The model has base size, but for ``sizes``: ``layers``, ``heads``, ``dim`` and ``embed_dim`` of :class:`Settings`.
    """
    base: dict[str, Any] = {"layers": 12, "heads": 12, "dim": 768}
    return build(expression, Settings(**base | sizes, max_positions=n, separator=2), options)


def count(module: nn.Module) -> int:
    """Return the number of parameters."""
    return sum(parameter.numel() for parameter in module.parameters())


def find(names: Sequence[str] = (), properties: Sequence[str] = ()) -> list[Row]:
    """Return the rows of architectures, schemes and sums, or of what has a name in its own, by families; by default, of all.

    They are those of RoBERTa at base size; by its whole name, an architecture of any family and size.

    Args:
        properties: those that each row must have, of :data:`PROPERTIES`.

    Raises:
        InputError: there is none; the message names the nearest.
    """
    rows = {row["architecture"] or row["positions"]: row for name in names or [""] for row in _rows_of(name)}
    matching = [row for row in rows.values() if all(row[property_] for property_ in properties)]
    if not matching:
        named = f" of those with {' or '.join(names)} in their name" if names else ""
        raise InputError(f"no scheme is {' and '.join(properties)}{named}")
    return matching if names else by_families(matching)


def by_families(rows: Sequence[Row]) -> list[Row]:
    """Return the same rows in the order of their families; within one, sums come last."""
    families = (*FAMILIES, *(row["family"] for row in rows))
    return sorted(rows, key=lambda row: (families.index(row["family"]), "+" in row["positions"], row["positions"]))


def _rows_of(name: str) -> list[Row]:
    architecture = architectures().get(name)
    if architecture is not None and architecture.expression is not None:
        options, sizes = architecture.options, ("layers", "embed_dim", "attention_heads")
        side = "encoder" if "encoder_layers" in options else "decoder"
        layers, dim, heads = (options[f"{side}_{size}"] for size in sizes)
        embed_dim = options.get("embedding_size")
        positions = positions_of(options["positions"], layers=layers, dim=dim, heads=heads, embed_dim=embed_dim)
        return [describe(architecture.name, positions)]
    known = {
        scheme: (ROBERTA.architecture(scheme) if scheme in expressions() else "", expression_of(scheme))
        for scheme in known_schemes()
    }
    if is_scheme(name):
        matching = [pair for scheme, pair in known.items() if name in (scheme, pair[1])] or [("", name)]
    else:
        matching = [pair for pair in known.values() if name in " ".join(pair)]
    if not matching:
        near = nearest(name, [*known, *REGISTRY])
        raise InputError(f"there is no {name}. Similar are {', '.join(dict.fromkeys(near)) or ', '.join(known)}")
    return [describe(arch, positions_of(expression)) for arch, expression in matching]


def is_scheme(name: str) -> bool:
    """Return whether a name is an architecture, a scheme or a sum."""
    parts = set() if name.endswith("/") else {*re.findall(NAMES, name)}  # the name of a folder
    return name in {*architectures(), *expressions(), *PATTERNS} or (bool(parts) and parts <= REGISTRY.keys())


def describe(architecture: str, positions: Positions) -> Row:
    """Return one row: column -> value."""
    schemes, settings = positions.schemes, positions.settings
    parameters, probes = count(positions), positions.probes()
    return {
        "positions": positions.expression,
        "architecture": architecture,
        **facts_of(positions),
        "inductive": positions.inductive,
        "data-driven": any(scheme.data_driven for scheme in schemes),
        "parameter-efficient": parameters < settings.max_positions * settings.embedding_dim,
        "translation-invariant": positions.terms_are_invariant and all(scheme.translation_invariant for scheme in schemes),
        "parallelisable": all(scheme.parallelisable for scheme in schemes),
        "interpretable": all(scheme.interpretable for scheme in schemes),
        "backends": [name for name, backend in BACKENDS.items() if all(backend.objection(probe) is None for probe in probes)],
        "parameters": parameters,
    }


def as_table(rows: Sequence[Row]) -> str:
    """Return what one types, the number of parameters, the equation and advice, by families, fitted to the terminal."""
    first, second = (max(len(text_of(row[column])) for row in rows) for column in ("positions", "parameters"))
    margin = first + second + 6
    width = max(MIN_WIDTH, shutil.get_terminal_size().columns - margin)
    lines = [f"{'--positions':{first + 2}}  {'parameters':>{second}}"]
    for family, group in itertools.groupby(by_families(rows), key=lambda row: row["family"]):
        lines += ["", family]
        for row in group:
            named = row["architecture"] and architectures()[row["architecture"]].scheme != row["positions"]
            parts = [*row["equation"].split("; "), row["advice"], f"--arch {row['architecture']}" if named else ""]
            wrapped = [line for part in parts for line in textwrap.wrap(part, width, break_on_hyphens=False)]
            lines += [f"  {row['positions']:{first}}  {text_of(row['parameters']):>{second}}  {wrapped[0]}"]
            lines += [" " * margin + line for line in wrapped[1:]]
    return "\n".join(lines)


def card(row: Row) -> str:
    """Return everything about one row, and the options of its schemes, fitted to the terminal."""
    facts = {name: text for name in COLUMNS[2:] if (text := text_of(row[name]))}
    title = f"{row['architecture'] or 'no architecture of its own'}: --positions {row['positions']}"
    return "\n".join([title, "", *map(_entry, facts.items()), "", *map(_entry, options_of(row["positions"]).items())])


def options_of(expression: str) -> dict[str, str]:
    """Return the meaning of each flag that applies to an expression, with its choices and its default."""
    options, positions = {}, positions_of(expression)
    own = {name: getattr(scheme.options, declared.name) for scheme in positions.schemes
           for name, declared in scheme_options(type(scheme)).items()}  # fmt: skip
    effective = positions.effective_options  # without those that the expression gives, and some of those that are None
    applicable = {name: value for name, value in own.items() if value is None or name in effective}
    for name, default in {**applicable, **effective}.items():
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
