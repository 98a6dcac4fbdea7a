"""The interface to fairseq: models and architectures. Importing this package registers them."""

from importlib import import_module

import fairseq.models  # noqa: F401 - first, because the start-up hook imports this package's modules when fairseq is imported

from ..families import FAMILIES
from . import architectures, help

for _family in FAMILIES.values():
    import_module(f"{__name__}.{_family.name}")
architectures.update_configs()

__all__ = ["architectures", "help"]
