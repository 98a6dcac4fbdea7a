"""What a command prints: its results on stdout, and everything else on stderr, whoever prints it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TextIO

_stdout: TextIO | None = None  # where results go while everything else that means stdout goes to stderr


def show(text: object = "") -> None:
    """Print what a command has found."""
    print(text, file=_stdout or sys.stdout, flush=True)


@contextlib.contextmanager
def only_results() -> Iterator[None]:
    """Meanwhile, :func:`show` alone reaches stdout: what libraries and child processes send there goes to stderr."""
    global _stdout
    original = sys.stdout
    with contextlib.redirect_stdout(sys.stderr), _descriptor_to_stderr(original) as _stdout:
        try:
            yield
        finally:
            _stdout = None


@contextlib.contextmanager
def _descriptor_to_stderr(stdout: TextIO) -> Iterator[TextIO]:
    """Point the file descriptor of ``stdout`` at stderr; gives a stream that still goes where it went."""
    try:
        number, errors = stdout.fileno(), sys.stderr.fileno()
    except (OSError, AttributeError):  # no file, as in a notebook
        yield stdout
        return
    stdout.flush()
    kept = os.dup(number)
    os.dup2(errors, number)
    try:
        with open(kept, "w", encoding=stdout.encoding, errors=stdout.errors, closefd=False) as stream:
            yield stream
    finally:
        os.dup2(kept, number)
        os.close(kept)
