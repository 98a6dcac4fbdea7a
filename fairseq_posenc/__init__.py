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

from .base.version import FAIRSEQ_VERSION, __version__

EXPORTS = {  # name -> module, which is imported when the name is used
    **dict.fromkeys(("Positions", "Scheme", "option", "register"), "core.schemes"),
    "decay_groups": "core.schemes.decay",
    **dict.fromkeys(("LowRank", "Relative", "RelativeIndex", "Rotation", "Shift", "Terms", "Window", "precise"), "core.terms"),
    **dict.fromkeys(("PositionBias", "PositionalAttention", "position_bias"), "core.modules"),
    **dict.fromkeys(
        ("Cache", "Decoder", "DecoderConfig", "Encoder", "EncoderConfig", "EncoderOutput", "build_positions"), "core.transformer"
    ),
    "load_encoder": "huggingface.encoders",
    "load_vocabulary": "text.vocabulary",
    "PosencRobertaModel": "plugin.models.roberta",
}
__all__ = ["__version__", "importing", "register_plugin", *EXPORTS]

if TYPE_CHECKING:  # the same names for type checkers, which do not call __getattr__
    from .core.modules import PositionalAttention as PositionalAttention
    from .core.modules import PositionBias as PositionBias
    from .core.modules import position_bias as position_bias
    from .core.schemes import Positions as Positions
    from .core.schemes import Scheme as Scheme
    from .core.schemes import option as option
    from .core.schemes import register as register
    from .core.schemes.decay import decay_groups as decay_groups
    from .core.terms import LowRank as LowRank
    from .core.terms import Relative as Relative
    from .core.terms import RelativeIndex as RelativeIndex
    from .core.terms import Rotation as Rotation
    from .core.terms import Shift as Shift
    from .core.terms import Terms as Terms
    from .core.terms import Window as Window
    from .core.terms import precise as precise
    from .core.transformer import Cache as Cache
    from .core.transformer import Decoder as Decoder
    from .core.transformer import DecoderConfig as DecoderConfig
    from .core.transformer import Encoder as Encoder
    from .core.transformer import EncoderConfig as EncoderConfig
    from .core.transformer import EncoderOutput as EncoderOutput
    from .core.transformer import build_positions as build_positions
    from .huggingface.encoders import load_encoder as load_encoder
    from .plugin.models.roberta import PosencRobertaModel as PosencRobertaModel
    from .text.vocabulary import load_vocabulary as load_vocabulary
else:

    def __getattr__(name: str) -> Any:
        if name not in EXPORTS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{EXPORTS[name]}"), name)


@contextmanager
def importing() -> Iterator[None]:
    """Make fairseq importable in this context, and register with it afterwards, for the start-up hook."""
    from .plugin import patches

    with patches.importable():
        yield
    register_plugin()


def register_plugin() -> None:
    """Patch fairseq for current libraries and register the models and tasks with it. Later calls do nothing."""
    from fairseq import utils

    from .plugin import patches

    patches.apply()
    from .plugin import models  # importing registers; patches import the others

    # fairseq does not import a --user-dir whose package is imported already, unless it is in this set.
    utils.import_user_module.memo = getattr(utils.import_user_module, "memo", set()) | set(__path__)


_found = getattr(sys.modules.get("fairseq"), "__version__", None)
if _found == FAIRSEQ_VERSION:
    register_plugin()
elif _found is not None:
    warnings.warn(f"fairseq_posenc registers with fairseq {FAIRSEQ_VERSION}, and {_found} is imported", stacklevel=2)
