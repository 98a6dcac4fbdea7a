"""What is around fairseq's import."""

import dataclasses
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from ...base.patching import replaced


@contextmanager
def importable() -> Iterator[None]:
    """Make fairseq importable in this context; on exit, the standard library is as before.

    Nothing is logged meanwhile: fairseq's text-to-speech task advises every command to install tensorboardX, and DeepSpeed, which
    it imports where it is installed, warns that it finds no GPU. Python 3.12 would warn of fairseq's escape sequences.
    """
    warnings.filterwarnings("ignore", category=SyntaxWarning, module=r".*/fairseq/")
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with dataclasses_as_defaults():
            yield
    finally:
        logging.disable(disabled)


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

    with replaced(vars(dataclasses), dataclass=dataclass):
        yield
