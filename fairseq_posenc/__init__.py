"""Positional-encoding schemes for transformers, as a fairseq plugin.

Importing this package is light: neither PyTorch nor fairseq is imported. It registers with fairseq where fairseq is already
imported (``--user-dir``); where it is not yet, the start-up hook does so as soon as it is.
"""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from fairseq_posenc.version import __version__

__all__ = ["__version__", "importing_fairseq", "register"]


@contextmanager
def importing_fairseq() -> Iterator[None]:
    """Around the execution of fairseq's ``__init__``: mends what keeps it from being imported, then registers the plugin."""
    from fairseq_posenc import compat

    with compat.importable():
        yield
    register()


def register() -> None:
    """Register the models and tasks with fairseq and mend what does not run on current libraries. Repeating it is harmless."""
    from fairseq_posenc import compat

    compat.apply()
    for room in ("models", "tasks"):
        if importlib.util.find_spec(f"fairseq_posenc.{room}"):
            importlib.import_module(f"fairseq_posenc.{room}")
    _know_as_user_dir()


def _know_as_user_dir() -> None:
    """Make ``--user-dir`` of this very folder harmless: fairseq refuses to import a folder's package a second time."""
    from fairseq.utils import import_user_module

    import_user_module.memo = getattr(import_user_module, "memo", set()) | set(__path__)


if "fairseq" in sys.modules:
    register()
