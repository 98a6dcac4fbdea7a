"""Patches without which fairseq cannot be imported on Python 3.11 and later."""

import dataclasses
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

UNHELPFUL_LOGGERS = (
    "fairseq.tasks.text_to_speech",  # advises every command to install tensorboardX
    "DeepSpeed",  # which fairseq imports where it is installed: warns that it finds no GPU
)


@contextmanager
def importable() -> Iterator[None]:
    """Make fairseq importable in this context; on exit, the standard library is as before."""
    with ExitStack() as stack:
        stack.enter_context(quiet_loggers())
        if sys.version_info >= (3, 11):
            stack.enter_context(dataclasses_as_defaults())
        yield


@contextmanager
def dataclasses_as_defaults() -> Iterator[None]:
    """Let dataclasses of fairseq be field defaults of one another.

    Python 3.11 rejects a default whose class is unhashable, which a dataclass with ``eq=True`` is, and fairseq reads
    ``field.default``, so that default factories would not do. Its dataclasses get the identity hash of ``object``. Can be
    removed when fairseq uses default factories.
    """
    original = dataclasses.dataclass

    def dataclass(cls=None, /, **options):
        if cls is None:
            return lambda decorated: dataclass(decorated, **options)
        made = original(cls, **options)
        if made.__hash__ is None and made.__module__.partition(".")[0] == "fairseq":
            made.__hash__ = object.__hash__
        return made

    dataclasses.dataclass = dataclass
    try:
        yield
    finally:
        dataclasses.dataclass = original


@contextmanager
def quiet_loggers() -> Iterator[None]:
    """Disable :data:`UNHELPFUL_LOGGERS` while fairseq is imported, and warnings of Python 3.12 about fairseq's escape sequences.

    Can be removed when fairseq imports its text-to-speech task and DeepSpeed only where they are used, and writes raw strings.
    """
    warnings.filterwarnings("ignore", category=SyntaxWarning, module=r".*/fairseq/")
    loggers = [logging.getLogger(name) for name in UNHELPFUL_LOGGERS]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled
