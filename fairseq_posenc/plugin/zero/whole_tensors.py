"""ZeRO's stage 1 for optimizers that compute on whole tensors, which DeepSpeed joins and divides."""

from fairseq.trainer import Trainer
from torch.distributed.optim import ZeroRedundancyOptimizer


class WholeTensorTrainer(Trainer):
    """fairseq's trainer whose processes each have the optimizer's state of some tensors, whole, and update those.

    PyTorch's ZeroRedundancyOptimizer assigns them by size, and broadcasts the weights after an update. Checkpoints are those of a
    training without ZeRO, and each continues from the other's. With ``--bf16``, all processes have the float32 weights.
    """

    def _build_optimizer(self) -> None:
        super()._build_optimizer()
        inner = self._optimizer.optimizer
        self._optimizer.optimizer = ZeroRedundancyOptimizer(
            inner.param_groups, type(inner), process_group=self.data_parallel_process_group, **inner.defaults
        )
