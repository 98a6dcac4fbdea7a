"""Positional-encoding schemes for transformers, as a fairseq plugin.

Importing this package does not import PyTorch or fairseq; what needs them does. If fairseq is already imported (as for
``--user-dir``), the package registers with it; otherwise the start-up hook registers it as soon as fairseq is imported.
"""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import FAIRSEQ_VERSION, __version__

EXPORTS = {  # name -> module, which is imported when the name is used
    "Cache": "transformer",
    "Decoder": "transformer",
    "DecoderConfig": "transformer",
    "Encoder": "transformer",
    "EncoderConfig": "transformer",
    "EncoderOutput": "transformer",
    "build_positions": "transformer",
    "PositionBias": "modules",
    "PositionalAttention": "modules",
    "position_bias": "modules",
    "Positions": "schemes",
    "load_encoder": "models.hub_interface",
    "load_vocabulary": "models.hub_interface",
    "PosencRobertaModel": "models.roberta",
}
__all__ = ["__version__", "importing", "register", *EXPORTS]

if TYPE_CHECKING:  # the same names for type checkers, which do not call __getattr__
    from .models.hub_interface import load_encoder as load_encoder
    from .models.hub_interface import load_vocabulary as load_vocabulary
    from .models.roberta import PosencRobertaModel as PosencRobertaModel
    from .modules import PositionalAttention as PositionalAttention
    from .modules import PositionBias as PositionBias
    from .modules import position_bias as position_bias
    from .schemes import Positions as Positions
    from .transformer import Cache as Cache
    from .transformer import Decoder as Decoder
    from .transformer import DecoderConfig as DecoderConfig
    from .transformer import Encoder as Encoder
    from .transformer import EncoderConfig as EncoderConfig
    from .transformer import EncoderOutput as EncoderOutput
    from .transformer import build_positions as build_positions
else:

    def __getattr__(name: str) -> Any:
        if name not in EXPORTS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{EXPORTS[name]}"), name)


@contextmanager
def importing() -> Iterator[None]:
    """Make fairseq importable in this context, and register with it afterwards, for the start-up hook."""
    from . import compat

    with compat.importable():
        yield
    register()


def register() -> None:
    """Patch fairseq for current libraries and register the models and tasks with it. Later calls do nothing."""
    from fairseq import utils

    from . import compat

    compat.apply()
    from . import models, pipeline, tasks  # noqa: F401 - importing registers

    # fairseq does not import a --user-dir whose package is imported already, unless it is in this set.
    utils.import_user_module.memo = getattr(utils.import_user_module, "memo", set()) | set(__path__)


_found = getattr(sys.modules.get("fairseq"), "__version__", None)
if _found == FAIRSEQ_VERSION:
    register()
elif _found is not None:
    warnings.warn(f"fairseq_posenc registers with fairseq {FAIRSEQ_VERSION}, and {_found} is imported", stacklevel=2)
