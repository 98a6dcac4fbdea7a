"""A training step that waits for nothing: ``--optimizer fused_adam``. Importing this package registers it."""

from .optimizer import NAME
from .trainer import UnhaltedTrainer

__all__ = ["NAME", "UnhaltedTrainer"]
