"""A training step that waits for nothing: ``--optimizer fused_adam``. Importing this package registers it."""

from .fused_adam import NAME
from .non_blocking_trainer import NonBlockingTrainer

__all__ = ["NAME", "NonBlockingTrainer"]
