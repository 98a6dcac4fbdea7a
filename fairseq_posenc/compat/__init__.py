"""Makes fairseq 0.12.2, unmodified, run on current Python, PyTorch and NumPy.

fairseq and Hydra 1.0 are no longer released, so they are patched from outside: :func:`importable` around their import,
:func:`apply` after it. Every patch is one function whose docstring explains what it fixes and when it can be removed. A patch
changes nothing but names inside fairseq and Hydra, and does nothing if it is not needed.
"""

from functools import cache

from .imports import importable

__all__ = ["apply", "importable"]


@cache
def apply() -> None:
    """Apply every patch that needs fairseq to be imported. Later calls do nothing."""
    from . import blocks, checkpoint_files, configurations, databins, devices, distributed, logs, programs

    for module in (configurations, checkpoint_files, databins, blocks, distributed, devices, logs, programs):
        for patch in module.PATCHES:
            patch()
