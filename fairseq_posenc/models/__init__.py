"""The interface to fairseq: models and architectures. Importing this package registers them."""

from importlib import import_module

from ..families import FAMILIES
from . import earlier, help, reading, resume, start, validation

for _family in FAMILIES.values():
    import_module(f"{__name__}.{_family.name}")

help.show_in_help()
start.let_training_start_here()
resume.go_on_with_the_same_model()
earlier.read_as_saved()
reading.explain_models()
validation.plot_at_validation()

__all__ = ["earlier", "help", "reading", "resume", "start", "validation"]
