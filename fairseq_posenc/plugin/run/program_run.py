"""A run of one of fairseq's programs: its checks, its processes, and the context managers around each.

Every program of fairseq calls ``call_main(cfg, main)``, which starts processes unless a launcher has, and calls ``main(cfg)`` in
each of them. :func:`call_main` runs the checks of :mod:`.checks` in the first process, and then everything else within the
context managers :data:`AROUND_ALL`. In each process, ``main`` runs within :data:`AROUND_TRAINING` or :data:`AROUND_OTHERS`.
"""

import functools
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq.distributed import utils as distributed_utils
from fairseq.trainer import Trainer

from ...base.errors import InputError
from ...base.patching import replaced
from ..batches import batch_warmup
from ..optim import fused_adam, muon
from ..processes import graceful_stop, interrupts, launchers
from ..processes.exits import INTERRUPTED, REFUSED, leave_process_group, reason_for_user, refuse
from ..processes.group import free_port, without_gpus
from . import checks, hydra_job, no_decay, readers, refusals, session, training_log
from .non_blocking_trainer import NonBlockingTrainer

NEED_A_MODEL = {f"fairseq_cli.{name}" for name in ("generate", "interactive", "eval_lm", "validate")}


@dataclass
class ProgramRun:
    """A run of one of fairseq's programs.

    Attributes:
        main: the function that every process calls.
        program: the name in messages; None if one of our commands or a script calls fairseq, and handles errors itself.
        engine: the additions of :mod:`.train`, or None.
        trainer: makes the trainer, if it is not fairseq's.
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
        """Whether ``main`` is that of fairseq_cli.train or of a similar program; others validate or generate."""
        return {"validate_and_save", "should_stop_early", "train"} <= self.module.keys()


def call_main(start: Callable, cfg: Any, main: Callable, engine: Any = None, **kwargs: Any) -> None:
    """Call fairseq's ``call_main``, which is ``start``, within the pipeline."""
    launchers.watch()
    run = ProgramRun(cfg, main, _name_of_program() if engine is None else engine.program, engine)
    try:
        for check in (*checks.CHECKS, *(checks.OF_TRAINING if run.trains else ())):
            check(cfg)
        if getattr(run.module.get("__spec__"), "name", None) in NEED_A_MODEL and cfg.common_eval.path is None:
            raise InputError("--path is missing: name a checkpoint that fairseq-train has written")
        if run.trains:
            refusals.check(cfg, 0 if engine is None else engine.zero.stage)
        if engine is not None:
            engine.connect(run)
    except InputError as error:
        if run.program is None:
            raise
        refuse(str(error), run.program)
    with ExitStack() as stack:
        for step in AROUND_ALL:
            stack.enter_context(step(run))
        start_processes(start, cfg, functools.partial(_call_in_process, main, run.program, engine), **kwargs)


def start_processes(call_main: Callable, cfg: Any, main: Callable, **kwargs: Any) -> None:
    """Call fairseq's ``call_main``, or start the processes of ``--cpu --distributed-world-size N``.

    fairseq asserts that there are as many GPUs as processes. Can be removed when fairseq takes ``--cpu`` into account.
    """
    distributed = cfg.distributed_training
    launched = "RANK" in os.environ or distributed.distributed_init_method or distributed.distributed_port > 0
    if not without_gpus(cfg) or distributed.distributed_world_size == 1 or launched:
        call_main(cfg, main, **kwargs)
        return
    distributed.distributed_init_method = f"tcp://localhost:{free_port()}"
    distributed.distributed_rank = None  # each process gets its own
    arguments = (main, cfg, {"start_rank": 0, **kwargs})
    torch.multiprocessing.spawn(distributed_utils.distributed_main, arguments, nprocs=distributed.distributed_world_size)


def _call_in_process(main: Callable, program: str | None, engine: Any, cfg: Any, **kwargs: Any) -> None:
    launchers.watch()
    run = ProgramRun(cfg, main, program, engine)
    with ExitStack() as stack:
        for step in AROUND_TRAINING if run.trains else AROUND_OTHERS:
            stack.enter_context(step(run))
        main(cfg, **kwargs)


def _name_of_program() -> str | None:
    """Return the name of the program of fairseq whose ``cli_main`` has called this, or None."""
    callers = (frame for frame, _ in traceback.walk_stack(sys._getframe(1)) if frame.f_code.co_name == "cli_main")
    names = (getattr(frame.f_globals.get("__spec__"), "name", "") for frame in callers)
    return Path(sys.argv[0]).name if any(name.startswith("fairseq_cli.") for name in names) else None


@contextmanager
def end_with_the_processes(run: ProgramRun) -> Iterator[None]:
    """Exit with the status of the processes that were started; on Ctrl-C, print one line."""
    if run.program is not None:
        interrupts.end_with(run.program, functools.partial(_kept, run))
    try:
        yield
    except torch.multiprocessing.ProcessExitedException as error:
        if error.exit_code in (REFUSED, graceful_stop.STOPPED):  # the process has reported why
            sys.exit(error.exit_code)
        if error.exit_code == -graceful_stop.SIGNAL:
            refuse("asked to stop before training had begun; no checkpoint was saved", run.program, graceful_stop.STOPPED)
        raise
    except KeyboardInterrupt:
        if run.program is None:
            raise
        refuse(f"interrupted. {_kept(run)}", run.program, INTERRUPTED)


def _kept(run: ProgramRun) -> str:
    """Return what an interrupted run has left, and how to go on."""
    last = Path(run.cfg.checkpoint.save_dir, "checkpoint_last.pt")
    if not run.trains:
        return "The same command begins again."
    if not last.exists():
        return "No checkpoint was saved; the same command begins again."
    same = run.cfg.checkpoint.restore_file == last.name
    return f"The same command resumes from {last}." if same else f"Without --restore-file, it resumes from {last}."


def forward_stop_signal(run: ProgramRun) -> AbstractContextManager:
    """Forward the stop signal to the processes, or keep it until this process trains."""
    graceful_stop.request.clear()
    return graceful_stop.handling(graceful_stop.forward)


@contextmanager
def report_errors(run: ProgramRun) -> Iterator[None]:
    """Report an error that the user can correct in one sentence, and end with status 2; otherwise leave the process group."""
    try:
        yield
        if hydra_job.job_number() is None:  # the jobs of a multirun share the group
            leave_process_group()
    except Exception as error:
        if run.program is None:
            raise
        reason = reason_for_user(error)
        if reason is None:
            raise
        refuse(reason, run.program, local_rank=run.cfg.distributed_training.device_id)


def prepare_engine(run: ProgramRun) -> AbstractContextManager:
    """Check DeepSpeed's configuration in all processes, and choose its trainer."""
    return nullcontext() if run.engine is None else run.engine.prepared(run)


@contextmanager
def consolidate(run: ProgramRun) -> Iterator[None]:
    """At the end of training with ZeRO, merge the last checkpoint's shards."""
    yield
    if run.engine is not None:
        run.engine.consolidate(run)


@contextmanager
def stop_on_signal(run: ProgramRun) -> Iterator[None]:
    """On SIGUSR1, save a checkpoint in all processes, and exit with the status :data:`.graceful_stop.STOPPED`."""
    validate_and_save = graceful_stop.save_and_stop(run.module["validate_and_save"])
    with graceful_stop.listening(), replaced(run.module, validate_and_save=validate_and_save):
        yield
    if graceful_stop.request.granted:
        leave_process_group()  # in all processes: a launcher ends the others as soon as one has ended
        sys.exit(graceful_stop.STOPPED)


@contextmanager
def choose_trainer(run: ProgramRun) -> Iterator[None]:
    """Train with the trainer that the optimizer or DeepSpeed needs, unless training is complete, and log more of it."""
    fused = getattr(run.cfg.optimizer, "_name", None) == fused_adam.NAME
    trainer = run.trainer or (NonBlockingTrainer if fused else run.module["Trainer"])
    train = batch_warmup.in_groups(run.module, run.module["train"])
    speed = training_log.Speed(run.cfg.optimization.max_update)
    train = session.unless_done(speed.measured(training_log.profiled(train)))
    stats = speed.logged(run.module["get_training_stats"])
    untimed = training_log.untimed(run.module["validate_and_save"])
    with replaced(run.module, Trainer=trainer, train=train, get_training_stats=stats, validate_and_save=untimed):
        yield


def mark_parameters(init: Callable, trainer: Trainer, *args: Any, **kwargs: Any) -> None:
    """Make a trainer, and mark the parameters for Muon and those that do not decay: fairseq tells optimizers no names."""
    init(trainer, *args, **kwargs)
    if any(getattr(trainer.cfg.model, f"{side}_layerdrop", 0) for side in ("encoder", "decoder")):
        trainer.cfg.distributed_training.find_unused_parameters = True  # a layer that is left out has no gradients
    if trainer.cfg.optimizer._name == muon.NAME:
        muon.mark_matrices(trainer._model)
    no_decay.mark(trainer._model, no_decay.kinds_of(trainer.cfg))


AROUND_ALL = (end_with_the_processes, forward_stop_signal)
AROUND_TRAINING = (
    report_errors,
    prepare_engine,
    session.require_one_data,
    session.lock_save_dir,
    session.forget_last_training,
    consolidate,
    stop_on_signal,
    choose_trainer,
    training_log.name_the_processor,
    readers.end_readers,
)
AROUND_OTHERS = (report_errors, readers.end_readers)
