"""Makes fairseq 0.12.2, unmodified, run on current Python, PyTorch and NumPy.

fairseq and Hydra 1.0 are no longer released, so they are patched from outside: :func:`importable` around their
import, :func:`apply` after it. Every patch is one function whose docstring says what it fixes and when it can go; it touches
nothing but names inside fairseq and Hydra, and does nothing if it is not needed.
"""

from functools import cache

from fairseq_posenc.compat.imports import importable

__all__ = ["apply", "importable", "load_checkpoint"]


@cache
def apply() -> None:
    """Apply every patch that needs fairseq to be imported. Later calls do nothing."""
    from fairseq_posenc.compat import (
        blocks,
        checkpoints,
        data,
        distributed,
        hydra_1_0,
        layers,
        logs,
        programs,
        training,
        user_dir,
    )

    for room in (hydra_1_0, checkpoints, data, blocks, distributed, layers, training, logs, programs, user_dir):
        for patch in room.PATCHES:
            patch()


def load_checkpoint(path: str) -> dict:
    """Read a fairseq checkpoint onto the CPU without running code from it; see :func:`.loading.load`.

    The result is what was saved; ``fairseq.checkpoint_utils.load_checkpoint_to_cpu``, which uses the same reader, also
    upgrades files of older releases.
    """
    from fairseq_posenc.compat import loading

    return loading.load(path)
