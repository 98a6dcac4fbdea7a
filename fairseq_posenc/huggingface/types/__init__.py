"""The types of transformers' models, one file each. Every module here is imported, so a new type needs no more than a file."""

import importlib
import pkgutil

from .base import CAUSAL_TYPES, MODEL_TYPES

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
