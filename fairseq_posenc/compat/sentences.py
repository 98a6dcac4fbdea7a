"""How fairseq's programs end where their input cannot be used: in one sentence, with status 2."""

import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from omegaconf.errors import MissingMandatoryValue

from fairseq_posenc.compat.exits import left_to_the_first, refuse
from fairseq_posenc.errors import InputError, flag_of, not_utf8, sentence

OF_USERS: dict[type[Exception], re.Pattern[str]] = {
    AssertionError: re.compile("[a-z]{2} [a-z]{2}"),
    ValueError: re.compile("--[a-z]"),
}
"""What is in the messages of fairseq's that are about flags and files: in assertions, words; in other errors, flags."""


@contextmanager
def in_sentences(
    program: dict[str, Any], texts: Iterable[str] = (), local_rank: int = 0, name: str | None = None
) -> Iterator[None]:
    """Show an error that the user can mend as a sentence, and end with status 2.

    Args:
        program: the globals of the program that is run.
        texts: files that it reads as text; ``-`` is its standard input.
        local_rank: of this process on its host.
        name: what the program is called there, rather than as in the command.
    """
    try:
        yield
    except Exception as error:
        reason = _reason(error, program, texts)
        if reason is None or left_to_the_first(local_rank):  # which has not seen it, or it would have ended this process
            raise
        refuse(reason, name)


def _reason(error: Exception, program: dict[str, Any], texts: Iterable[str]) -> str | None:
    """What the user can mend; None where it is a fault of the program."""
    if isinstance(error, UnicodeDecodeError):
        return next(filter(None, map(fault_of_text, texts)), None)
    if isinstance(error, MissingMandatoryValue):
        return f"{flag_of(error.key)} ({error.full_key}) is missing"
    if isinstance(error, FloatingPointError):
        return f"training has diverged ({error}): lower --lr, warm up for longer (--warmup-updates), or clip (--clip-norm)"
    if type(error) in OF_USERS:
        return str(error) if OF_USERS[type(error)].search(str(error)) and _is_fairseqs(error, program) else None
    # Where a text, a data-bin or a flag cannot be used, fairseq raises Exception itself, as nothing else does; where a package
    # is not installed, ImportError with advice.
    if isinstance(error, (InputError, OSError)) or type(error) in (Exception, ImportError):
        return sentence(error)
    return None


def is_program() -> bool:
    """Whether one of fairseq's programs has called this, by its ``cli_main``, rather than a command of ours."""
    callers = (frame for frame, _ in traceback.walk_stack(sys._getframe(1)) if frame.f_code.co_name == "cli_main")
    return any((name_of(frame.f_globals) or "").startswith("fairseq_cli.") for frame in callers)


def _is_fairseqs(error: Exception, program: dict[str, Any]) -> bool:
    """Whether the program or a module of fairseq's raised it."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_globals is program or frame.f_globals.get("__name__", "").startswith("fairseq.")


def name_of(program: Mapping[str, Any]) -> str | None:
    """A module's name, also of one that is run and so called ``__main__``."""
    return getattr(program.get("__spec__"), "name", None)


def fault_of_text(text: str) -> str | None:
    """Where a file is not UTF-8, if it is not."""
    if text == "-":
        return "standard input is not UTF-8: convert it first"
    with open(text, "rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                return str(not_utf8(text, number, error))
    return None
