"""fairseq's trainer on DeepSpeed's engine."""

import copy
import logging
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import deepspeed
from deepspeed.accelerator import get_accelerator
from deepspeed.runtime.config import DeepSpeedConfig
from fairseq import optim, utils
from fairseq.optim import lr_scheduler
from fairseq.trainer import Trainer
from pydantic import ValidationError
from torch import Tensor, nn

from ...base.errors import InputError, first_line
from ..checkpoint.checkpoint_file import optimizer_state_of, peek
from ..processes.group import from_first_process, gather
from . import sharded_checkpoint
from .optimizer import EngineOptimizer

logger = logging.getLogger(__name__)


class DeepSpeedTrainer(Trainer):
    """A trainer whose engine holds and updates the parameters; steps, data, schedule, logging and names are the base class's.

    The engine is built with the optimizer, after the weights of a checkpoint have been loaded into the model.

    Args:
        deepspeed_config: from :func:`.zero_config.complete`; the other arguments are the base class's.

    Raises:
        InputError: the criterion has parameters.
    """

    def __init__(self, cfg: Any, task: Any, model: nn.Module, criterion: nn.Module, quantizer: Any = None, *,
                 deepspeed_config: dict[str, Any]) -> None:  # fmt: skip
        if utils.has_parameters(criterion):
            raise InputError(f"--criterion {cfg.criterion._name} has parameters, which need --deepspeed-config zero0")
        super().__init__(cfg, task, model, criterion, quantizer)
        kept = sorted({str(part.name) for part in model.modules() if getattr(part, "keeps_float32", False)})
        if kept and (cfg.common.bf16 or cfg.common.fp16) and self.is_data_parallel_master:
            logger.warning(
                f"DeepSpeed rounds the parameters of {' and '.join(kept)} to half precision, in which distant positions are "
                "inexact: --deepspeed-config zero0 keeps them in float32"
            )
        self._deepspeed_config = deepspeed_config
        self._engine: Any = None
        self._restored_from = Path(cfg.checkpoint.save_dir)  # the folder of the checkpoint that training continues from
        self._gathered_weights: dict[str, Tensor] | None = None  # at stage 3, while a checkpoint is written
        self._in_step = False

    @property
    def use_distributed_wrapper(self) -> bool:
        return False

    @property
    def model(self) -> Any:
        return self._engine or self._model

    def _build_optimizer(self) -> None:
        parameters = [p for p in self._model.parameters() if p.requires_grad]
        fairseq_optimizer = optim.build_optimizer(self.cfg.optimizer, parameters)
        if not fairseq_optimizer.supports_flat_params:
            raise InputError(
                f"--optimizer {self.cfg.optimizer._name} needs each parameter as a whole (its supports_flat_params is false), "
                "and ZeRO joins and divides them: use --optimizer adam, or --deepspeed-config zero0."
            )
        deepspeed.init_distributed(get_accelerator().communication_backend_name(), dist_init_required=False)
        check_config(self._deepspeed_config)
        try:
            self._engine, *_ = deepspeed.initialize(
                model=self._model, optimizer=fairseq_optimizer.optimizer, config=self._deepspeed_config, dist_init_required=False
            )
        except AssertionError as error:
            raise _rejected(error) from error
        self._engine.no_sync = nullcontext  # the engine decides when to communicate; its own no_sync refuses stages 2 and 3
        self._optimizer = EngineOptimizer(self.cfg.optimizer, self._engine, self._load_shards)
        self._lr_scheduler = lr_scheduler.build_lr_scheduler(self.cfg.lr_scheduler, self._optimizer)
        self._lr_scheduler.step_update(0)

    def train_step(self, samples: list, raise_oom: bool = False) -> dict[str, Any] | None:
        """Run one update. Running out of memory ends the run: to skip a batch, all processes would have to know."""
        self._in_step = True
        try:
            return super().train_step(samples, raise_oom=True)
        finally:
            self._in_step = False

    def valid_step(self, sample: Any, raise_oom: bool = False) -> dict[str, Any]:
        """Validate on one batch. Running out of memory ends the run."""
        return super().valid_step(sample, raise_oom=True)

    # fairseq calls consolidate_optimizer in all processes, and the rest in the first one, only if it decides to write a file.
    # So consolidate_optimizer does everything that needs all processes.

    def consolidate_optimizer(self) -> None:
        """Write the shards, and at stage 3 gather the weights for the first process.

        Within a step it does nothing: there, the base class is about to write crash.pt because this one process failed.
        """
        self._gathered_optim_state = self._gathered_weights = None
        if self._in_step:
            return
        if self._engine.zero_optimization_partition_weights():
            self._gathered_weights = self._engine._zero3_consolidated_16bit_state_dict()  # by all processes, for the first
        if not self.cfg.checkpoint.no_save_optimizer_state:
            save_dir = Path(self.cfg.checkpoint.save_dir)
            shards = sharded_checkpoint.save(self._engine, self.cfg.optimizer._name, save_dir, self.get_num_updates())
            self._gathered_optim_state = shards.as_optimizer_state()

    def save_checkpoint(self, filename: str, extra_state: dict[str, Any]) -> None:
        """Write the plain file, except within a step, where only this process would write it."""
        if not self._in_step:
            super().save_checkpoint(filename, extra_state)

    def state_dict(self) -> dict[str, Any]:
        """Return the content of the plain file, in the first process; called after :meth:`consolidate_optimizer`."""
        weights, self._gathered_weights = self._gathered_weights, None
        return {**super().state_dict(), "model": self._model.state_dict() if weights is None else weights}

    def load_checkpoint(self, filename: str, reset_optimizer: bool = False, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
        """Load a sharded or a plain checkpoint.

        Raises:
            InputError: the optimizer state of a plain one is unsharded or missing, and no flag resets the optimizer.
        """
        content = peek(filename) if self.data_parallel_rank == 0 else {}
        is_plain = content != {} and not sharded_checkpoint.is_sharded(optimizer_state_of(content))
        if from_first_process(is_plain) and not reset_optimizer:
            raise InputError(
                f"{filename} has no sharded optimizer state, from which ZeRO could resume. If it is an unsharded training's, "
                "continue with --deepspeed-config zero0; or start from its weights: --finetune-from-model, or --restore-file "
                "with --reset-optimizer."
            )
        self._restored_from = Path(filename).parent
        return super().load_checkpoint(filename, reset_optimizer, *args, **kwargs)

    def _load_shards(self, state: dict[str, Any]) -> None:
        shards: Any = sharded_checkpoint.Shards.of(state)  # not None, as load_checkpoint has seen
        if shards.optimizer != self.cfg.optimizer._name:
            raise InputError(
                f"--optimizer {self.cfg.optimizer._name} cannot continue from the state of {shards.optimizer} in the checkpoint. "
                "Start from its weights: --finetune-from-model, or --restore-file with --reset-optimizer."
            )
        failure = None
        try:
            sharded_checkpoint.load(self._engine, shards, self._restored_from)
        except (RuntimeError, OSError) as error:
            failure = str(error)
        if failures := [*filter(None, gather(failure))]:
            raise InputError(failures[0])


def check_config(config: dict[str, Any]) -> None:
    """Check a configuration by DeepSpeed's own models, which reject unknown keys and wrong types.

    Raises:
        InputError: DeepSpeed rejects it.
    """
    try:
        DeepSpeedConfig(copy.deepcopy(config))
    except Exception as error:  # of several types
        raise _rejected(error) from error


def _rejected(error: Exception) -> InputError:
    if isinstance(error, ValidationError):
        reason = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
    else:
        reason = f"{first_line(error)} ({type(error).__name__})"
    return InputError(f"--deepspeed-config has a value that DeepSpeed rejects: {reason}")
