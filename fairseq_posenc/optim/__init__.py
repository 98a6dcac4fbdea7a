"""Optimizers, a learning-rate schedule and growing batches for fairseq, registered on import.

``--optimizer stable_adamw``, ``--optimizer muon``, ``--lr-scheduler warmup_stable_decay`` and ``--batch-warmup-updates``.
"""

from . import batch_warmup, muon, stable_adamw, warmup_stable_decay

__all__ = ["batch_warmup", "muon", "stable_adamw", "warmup_stable_decay"]
