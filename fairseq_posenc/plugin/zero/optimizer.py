"""fairseq's optimizer interface on DeepSpeed's engine, so that fairseq's ``train_step`` runs unchanged."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.optim import FairseqOptimizer
from torch import Tensor

from ..checkpoint.state_dict import override


class EngineOptimizer(FairseqOptimizer):
    """An optimizer whose gradients and step are the engine's.

    fairseq accumulates the gradients of the *sum* of losses over micro-batches, averages them over the W processes, multiplies
    them by c = W / sample size (which gives the mean over all predicted tokens), clips, and steps. The engine does all of this
    but the multiplication in one call, so :meth:`multiply_grads` remembers c, and :meth:`clip_grad_norm` lets the engine divide
    by the loss scale s/c instead of s (s is 1 except with fp16).

    Args:
        cfg: fairseq's config of the optimizer.
        engine: DeepSpeed's engine at ZeRO stage 1, 2 or 3.
        load: loads the optimizer's part of a checkpoint; called by :meth:`load_state_dict`.
    """

    def __init__(self, cfg: Any, engine: Any, load: Callable[[dict[str, Any]], None]) -> None:
        super().__init__(cfg)
        self.engine = engine
        self._load = load
        self._factor = 1.0
        self._zero = engine.optimizer  # around fairseq's
        self._zero.loss_scaler.raise_error_at_min_scale = False  # clip_grad_norm raises the error that fairseq handles

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """PyTorch's optimizer within ZeRO's, with the same ``param_groups``."""
        return self._zero.optimizer

    @property
    def scaler(self) -> SimpleNamespace:
        """The holder of the ``loss_scale`` that fairseq logs."""
        return SimpleNamespace(loss_scale=self._zero.loss_scaler.cur_scale)

    def backward(self, loss: Tensor) -> None:
        self.engine.backward(loss, scale_wrt_gas=False)

    def all_reduce_grads(self, module: Any) -> None:
        """Do nothing: the engine averages within :meth:`clip_grad_norm` (stage 1) or the backward pass (2, 3)."""

    def multiply_grads(self, c: float | Tensor) -> None:
        self._factor = float(c)

    def clip_grad_norm(self, max_norm: float, aggregate_norm_fn: Any = None) -> Tensor:
        """Average, multiply, clip and step; return the norm of the gradient over all processes before clipping.

        Raises:
            OverflowError: fp16 gradients overflowed; only the loss scale has changed, and fairseq skips the update.
            FloatingPointError: they overflowed at the minimum loss scale.
        """
        zero, scale = self._zero, self._zero.loss_scaler.cur_scale
        # As override_loss_scale, without a log line per update.
        zero.external_loss_scale, zero.custom_loss_scaler = scale / self._factor, True
        try:
            self.engine.step()
        finally:
            zero.external_loss_scale, zero.custom_loss_scaler = None, False
        if zero.overflow and self.engine.fp16_enabled():
            if zero.loss_scaler.cur_scale == scale:
                raise FloatingPointError(f"gradients overflowed at the minimum loss scale, {scale:g} (--min-loss-scale)")
            raise OverflowError(f"setting loss scale to: {zero.loss_scaler.cur_scale}")
        norm = torch.as_tensor(zero._global_grad_norm, dtype=torch.float32, device=self.engine.device)
        return torch.where(norm < 0, torch.inf, norm)  # ZeRO reports -1 for a norm that is NaN

    def step(self, closure: Any = None, scale: float = 1.0, groups: Any = None) -> None:
        """Do nothing: :meth:`clip_grad_norm` has already made the engine step."""

    def zero_grad(self) -> None:
        """Do nothing: the engine clears gradients when it has stepped."""

    def state_dict(self) -> dict[str, Any]:
        raise NotImplementedError("all processes save a sharded optimizer together: see DeepSpeedTrainer.consolidate_optimizer")

    def load_state_dict(self, state_dict: dict[str, Any], optimizer_overrides: dict[str, Any] | None = None) -> None:
        self._load(state_dict)
        for group in self.param_groups:
            override(group, optimizer_overrides)
