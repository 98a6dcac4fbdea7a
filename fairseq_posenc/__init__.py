"""Positional-encoding schemes for transformers, as a fairseq plugin.

Importing this package is light: neither PyTorch nor fairseq is imported. It registers with fairseq where fairseq is already
imported (``--user-dir``); where it is not yet, the start-up hook does so as soon as it is.
"""

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


if "fairseq" in sys.modules:
    register()
