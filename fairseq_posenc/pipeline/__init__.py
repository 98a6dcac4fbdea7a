"""What happens between ``fairseq-train``, or another of fairseq's programs, and the first update.

Every program of fairseq's calls ``call_main(cfg, main)``, which starts processes unless a launcher has, and calls ``main(cfg)``
in each of them. Importing this package wraps it in :func:`call_main`. In the process that was started, that runs the checks of
:mod:`.checks`; then, around everything else, the context managers in :data:`AROUND_ALL`; and in each process, around ``main``,
those in :data:`AROUND_TRAINING` or :data:`AROUND_OTHERS`. Below them are the other functions of fairseq's that are wrapped.
"""

from __future__ import annotations

import functools
import logging
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils, utils
from fairseq.dataclass.initialize import add_defaults
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer
from hydra.core.utils import filter_overrides
from hydra.plugins.sweeper import Sweeper

from ..async_step import NAME as FUSED_ADAM
from ..async_step import NonBlockingTrainer
from ..compat import graceful_stop, launchers
from ..compat.data import ending_readers
from ..compat.distributed import start_processes
from ..compat.exits import INTERRUPTED, REFUSED, leave_together, left_to_the_first, reason_for_user, refuse
from ..compat.view import replaced, wrap
from ..errors import InputError, Refused
from ..models import resume
from ..models.architectures import update_configs
from ..models.reading import load_models, load_to_cpu
from . import checks, session

logger = logging.getLogger(__name__)

NEED_A_MODEL = {f"fairseq_cli.{name}" for name in ("generate", "interactive", "eval_lm", "validate")}


@dataclass
class Run:
    """What a program of fairseq's is about to do.

    Attributes:
        cfg: its configuration.
        main: its function, which every process calls.
        program: its name in messages; None where a command of ours or a script calls fairseq, and handles errors itself.
        engine: what :mod:`.train` adds; None without it.
        trainer: makes the trainer, where it is not fairseq's.
    """

    cfg: Any
    main: Callable
    program: str | None
    engine: Any = None
    trainer: Callable | None = None

    @property
    def module(self) -> dict[str, Any]:
        """The globals of the program."""
        return getattr(self.main, "__globals__", {})

    @property
    def trains(self) -> bool:
        """Whether ``main`` is that of fairseq_cli.train, or of a program made like it; others validate or generate."""
        return {"validate_and_save", "should_stop_early", "train"} <= self.module.keys()


@wrap(distributed_utils, "call_main")
def call_main(start: Callable, cfg: Any, main: Callable, engine: Any = None, **kwargs: Any) -> None:
    """fairseq's ``call_main``, which is ``start``, with the pipeline around it."""
    launchers.watch()
    run = Run(cfg, main, _name_of_program() if engine is None else engine.program, engine)
    try:
        for check in (*checks.CHECKS, *(checks.OF_TRAINING if run.trains else ())):
            check(cfg)
    except InputError as error:
        if run.program is None:
            raise
        refuse(str(error), run.program)
    with ExitStack() as stack:
        for step in AROUND_ALL:
            stack.enter_context(step(run))
        start_processes(start, cfg, functools.partial(_call_in_process, main, run.program, engine), **kwargs)


def _call_in_process(main: Callable, program: str | None, engine: Any, cfg: Any, **kwargs: Any) -> None:
    """``main``, in one process of the run."""
    launchers.watch()
    run = Run(cfg, main, program, engine)
    with ExitStack() as stack:
        for step in AROUND_TRAINING if run.trains else AROUND_OTHERS:
            stack.enter_context(step(run))
        main(cfg, **kwargs)


def _name_of_program() -> str | None:
    """The name of the program of fairseq's whose ``cli_main`` has called this; None where none has."""
    callers = (frame for frame, _ in traceback.walk_stack(sys._getframe(1)) if frame.f_code.co_name == "cli_main")
    names = (getattr(frame.f_globals.get("__spec__"), "name", "") for frame in callers)
    return Path(sys.argv[0]).name if any(name.startswith("fairseq_cli.") for name in names) else None


@contextmanager
def end_with_the_processes(run: Run) -> Iterator[None]:
    """Exit as the processes that were started did, and on Ctrl-C in one line."""
    try:
        yield
    except torch.multiprocessing.ProcessExitedException as error:
        if error.exit_code in (REFUSED, graceful_stop.STOPPED):  # the process has reported why
            sys.exit(error.exit_code)
        raise
    except KeyboardInterrupt:
        if run.program is None:
            raise
        last = Path(run.cfg.checkpoint.save_dir, "checkpoint_last.pt")
        resumes = f" The same command resumes from {last}." if run.trains and last.exists() else ""
        refuse(f"interrupted.{resumes}", run.program, INTERRUPTED)


def pass_stop_signal_on(run: Run) -> AbstractContextManager:
    """Pass the signal to stop on to the processes."""
    return graceful_stop.handling(graceful_stop.pass_on)


def connect_engine(run: Run) -> AbstractContextManager:
    """Check and prepare how processes meet, for DeepSpeed."""
    return nullcontext() if run.engine is None else run.engine.connected(run)


@contextmanager
def report_errors(run: Run) -> Iterator[None]:
    """Report an error that the user can mend in one sentence, and end with status 2."""
    try:
        yield
    except KeyboardInterrupt:  # which PyTorch raises in the processes that it spawned, and handles, when their parent ends
        launchers.have_ended(launchers.launchers())
        raise
    except Exception as error:
        if run.program is None:
            raise
        distributed_training = run.cfg.distributed_training
        if isinstance(error, Refused):  # by all processes
            if distributed_training.distributed_rank == 0:
                print(f"{run.program}: {error}", file=sys.stderr, flush=True)
            leave_together(REFUSED)
        reason = reason_for_user(error)
        if reason is None or left_to_the_first(distributed_training.device_id):  # had it seen it, this process would have ended
            raise
        refuse(reason, run.program)


def prepare_engine(run: Run) -> AbstractContextManager:
    """Check DeepSpeed's configuration in all processes, and choose its trainer."""
    return nullcontext() if run.engine is None else run.engine.prepared(run)


def lock_save_dir(run: Run) -> AbstractContextManager:
    """Let no other training write to ``--save-dir``."""
    return session.locked(run.cfg)


def forget_last_training(run: Run) -> AbstractContextManager:
    """Start as in a new process, and close what fairseq leaves open."""
    return session.fresh(run.module)


@contextmanager
def consolidate(run: Run) -> Iterator[None]:
    """At the end of training with ZeRO, merge the last checkpoint."""
    yield
    if run.engine is not None:
        run.engine.consolidate(run)


@contextmanager
def stop_on_signal(run: Run) -> Iterator[None]:
    """On SIGUSR1, save a checkpoint in all processes, and exit with a status of its own."""
    validate_and_save = graceful_stop.save_and_stop(run.module["validate_and_save"])
    with graceful_stop.listening(), replaced(run.module, validate_and_save=validate_and_save):
        yield
    if graceful_stop.request.granted:
        leave_together(graceful_stop.STOPPED)


@contextmanager
def choose_trainer(run: Run) -> Iterator[None]:
    """Train with the trainer that the optimizer or DeepSpeed needs, unless nothing is left to train."""
    fused = getattr(run.cfg.optimizer, "_name", None) == FUSED_ADAM
    trainer = run.trainer or (NonBlockingTrainer if fused else run.module["Trainer"])
    with replaced(run.module, Trainer=trainer, train=session.unless_done(run.module["train"])):
        yield


def end_readers(run: Run) -> AbstractContextManager:
    """End the threads that read batches ahead."""
    return ending_readers()


@contextmanager
def require_checkpoint(run: Run) -> Iterator[None]:
    """Refuse a program that uses a trained model without ``--path``."""
    if getattr(run.module.get("__spec__"), "name", None) in NEED_A_MODEL and run.cfg.common_eval.path is None:
        raise InputError("--path is missing: name a checkpoint, as fairseq-train makes them")
    yield


AROUND_ALL = (end_with_the_processes, pass_stop_signal_on, connect_engine)
AROUND_TRAINING = (
    report_errors,
    prepare_engine,
    lock_save_dir,
    forget_last_training,
    consolidate,
    stop_on_signal,
    choose_trainer,
    end_readers,
)
AROUND_OTHERS = (report_errors, require_checkpoint, end_readers)


@wrap(Trainer, "load_checkpoint")
def load_checkpoint(load: Callable, trainer: Trainer, filename: str, *args: Any, **kwargs: Any) -> Any:
    """fairseq's ``Trainer.load_checkpoint``, of a file that exists if it was named, and that has the same model.

    fairseq logs one line about a missing ``--restore-file`` and trains from scratch. Only the default, checkpoint_last.pt in
    ``--save-dir``, may be absent.
    """
    default = str(Path(trainer.cfg.checkpoint.save_dir, f"checkpoint_last{trainer.checkpoint_suffix}.pt"))
    # Only one process per node may see the file; the others receive its contents.
    if Path(filename) != Path(default) and trainer.data_parallel_rank == 0 and not PathManager.isfile(filename):
        raise FileNotFoundError(
            f"--restore-file {filename} does not exist. Correct the path, or leave the flag out: then training continues "
            f"from {default} where that exists and starts from scratch where it does not."
        )
    return resume.load_same_model(load, trainer, filename, *args, **kwargs)


@wrap(Sweeper, "validate_batch_is_legal")
def check_jobs(validate: Callable, sweeper: Sweeper, batch: Sequence[Sequence[str]]) -> None:
    """Hydra's check of the jobs of a multirun before the first starts, and ours."""
    validate(sweeper, batch)
    for overrides in batch:
        cfg = sweeper.config_loader.load_sweep_config(sweeper.config, list(overrides))
        add_defaults(cfg)
        try:
            for check in checks.OF_JOBS:
                check(cfg)
        except InputError as error:
            refuse(f"{' '.join(filter_overrides(overrides))}: {error}")


@wrap(Trainer, "begin_valid_epoch")
def plot_positions(begin_valid_epoch: Callable, trainer: Trainer, epoch: int) -> Any:
    """fairseq's start of a validation, before which ``--position-plots`` draws."""
    if getattr(trainer.cfg.model, "position_plots", False):
        from ..analysis.position_plots import plot_positions

        plot_positions(trainer)
    return begin_valid_epoch(trainer, epoch)


@wrap(utils, "import_user_module")
def import_user_module(imports: Callable, args: Any) -> None:
    """fairseq's import of ``--user-dir``, whose schemes then have flags."""
    imports(args)
    if getattr(args, "user_dir", None) is not None:
        update_configs()


wrap(checkpoint_utils, "load_model_ensemble_and_task")(load_models)
wrap(checkpoint_utils, "load_checkpoint_to_cpu")(load_to_cpu)
wrap(FairseqTask, "state_dict")(resume.state_dict)
wrap(FairseqTask, "load_state_dict")(resume.load_state_dict)
wrap(Trainer, "_aggregate_logging_outputs")(graceful_stop.share_request)
