"""Makes fairseq 0.12.2, unmodified, run on current Python, PyTorch and NumPy.

fairseq is no longer released, so it is patched from outside: :func:`importable` around its import, :func:`apply` after it.
Every patch is one public function, whose docstring explains what it fixes and when it can be removed; nothing else in this
package changes names of other packages when it is imported. Patches change names inside fairseq, and in Hydra, how a
configuration is read (:mod:`.configurations`). While fairseq is imported, ``dataclasses.dataclass`` is another function.
"""

from functools import cache
from types import FunctionType

from .imports import importable


@cache
def apply() -> None:
    """Apply the patches, all public functions of these modules, in their order, once fairseq is imported.

    Later calls do nothing.
    """
    from . import batches, checkpoint_files, configurations, databins, devices, distributed, logs, programs

    for module in (configurations, checkpoint_files, databins, batches, distributed, devices, logs, programs):
        for name, patch in vars(module).items():
            if isinstance(patch, FunctionType) and patch.__module__ == module.__name__ and not name.startswith("_"):
                patch()
