"""What keeps fairseq and Hydra 1.0 from being imported on Python 3.11 and later."""

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
    """While this is open, fairseq and Hydra can be imported; afterwards the standard library is as it was."""
    with ExitStack() as stack:
        for name in UNHELPFUL_LOGGERS:
            stack.enter_context(silent(name))
        if sys.version_info >= (3, 11):
            stack.enter_context(dataclasses_as_defaults())
        if sys.version_info >= (3, 13):
            stack.enter_context(typing_io())
        yield


@contextmanager
def dataclasses_as_defaults() -> Iterator[None]:
    """Let dataclasses of fairseq and Hydra be field defaults of one another.

    Python 3.11 refuses a default whose class is unhashable, which a dataclass with ``eq=True`` is. Default factories would
    not do, because fairseq reads ``field.default``; so these two packages' dataclasses get back the identity hash of
    ``object``. Classes of other packages that happen to be imported meanwhile are not touched.

    Needed from Python 3.11; can be removed when fairseq and Hydra use default factories (Hydra 1.3 does; fairseq requires 1.0).
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
    """Supply ``typing.io``, from which antlr4 4.8 (Hydra's parser of overrides) takes ``TextIO``.

    Needed from Python 3.13, which removed it; can be removed with antlr4 4.9, which Hydra 1.1 uses.
    """
    module = types.ModuleType("typing.io")
    module.TextIO = typing.TextIO
    sys.modules["typing.io"] = module
    try:
        yield
        import hydra.core.override_parser.overrides_parser  # noqa: F401 - Hydra itself would import it later
    finally:
        sys.modules.pop("typing.io", None)  # Hydra is imported within fairseq, so this can be the second time


@contextmanager
def silent(name: str) -> Iterator[None]:
    """Keep a logger from giving advice to every command that imports fairseq.

    Can be removed when fairseq imports its text-to-speech task and DeepSpeed only where they are used.
    """
    logger = logging.getLogger(name)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
