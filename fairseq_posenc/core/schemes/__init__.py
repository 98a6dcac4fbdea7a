"""The schemes, one file each. Every module here is imported, so a new scheme needs no more than a new file."""

import importlib
import pkgutil

from .base import REGISTRY, Scheme, Settings, option, option_fields, register, scheme_options
from .layered import build, same
from .positions import LayerTerms, Positions, parse

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = [
    "REGISTRY",
    "LayerTerms",
    "Positions",
    "Scheme",
    "Settings",
    "build",
    "option",
    "option_fields",
    "parse",
    "register",
    "same",
    "scheme_options",
]
