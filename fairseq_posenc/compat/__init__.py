"""Makes fairseq 0.12.2, unmodified, run on current Python, PyTorch and NumPy.

fairseq and Hydra 1.0 are no longer released, so they are patched from outside: :func:`importable` around their import,
:func:`apply` after it. Every patch is one function whose docstring explains what it fixes and when it can be removed. A patch
changes nothing but names inside fairseq and Hydra, and does nothing if it is not needed.
"""

from functools import cache

from .imports import importable

__all__ = ["apply", "importable", "load_checkpoint"]


@cache
def apply() -> None:
    """Apply every patch that needs fairseq to be imported. Later calls do nothing."""
    from . import blocks, checkpoints, data, distributed, hydra_1_0, layers, logs, programs, training, user_dir

    for module in (hydra_1_0, checkpoints, data, blocks, distributed, layers, training, logs, programs, user_dir):
        for patch in module.PATCHES:
            patch()


def load_checkpoint(path: str) -> dict:
    """Read a fairseq checkpoint onto the CPU without running code from it; see :func:`.loading.load`.

    The result is what was saved; ``fairseq.checkpoint_utils.load_checkpoint_to_cpu`` uses the same reader and also upgrades files
    of older releases.
    """
    from . import loading

    return loading.load(path)
