"""Optimizers and a learning-rate schedule for fairseq, registered on import.

``--optimizer stable_adamw``, ``--optimizer muon``, ``--lr-scheduler warmup_stable_decay``, and ``--optimizer fused_adam`` with a
training step in which the host does not wait for the device.
"""

import fairseq.models  # first, because the start-up hook imports this package's modules when fairseq is imported

from . import fused_adam, muon, stable_adamw, warmup_stable_decay

WHOLE_TENSORS = (stable_adamw.NAME, muon.NAME)
"""The optimizers that compute on whole tensors, of which ZeRO therefore assigns whole ones to processes."""
