"""User errors: each interface reports them without a traceback, which any other error keeps."""

import difflib
import re
from collections.abc import Callable, Iterable

_FIELD = re.compile(r"`(\w+)`")


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
