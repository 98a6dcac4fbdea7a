"""The fairseq face: models and architectures. Importing this package registers them."""

from . import help, roberta

help.show_in_help()

__all__ = ["help", "roberta"]
