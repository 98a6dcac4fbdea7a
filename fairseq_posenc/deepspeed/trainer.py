"""fairseq's trainer on DeepSpeed's engine."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import deepspeed
from deepspeed.accelerator import get_accelerator
from deepspeed.runtime.config import DeepSpeedConfig
from fairseq import optim, utils
from fairseq.file_io import PathManager
from fairseq.optim import lr_scheduler
from fairseq.trainer import Trainer
from pydantic import ValidationError
from torch import Tensor, distributed, nn

from ..errors import Refused
from . import checkpoint, communication
from .checkpoint import Shards
from .optimizer import EngineOptimizer

NO_OPTIMIZER_STATE = "has no optimizer state, without which training cannot resume. Start from its weights"
UNSHARDED_STATE = (
    "has the state of an unsharded optimizer, which cannot be sharded now. Continue it with --deepspeed-config zero0, or start "
    "from its weights"
)


class DeepSpeedTrainer(Trainer):
    """The steps, data, schedule, logging and checkpoint names are the base class's; the engine holds and updates parameters.

    The engine is built with the optimizer, that is, after the weights of a checkpoint have been loaded into the model.

    Args:
        deepspeed_config: complete, from :func:`.config.complete`; the other arguments are the base class's.

    Raises:
        Refused: a criterion with parameters.
    """

    def __init__(self, cfg: Any, task: Any, model: nn.Module, criterion: nn.Module, quantizer: Any = None, *,
                 deepspeed_config: dict[str, Any]) -> None:  # fmt: skip
        if utils.has_parameters(criterion):
            raise Refused(
                f"--criterion {cfg.criterion._name} has parameters of its own, which the engine would not train. Use "
                "--deepspeed-config zero0."
            )
        super().__init__(cfg, task, model, criterion, quantizer)
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
        config = self._deepspeed_config
        deepspeed.init_distributed(get_accelerator().communication_backend_name(), dist_init_required=False)
        with _refusing(Exception):  # DeepSpeed rejects settings with several exceptions
            DeepSpeedConfig(copy.deepcopy(config))
        with _refusing(AssertionError):
            self._engine, *_ = deepspeed.initialize(
                model=self._model, optimizer=fairseq_optimizer.optimizer, config=config, dist_init_required=False
            )
        self._engine.no_sync = nullcontext  # the engine decides when to communicate; its own no_sync refuses stages 2 and 3
        self._optimizer = EngineOptimizer(self.cfg.optimizer, self._engine, self._load_shards)
        self._lr_scheduler = lr_scheduler.build_lr_scheduler(self.cfg.lr_scheduler, self._optimizer)
        self._lr_scheduler.step_update(0)

    def train_step(self, samples: list, raise_oom: bool = False) -> dict[str, Any] | None:
        """One update. Running out of memory ends the run: to skip a batch, all processes would have to know."""
        self._in_step = True
        try:
            return super().train_step(samples, raise_oom=True)
        finally:
            self._in_step = False

    def valid_step(self, sample: Any, raise_oom: bool = False) -> dict[str, Any]:
        return super().valid_step(sample, raise_oom=True)

    # Checkpoints. fairseq calls consolidate_optimizer in all processes; the rest in the first one, and only if it decides to
    # write a file. So everything that needs all processes is done there.

    def consolidate_optimizer(self) -> None:
        """Write the shards, and at stage 3 gather the weights for the first process.

        It does nothing within a step: there, the base class is about to write crash.pt because this one process failed.
        """
        self._gathered_optim_state = self._gathered_weights = None
        if self._in_step:
            return
        if self._engine.zero_optimization_partition_weights():
            self._gathered_weights = self.whole_weights()
        if not self.cfg.checkpoint.no_save_optimizer_state:
            save_dir = Path(self.cfg.checkpoint.save_dir)
            shards = checkpoint.save(self._engine, self.cfg.optimizer._name, save_dir, self.get_num_updates())
            self._gathered_optim_state = shards.as_optimizer_state()

    def whole_weights(self) -> dict[str, Tensor] | None:
        """Every parameter by its name: at stage 3, gathered by all processes for the first one; None in the others then."""
        if self._engine.zero_optimization_partition_weights():
            return self._engine._zero3_consolidated_16bit_state_dict()
        return self._model.state_dict()

    def save_checkpoint(self, filename: str, extra_state: dict[str, Any]) -> None:
        if not self._in_step:
            super().save_checkpoint(filename, extra_state)

    def state_dict(self) -> dict[str, Any]:
        """The content of the plain file, in the first process; after :meth:`consolidate_optimizer`."""
        weights, self._gathered_weights = self._gathered_weights, None
        return {**super().state_dict(), "model": self._model.state_dict() if weights is None else weights}

    def load_checkpoint(self, filename: str, reset_optimizer: bool = False, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
        """Load a checkpoint, ours or a plain one.

        Raises:
            Refused: a plain one whose optimizer state is unsharded or missing, without a flag that resets the optimizer.
        """
        shards = self._find_shards(filename, reset_optimizer)
        self._restored_from = Path(filename).parent
        extra_state = super().load_checkpoint(filename, reset_optimizer, *args, **kwargs)
        if shards is not None and extra_state is not None:
            _reposition(extra_state["train_iterator"], shards.processes, distributed.get_world_size())
        return extra_state

    def _find_shards(self, filename: str, reset_optimizer: bool) -> Shards | None:
        """What the first process finds in the plain file."""
        found: list[Any] = [None]
        if self.data_parallel_rank == 0 and PathManager.isfile(filename):
            with suppress(Exception):  # loading a damaged file reports what is wrong with it
                state = checkpoint.optimizer_state_of(Path(filename))
                found = [state if checkpoint.is_sharded(state) else NO_OPTIMIZER_STATE if state is None else UNSHARDED_STATE]
        distributed.broadcast_object_list(found, src=0)
        if not isinstance(found[0], str):
            return Shards.of(found[0])
        if not reset_optimizer:
            raise Refused(f"{filename} {found[0]}: --finetune-from-model, or --restore-file with --reset-optimizer.")
        return None

    def _load_shards(self, state: dict[str, Any]) -> None:
        shards = Shards.of(state)
        assert shards is not None  # as _find_shards has seen
        if shards.optimizer != self.cfg.optimizer._name:
            raise Refused(
                f"--optimizer {self.cfg.optimizer._name} cannot continue from the state of {shards.optimizer} in the checkpoint. "
                "Start from its weights: --finetune-from-model, or --restore-file with --reset-optimizer."
            )
        failure = None
        try:
            checkpoint.load(self._engine, shards, self._restored_from)
        except (RuntimeError, OSError) as error:
            failure = str(error)
        for found in filter(None, communication.gather(failure)):
            raise Refused(found)


@contextmanager
def _refusing(errors: type[Exception]) -> Iterator[None]:
    """Turn DeepSpeed's complaints about its configuration into one line."""
    try:
        yield
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise Refused(f"--deepspeed-config has what DeepSpeed does not take: {wrong}") from error
    except errors as error:
        wrong = str(error).partition("\n")[0]
        raise Refused(f"--deepspeed-config has what DeepSpeed does not take: {wrong} ({type(error).__name__})") from error


def _reposition(iterator: dict[str, Any], before: int, now: int) -> None:
    """Convert a position in the data, counted in batches per process, to another number of processes.

    If it does not divide evenly, each process sees up to one batch again.
    """
    iterator["iterations_in_epoch"] = iterator["iterations_in_epoch"] * before // now
