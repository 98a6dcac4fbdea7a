"""Patches without which fairseq and Hydra 1.0 cannot be imported on Python 3.11 and later."""

import dataclasses
import logging
import sys
import types
import typing
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

PATCHED_PACKAGES = ("fairseq", "hydra")
UNHELPFUL_LOGGERS = (
    "fairseq.tasks.text_to_speech",  # advises every command to install tensorboardX
    "DeepSpeed",  # which fairseq imports where it is installed: warns that it finds no GPU
)


@contextmanager
def importable() -> Iterator[None]:
    """Make fairseq and Hydra importable in this context; on exit, the standard library is as before."""
    with ExitStack() as stack:
        stack.enter_context(quiet_loggers())
        if sys.version_info >= (3, 11):
            stack.enter_context(dataclasses_as_defaults())
        if sys.version_info >= (3, 13):
            stack.enter_context(typing_io())
        yield


@contextmanager
def dataclasses_as_defaults() -> Iterator[None]:
    """Let dataclasses of fairseq and Hydra be field defaults of one another.

    Python 3.11 rejects a default whose class is unhashable, which a dataclass with ``eq=True`` is, and fairseq reads
    ``field.default``, so that default factories would not do. The dataclasses of these two packages get the identity hash of
    ``object``. Can be removed when fairseq and Hydra use default factories (Hydra 1.3 does; fairseq requires 1.0).
    """
    original = dataclasses.dataclass

    def dataclass(cls=None, /, **options):
        if cls is None:
            return lambda decorated: dataclass(decorated, **options)
        made = original(cls, **options)
        if made.__hash__ is None and made.__module__.partition(".")[0] in PATCHED_PACKAGES:
            made.__hash__ = object.__hash__
        return made

    dataclasses.dataclass = dataclass
    try:
        yield
    finally:
        dataclasses.dataclass = original


@contextmanager
def typing_io() -> Iterator[None]:
    """Supply ``typing.io``, which Python 3.13 removed, and from which antlr4 4.8 (Hydra's parser of overrides) takes ``TextIO``.

    Can be removed with antlr4 4.9, which Hydra 1.1 uses.
    """
    module = types.ModuleType("typing.io")
    module.TextIO = typing.TextIO  # type: ignore[attr-defined]
    sys.modules["typing.io"] = module
    try:
        yield
        import hydra.core.override_parser.overrides_parser  # noqa: F401 - Hydra itself would import it later
    finally:
        sys.modules.pop("typing.io", None)  # Hydra is imported within fairseq, so this can be the second time


@contextmanager
def quiet_loggers() -> Iterator[None]:
    """Disable :data:`UNHELPFUL_LOGGERS` while fairseq is imported.

    Can be removed when fairseq imports its text-to-speech task and DeepSpeed only where they are used.
    """
    loggers = [logging.getLogger(name) for name in UNHELPFUL_LOGGERS]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled
