"""fairseq's trainer with an update in which the host does not wait for the device."""

from collections.abc import Sequence
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from fairseq import optim, utils
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import metrics
from fairseq.optim import lr_scheduler
from fairseq.trainer import Trainer
from torch import Tensor, nn

from ..processes.graceful_stop import request

MAX_DIFFERENCE = 1e-6  # between the processes' norms of the same gradients, as a share of the norm; fairseq's value


class NonBlockingTrainer(Trainer):
    """A trainer for ``--optimizer fused_adam``, with the losses, gradients, weights and logs of fairseq's trainer.

    fairseq's trainer waits for the device at several points of each update: ``sample_size or 1.0``, ``isfinite`` of the
    gradients' norm, the comparison of norms between processes, the peak of memory, and every meter. Here an update leaves its
    losses, counts and norms on the device, and :meth:`settle` reads those of all updates at once: at ``--log-interval``, at the
    end of an epoch and before a checkpoint is written. Then gradients that were not finite end the training with the weights
    before them (the optimizer has skipped all later updates), and a request to stop reaches all processes.

    Micro-batches that fill up an epoch's last update on some of the processes do not count. In fairseq's trainer, the others do
    not count either if the last one is such. Running out of memory ends the training.

    It can be removed when fairseq's trainer reads nothing from the device between two log lines.
    """

    def __init__(self, cfg: Any, task: Any, model: nn.Module, criterion: nn.Module, quantizer: Any = None) -> None:
        super().__init__(cfg, task, model, criterion, quantizer)
        self._waiting: list[tuple[dict[str, Any], Tensor]] = []  # logging outputs and norm of the gradients, per update
        self._settled = False
        self._batches: Any = None

    def _build_optimizer(self) -> None:
        parameters = [p for p in chain(self.model.parameters(), self.criterion.parameters()) if p.requires_grad]
        self._optimizer = optim.build_optimizer(self.cfg.optimizer, parameters)
        self._lr_scheduler = lr_scheduler.build_lr_scheduler(self.cfg.lr_scheduler, self._optimizer)
        self._lr_scheduler.step_update(0)

    def get_train_iterator(self, *args: Any, **kwargs: Any) -> Any:
        self._batches = super().get_train_iterator(*args, **kwargs)
        return self._batches

    @metrics.aggregate("train")
    def train_step(self, samples: list[Any], raise_oom: bool = False) -> dict[str, Any]:
        """Run one update; return nothing to log, since :meth:`settle` logs."""
        self._set_seed()
        self.model.train()
        self.criterion.train()
        self.zero_grad()
        metrics.log_start_time("train_wall", priority=800, round=0)
        outputs, size = self._accumulate(samples)
        processes = self.data_parallel_world_size
        if processes > 1:
            size = distributed_utils.all_reduce(self._on_device(size), group=self.data_parallel_process_group)
        self.optimizer.all_reduce_grads(self.model)
        if utils.has_parameters(self.criterion):
            self.optimizer.all_reduce_grads(self.criterion)
        self.optimizer.multiply_grads(processes / (size + (size == 0)))  # 0 predictions have gradients of 0
        norm = self.clip_grad_norm(self.cfg.optimization.clip_norm)
        self.task.optimizer_step(self.optimizer, model=self.model, update_num=self.get_num_updates())
        self._waiting.append((outputs, norm))
        self.set_num_updates(self.get_num_updates() + 1)
        if self._is_logged():
            self.settle()
        metrics.log_stop_time("train_wall")
        return {}

    def _accumulate(self, samples: Sequence[Any]) -> tuple[dict[str, Any], Any]:
        """Add up gradients, logging outputs and sample sizes of the micro-batches."""
        outputs: dict[str, Any] = {}
        size: Any = 0
        for i, batch in enumerate(samples):
            sample, is_dummy = self._prepare_sample(batch)
            communicates = i == len(samples) - 1 or self.data_parallel_world_size == 1
            with nullcontext() if communicates else self.model.no_sync():
                _, count, output = self.task.train_step(
                    sample, self.model, self.criterion, self.optimizer, self.get_num_updates(), ignore_grad=is_dummy
                )
            size = size + count * (not is_dummy)
            outputs |= {name: outputs.get(name, 0) + value * (not is_dummy) for name, value in output.items()}
        return outputs, size

    def _is_logged(self) -> bool:
        """Return whether fairseq logs after this update; after the first it does, since its meters start when they are made."""
        updates, max_update = self.get_num_updates(), self.cfg.optimization.max_update
        ends = self._batches is None or self._batches.end_of_epoch() or (max_update and updates >= max_update)
        return ends or not self._settled or updates % self.cfg.common.log_interval == 0

    def consolidate_optimizer(self) -> None:
        """Settle, in all processes, before one of them writes a checkpoint."""
        self.settle()
        super().consolidate_optimizer()

    def settle(self) -> None:
        """Read what the updates since the last call have left on the device, and log each as fairseq would.

        Raises:
            FloatingPointError: gradients were not finite, or differed between processes. crash.pt has the weights.
        """
        waiting, self._waiting, self._settled = self._waiting, [], True
        if not waiting:
            return
        outputs = torch.stack([self._on_device(value) for output, _ in waiting for value in output.values()])
        local = [float(request.here), self._local_cumulative_training_time()]
        sums = torch.cat([outputs, outputs.new_tensor(local)])
        norms = torch.stack([norm for _, norm in waiting])
        extremes = torch.stack([norms, -norms])
        processes = self.data_parallel_world_size
        if processes > 1:
            distributed_utils.all_reduce(sums, group=self.data_parallel_process_group)
            distributed_utils.all_reduce(extremes, group=self.data_parallel_process_group, op="max")
        *rows, asked_and_time = sums.cpu().split([*(len(output) for output, _ in waiting), len(local)])
        request.everywhere, time = asked_and_time.tolist()
        self._cumulative_training_time = time / processes
        highest, lowest = extremes.cpu() * torch.tensor([[1], [-1]])
        before = self.get_num_updates() - len(waiting)
        with metrics.aggregate("train"), metrics.aggregate("train_inner"):
            self._log_memory()
            for i, ((names, _), row) in enumerate(zip(waiting, rows, strict=True)):
                self._check(before + i, highest[i], lowest[i])
                self._reduce_and_log_stats([dict(zip(names, row, strict=True))], None, highest[i])

    def _check(self, updates: int, highest: Tensor, lowest: Tensor) -> None:
        """Check the largest and the smallest norm of all processes in the update after ``updates`` others."""
        if not (highest.isfinite() and lowest.isfinite()):
            self.set_num_updates(updates)  # the later ones were skipped
            reason = f"gradients are Nan/Inf in update {updates + 1}; the weights before it"
        elif highest - lowest > MAX_DIFFERENCE * (lowest + MAX_DIFFERENCE):
            reason = (
                f"gradients are inconsistent between workers in update {updates + 1} (norms from {lowest:.8f} to {highest:.8f}); "
                "try --ddp-backend legacy_ddp. The weights now"
            )
        else:
            return
        path = Path(self.cfg.checkpoint.save_dir) / "crash.pt"
        self.consolidate_optimizer()
        self.save_checkpoint(str(path), {})
        raise FloatingPointError(f"{reason} are in {path}")

    def _log_memory(self) -> None:
        if self.cuda:
            used = torch.cuda.max_memory_allocated() / 2**30
            torch.cuda.reset_peak_memory_stats()
            metrics.log_scalar("gb_free", self.cuda_env.total_memory_in_GB - used, priority=1500, round=1, weight=0)

    def _on_device(self, value: Any) -> Tensor:
        """Return a number, or a tensor of one element, as float64 on the device, without waiting."""
        if isinstance(value, Tensor):
            return value.detach().reshape(()).to(self.device, torch.float64)
        return torch.full((), value, dtype=torch.float64, device=self.device)
