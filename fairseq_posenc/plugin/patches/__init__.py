"""Makes fairseq 0.12.2, unmodified, run on current Python, PyTorch and NumPy.

fairseq is no longer released, so it is patched from outside: :func:`importable` around its import, :func:`apply` after it.
Every patch is one function whose docstring explains what it fixes and when it can be removed; nothing else in this package
changes names of other packages when it is imported. Patches change names inside fairseq; in Hydra, how a configuration is read
(:mod:`.configurations`); and in PyTorch, how an iterator that a forked process has inherited ends
(:func:`.batches.workers_leave_inherited_iterators`). While fairseq is imported, ``dataclasses.dataclass`` is another function.
"""

from functools import cache

from .imports import importable

__all__ = ["apply", "importable"]


@cache
def apply() -> None:
    """Apply every patch that needs fairseq to be imported. Later calls do nothing."""
    from . import batches, checkpoint_files, configurations, databins, devices, distributed, logs, programs

    for module in (configurations, checkpoint_files, databins, batches, distributed, devices, logs, programs):
        for patch in module.PATCHES:
            patch()
