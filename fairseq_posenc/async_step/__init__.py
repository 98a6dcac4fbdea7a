"""A training step in which the host does not wait for the device: ``--optimizer fused_adam``, registered on import."""

from .fused_adam import NAME
from .non_blocking_trainer import NonBlockingTrainer

__all__ = ["NAME", "NonBlockingTrainer"]
