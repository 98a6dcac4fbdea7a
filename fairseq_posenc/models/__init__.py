"""The fairseq face: models and architectures. Importing this package registers them."""

from . import help, resume, roberta, start

help.show_in_help()
start.let_training_start_here()
resume.go_on_with_the_same_model()

__all__ = ["help", "resume", "roberta", "start"]
