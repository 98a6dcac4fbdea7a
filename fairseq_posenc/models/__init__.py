"""The interface to fairseq: models and architectures. Importing this package registers them."""

from importlib import import_module

from ..families import FAMILIES
from . import architectures, help

for _family in FAMILIES.values():
    import_module(f"{__name__}.{_family.name}")
architectures.update_configs()

__all__ = ["architectures", "help"]
