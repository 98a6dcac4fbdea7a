"""Functions of fairseq and Hydra that do more once they are wrapped here, besides ``call_main`` of :mod:`.program_run`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils, utils
from fairseq.dataclass.initialize import add_defaults
from fairseq.file_io import PathManager
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer
from hydra.core.utils import filter_overrides
from hydra.plugins.sweeper import Sweeper

from ...base.errors import InputError
from ..models.reading import load_models, load_to_cpu
from ..optim import muon
from ..options.architectures import update_configs
from ..patches.patching import wrap
from ..processes import graceful_stop
from ..processes.exits import refuse
from . import checks, resume


@wrap(Trainer, "load_checkpoint")
def load_checkpoint(load: Callable, trainer: Trainer, filename: str, *args: Any, **kwargs: Any) -> Any:
    """Call fairseq's ``Trainer.load_checkpoint`` if the file exists and has the same model.

    If ``--restore-file`` is missing, fairseq would train from scratch. Only its default, checkpoint_last.pt in ``--save-dir``,
    may be missing.
    """
    default = str(Path(trainer.cfg.checkpoint.save_dir, f"checkpoint_last{trainer.checkpoint_suffix}.pt"))
    # Only one process per node may see the file; the others receive its contents.
    if Path(filename) != Path(default) and trainer.data_parallel_rank == 0 and not PathManager.isfile(filename):
        raise FileNotFoundError(
            f"--restore-file {filename} does not exist. Correct the path, or leave the flag out: then training continues "
            f"from {default} if that exists, and starts from scratch otherwise."
        )
    return resume.refuse_resuming_another_model(load, trainer, filename, *args, **kwargs)


@wrap(Trainer, "_build_optimizer")
def build_optimizer(build: Callable, trainer: Trainer) -> None:
    """Build the optimizer; Muon's gets parameters that are marked, since fairseq gives it no names."""
    if trainer.cfg.optimizer._name == muon.NAME:
        muon.mark_matrices(trainer.model)
    build(trainer)


@wrap(Sweeper, "validate_batch_is_legal")
def check_jobs(validate: Callable, sweeper: Any, batch: Sequence[Sequence[str]]) -> None:
    """Check all jobs of a multirun before the first starts."""
    validate(sweeper, batch)
    for overrides in batch:
        cfg = sweeper.hydra_context.config_loader.load_sweep_config(sweeper.config, list(overrides))
        add_defaults(cfg)
        try:
            for check in checks.OF_JOBS:
                check(cfg)
        except InputError as error:
            refuse(f"{' '.join(filter_overrides(overrides))}: {error}")


@wrap(FairseqTask, "valid_step")
def valid_step(step: Callable, task: FairseqTask, sample: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any, dict[str, Any]]:
    """Skip the empty batches that fairseq-validate gives to processes among which the batches do not divide evenly."""
    return step(task, sample, *args, **kwargs) if sample else (0, 0, {})


@wrap(utils, "import_user_module")
def import_user_module(imports: Callable, args: Any) -> None:
    """Import ``--user-dir``, and give its schemes flags."""
    try:
        imports(args)
    except FileNotFoundError as error:
        if error.strerror:  # a file that the package opens
            raise
        raise InputError(f"--user-dir {error}: there is no such folder") from error
    if getattr(args, "user_dir", None) is not None:
        update_configs()


wrap(checkpoint_utils, "load_model_ensemble_and_task")(load_models)
wrap(checkpoint_utils, "load_checkpoint_to_cpu")(load_to_cpu)
wrap(FairseqTask, "state_dict")(resume.state_dict)
wrap(FairseqTask, "load_state_dict")(resume.load_state_dict)
wrap(Trainer, "_aggregate_logging_outputs")(graceful_stop.share_request)
