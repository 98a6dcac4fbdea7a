"""User errors, which each interface reports without a traceback, and the check of an option's value that raises them."""

import dataclasses
import difflib
import math
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from importlib import metadata, util
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

_FIELD = re.compile(r"`(\w+)`")
_FROM_WORKER = re.compile(r"Caught (\w+) in .*^(?:\w+\.)*\1: (.*)", re.DOTALL | re.MULTILINE)
MODULES = {"scikit-learn": "sklearn"}
"""The modules of requirements that have another name."""
KINDS: dict[type, tuple[str, type | tuple[type, ...]]] = {
    int: ("a whole number", int),
    float: ("a number, and finite", (int, float)),
    bool: ("true or false", bool),
    str: ("a string", str),
    Mapping: ("names with values", Mapping),
}
MAX_POSITIONS = 1 << 20
"""The largest sequence length, and limit of other numbers of tokens: more is a typing error that would exhaust the memory."""


class InputError(ValueError):
    """A flag, a file or a row that cannot be used; the message names it and what to change."""


class FieldError(InputError):
    """An option of the core that cannot be used. Its message names options by their fields, written as ```name```.

    Each interface has its own names for them: :meth:`named`.
    """

    def __str__(self) -> str:
        return self.named(str)

    def named(self, name_of: Callable[[str], str]) -> str:
        """Return the message with the fields renamed by ``name_of``."""
        return _FIELD.sub(lambda match: name_of(match[1]), self.args[0])


def sentence(error: Exception) -> str:
    """Return the message for the user.

    An error of the operating system consists of a number, a phrase and a file. The message of one in a process that reads data
    (``--num-workers``) is at the end of a traceback, which PyTorch makes the message.
    """
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, UnicodeEncodeError):  # of a library that takes no such name of a file
        return f"{error.object[:500]!r} is not UTF-8: rename the file or folder"
    from_worker = _FROM_WORKER.match(str(error))
    return from_worker[2].strip() if from_worker else str(error)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, which for those of PyTorch and others may fill a page.

    The second is added where the first announces it by a colon.
    """
    first, _, rest = str(error).strip().partition("\n")
    return f"{first} {rest.strip().partition(chr(10))[0]}".strip() if first.rstrip().endswith(":") else first


def lacking(*extras: str) -> str | None:
    """Return which requirements of these extras of this package are not installed, and how to install them; None if all are.

    The command names distributions, and so works wherever the package was installed from.
    """
    wanted = {}
    with suppress(metadata.PackageNotFoundError):
        for line in metadata.requires("fairseq-posenc") or ():
            match = re.match(r"(([\w-]+)[^;]*);.*extra == .(\w+)", line)
            if match and match[3] in extras and util.find_spec(MODULES.get(match[2], match[2])) is None:
                wanted[match[2]] = match[1].strip()
    are = "are" if len(wanted) > 1 else "is"
    return f"needs {', '.join(wanted)}, which {are} not installed: pip install {shlex.join(wanted.values())}" if wanted else None


def require_extras(*extras: str) -> None:
    """Raise InputError if requirements of these extras are not installed, before anything imports them or takes long."""
    if problem := lacking(*extras):
        raise InputError(problem)


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Return up to three known names that begin with this one, or else are most similar to it."""
    name, known = str(name), list(map(str, known))
    return [other for other in known if other.startswith(name)][:3] or difflib.get_close_matches(name, known, n=3, cutoff=0.6)


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return ``did you mean … or …? `` with the nearest known names, or an empty string."""
    near = nearest(name, known)
    return f"did you mean {' or '.join(near)}? " if near else ""


def require_known(flag: str, names: Iterable[str], known: Collection[str]) -> None:
    """Raise InputError for the first value of a flag that is not known; the message has the nearest, and all that are."""
    for name in names:
        if name not in known:
            raise InputError(f"{flag} {name}: {suggestion(name, known)}they are {', '.join(known)}")


def flag_fault(message: str, flags: Iterable[str]) -> str:
    """Return argparse's message in one sentence; for an unknown flag, with those of ``flags`` that are most similar to it."""
    if match := re.match(r"unrecognized arguments: (?:.* )?(-[^ =]+)", message):
        return f"there is no flag {match[1]}: {suggestion(match[1], flags)}--help lists all"
    return message.removeprefix("argument ")


def flag_of(option: str) -> str:
    """Return an option's name on the command line."""
    return "--" + option.replace("_", "-")


def flag_value(value: Any) -> str:
    """Return an option's value on the command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def value_types(options: type) -> dict[str, tuple[type, ...]]:
    """Return the types of a dataclass's fields, such as ``(int, NoneType)`` for ``int | None``."""
    hints = get_type_hints(options)  # types, where a module's annotations are text
    hints = {declared.name: hints[declared.name] for declared in dataclasses.fields(options)}
    return {name: get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,) for name, hint in hints.items()}


def check_value(name: str, value: Any, types: tuple[Any, ...], limits: Mapping[str, Any]) -> None:
    """Check a value against its field's types (see :func:`value_types`), ``minimum``, ``maximum`` and ``choices``.

    Raises:
        FieldError: the value is not allowed; the message begins with the field's ``name``.
    """
    if value is None and NoneType in types:
        return
    description, accepted = KINDS[get_origin(types[0]) or types[0]]
    fits = isinstance(value, accepted) and isinstance(value, bool) == (accepted is bool)  # True is no 1
    if not fits or (isinstance(value, float) and not math.isfinite(value)):
        raise FieldError(f"`{name}` must be {description}, got {value!r}")
    minimum, maximum, choices = (limits.get(limit) for limit in ("minimum", "maximum", "choices"))
    if minimum is not None and value < minimum:
        raise FieldError(f"`{name}` must be at least {minimum}, got {value}")
    if maximum is not None and value > maximum:
        raise FieldError(f"`{name}` must be at most {maximum}, got {value}")
    if choices is not None and value not in choices:
        raise FieldError(f"`{name}` must be one of {', '.join(choices)}, got {value!r}")
