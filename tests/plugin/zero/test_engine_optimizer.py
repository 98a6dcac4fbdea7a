"""fairseq's interface to DeepSpeed's optimizer, without an engine."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule, ReduceLROnPlateauLRScheduleConfig
from training_runs import needs_deepspeed

from fairseq_posenc.plugin.zero.optimizer import EngineOptimizer


def engine_optimizer(scaler):
    """On an engine whose gradients overflow in every update."""
    sgd = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    zero = SimpleNamespace(optimizer=sgd, loss_scaler=scaler, overflow=True)
    engine = SimpleNamespace(optimizer=zero, step=lambda: scaler.update_scale(True), fp16_enabled=lambda: True)
    return EngineOptimizer(None, engine, lambda state: None)


def test_a_schedule_may_need_pytorchs_optimizer():
    optimizer = engine_optimizer(SimpleNamespace())
    cfg = ReduceLROnPlateauLRScheduleConfig(lr=[0.1], maximize_best_checkpoint_metric=False)
    schedule = ReduceLROnPlateauLRSchedule(cfg, optimizer)
    rates = []
    for epoch in (1, 2):
        schedule.step(epoch, val_loss=1.0)
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([0.1, 0.01])


@needs_deepspeed
def test_an_overflow_at_the_minimum_loss_scale_is_the_error_that_fairseq_handles(monkeypatch):
    from deepspeed.runtime.fp16 import loss_scaler

    monkeypatch.setattr(loss_scaler.dist, "get_rank", lambda: 1)  # only the first process logs
    scaler = loss_scaler.DynamicLossScaler(2.0, scale_window=10, min_scale=1, delayed_shift=1, consecutive_hysteresis=False)
    optimizer = engine_optimizer(scaler)
    with pytest.raises(OverflowError, match=r"loss scale to: 1\.0"):
        optimizer.clip_grad_norm(1.0)
    with pytest.raises(FloatingPointError, match="--min-loss-scale"):
        optimizer.clip_grad_norm(1.0)
