"""Positional-encoding schemes for transformers, as a fairseq plugin.

Importing this package is light: PyTorch and fairseq are imported only when something that needs them is used. If fairseq is
already imported (as for ``--user-dir``), the package registers with it; otherwise the start-up hook registers it as soon as
fairseq is imported.
"""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from fairseq_posenc.version import __version__

FAIRSEQ_VERSION = "0.12.2"
EXPORTS = {  # name -> module, imported when the name is asked for
    "Cache": "transformer",
    "Decoder": "transformer",
    "DecoderConfig": "transformer",
    "Encoder": "transformer",
    "EncoderConfig": "transformer",
    "EncoderOutput": "transformer",
    "build_positions": "transformer",
    "Positions": "schemes",
    "load_encoder": "models.hub",
    "load_vocabulary": "models.hub",
    "PosencRobertaModel": "models.roberta",
}
__all__ = ["__version__", "importing", "register", *EXPORTS]


def __getattr__(name: str) -> Any:
    if name not in EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{EXPORTS[name]}"), name)


@contextmanager
def importing(package: str) -> Iterator[None]:
    """What the start-up hook wraps around the import of fairseq or Hydra: patch it, then register with fairseq."""
    from fairseq_posenc import compat

    with compat.importable():
        yield
    if package == "fairseq":
        register()


def register() -> None:
    """Patch fairseq for current libraries and register the models and tasks with it. Repeating it does nothing more."""
    from fairseq import utils

    from fairseq_posenc import compat

    compat.apply()
    import fairseq_posenc.models
    import fairseq_posenc.pipeline
    import fairseq_posenc.tasks  # noqa: F401 - importing registers

    # fairseq refuses to import a --user-dir whose package is imported already, unless it remembers to have done so itself.
    utils.import_user_module.memo = getattr(utils.import_user_module, "memo", set()) | set(__path__)


_found = getattr(sys.modules.get("fairseq"), "__version__", None)
if _found == FAIRSEQ_VERSION:
    register()
elif _found is not None:
    warnings.warn(f"fairseq_posenc registers with fairseq {FAIRSEQ_VERSION}, and {_found} is imported", stacklevel=2)
