"""User errors, which each interface reports without a traceback, and the check of an option's value that raises them."""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

_FIELD = re.compile(r"`(\w+)`")
KINDS: dict[type, tuple[str, type | tuple[type, ...]]] = {
    int: ("a whole number", int),
    float: ("a number, and finite", (int, float)),
    bool: ("true or false", bool),
    str: ("a string", str),
    Mapping: ("names with values", Mapping),
}
MAX_POSITIONS = 1 << 20
"""The largest sequence length, and limit of other numbers of tokens: more is a slip that would show only as memory runs out."""


class InputError(ValueError):
    """A flag, a file or a row that cannot be used; the message names it and says what to do."""


class FieldError(InputError):
    """An option of the core that cannot be used. Its message names options by their fields, written as ```name```.

    Each interface has its own names for them: :meth:`named`.
    """

    def __str__(self) -> str:
        return self.named(str)

    def named(self, name_of: Callable[[str], str]) -> str:
        """The message with every field called as ``name_of`` says."""
        return _FIELD.sub(lambda found: name_of(found[1]), self.args[0])


class Refused(InputError):
    """A run that cannot work. Every process of it finds the same, so that only one reports it."""


def sentence(error: Exception) -> str:
    """What an interface says of an error: what the operating system reports comes as a number, a phrase and a file."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def nearest(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The known names that are most like this one; none where none is."""
    return difflib.get_close_matches(name, list(known), n=most, cutoff=0.5)


def suggestion(name: str, known: Iterable[str], most: int = 3) -> str:
    """``did you mean … or …? `` with the nearest known names, or nothing if none is near."""
    near = nearest(name, known, most)
    return f"did you mean {' or '.join(near)}? " if near else ""


def flag_of(option: str) -> str:
    """An option's name on the command line."""
    return "--" + option.replace("_", "-")


def value_types(options: type) -> dict[str, tuple[type, ...]]:
    """Which types the values of a dataclass's fields have: ``(int, NoneType)`` where ``int | None`` is declared."""
    hints = get_type_hints(options)  # types, where a module's annotations are text
    found: dict[str, tuple[type, ...]] = {}
    for declared in dataclasses.fields(options):
        hint = hints[declared.name]
        choices = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        found[declared.name] = tuple(get_origin(choice) or choice for choice in choices)
    return found


def check_value(name: str, value: Any, types: tuple[Any, ...], limits: Mapping[str, Any]) -> None:
    """Compare a value with its field's types (see :func:`value_types`) and ``minimum``, ``maximum`` and ``choices``.

    Raises:
        FieldError: it does not fit; the message begins with ``name``, a field's.
    """
    if value is None and NoneType in types:
        return
    described, fitting = KINDS[types[0]]
    if not _is_a(value, fitting):
        raise FieldError(f"`{name}` must be {described}, got {value!r}")
    minimum, maximum, choices = (limits.get(limit) for limit in ("minimum", "maximum", "choices"))
    if minimum is not None and value < minimum:
        raise FieldError(f"`{name}` must be at least {minimum}, got {value}")
    if maximum is not None and value > maximum:
        raise FieldError(f"`{name}` must be at most {maximum}, got {value}")
    if choices is not None and value not in choices:
        raise FieldError(f"`{name}` must be one of {', '.join(choices)}, got {value!r}")


def _is_a(value: Any, types: type | tuple[type, ...]) -> bool:
    if isinstance(value, bool):
        return types is bool
    return isinstance(value, types) and (not isinstance(value, float) or math.isfinite(value))
