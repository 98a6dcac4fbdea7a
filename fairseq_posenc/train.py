"""``fairseq-train`` with DeepSpeed: what every launcher starts.

    deepspeed --hostfile hosts --module fairseq_posenc.train DATA --arch roberta_tisa --deepspeed-config zero2 …
    torchrun --nproc-per-node 8 -m fairseq_posenc.train DATA …
    srun python -m fairseq_posenc.train DATA …          (MASTER_ADDR set, one task per GPU)
    python -m fairseq_posenc.train DATA …               (all GPUs of this host)

Options are fairseq-train's, and those below. The form of fairseq-hydra-train works too:

    … fairseq_posenc.train --deepspeed-config zero2 --config-dir DIR --config-name NAME task.data=DATA
"""

from __future__ import annotations

import argparse
import functools
import logging
import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import distributed

from .compat import exits, hydra_1_0, runs, sentences
from .compat.distributed import without_gpus
from .compat.leaving import LEFT_OFF
from .compat.view import View
from .deepspeed import checkpoint, communication, config, consolidate
from .deepspeed.config import ZeroConfig
from .errors import Refused

# What imports fairseq or DeepSpeed is imported within functions: they look at the environment, which main completes first.

logger = logging.getLogger("fairseq_posenc.train")

HYDRA_FLAGS = ("--config-dir", "-cd", "--config-name", "-cn", "--config-path", "-cp")
TIMEOUT = 600.0  # seconds
LONGEST_TIMEOUT = 1e9  # seconds


@dataclass(frozen=True)
class Run:
    """A command's own options, besides fairseq's."""

    zero: ZeroConfig
    timeout: float  # seconds that another process may be silent
    consolidates: bool  # whether to merge the last checkpoint at the end

    @classmethod
    def of(cls, options: argparse.Namespace) -> Run:
        """Check the options and read the file, before Hydra changes the current folder.

        Raises:
            Refused: what this host finds wrong.
        """
        if not 0 < options.distributed_timeout <= LONGEST_TIMEOUT:
            raise Refused(f"--distributed-timeout {options.distributed_timeout}: a positive number of seconds is needed")
        zero = config.read(options.deepspeed_config)
        if zero.stage > 0:
            config.require_deepspeed()
        return cls(zero, options.distributed_timeout, consolidates=not options.no_consolidate)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options besides fairseq's."""
    group = parser.add_argument_group("DeepSpeed")
    group.add_argument("--deepspeed-config", default="zero0", metavar="NAME|FILE",
                       help="zero0 (fairseq's own data parallelism, the default), zero1, zero2, zero3, zero2-offload, "
                       "zero3-offload, or a JSON file; what fairseq has options for is filled in from them")  # fmt: skip
    group.add_argument("--distributed-timeout", type=float, default=TIMEOUT, metavar="SECONDS",
                       help="give up when another process has not answered for this long (default: %(default)s)")  # fmt: skip
    group.add_argument("--no-consolidate", action="store_true", help="at the end of training with ZeRO, do not write "
                       "consolidated.pt, a plain checkpoint with all weights in float32, into --save-dir")  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Train; returns the exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_arguments(parser)
    options, rest = parser.parse_known_args(argv)
    if {"-h", "--help"} & set(rest):  # fairseq's follows
        print(f"{__doc__}\n{parser.format_help().partition(chr(10) * 2)[2]}")
    communication.rank_from_slurm(os.environ)  # LOCAL_RANK, which fairseq looks for when it is imported
    try:
        run = Run.of(options)
    except Refused as error:
        exits.refuse(str(error), f"fairseq_posenc.train on {platform.node()}")
    if "--cpu" in rest or "common.cpu=true" in rest or not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")  # which DeepSpeed looks for when fairseq imports it
    if any(argument.partition("=")[0] in HYDRA_FLAGS for argument in rest):
        from fairseq_cli import hydra_train as cli

        # DeepSpeed's launcher adds --local_rank, which Hydra would refuse; LOCAL_RANK says the same.
        rest = [argument for argument in rest if not argument.startswith("--local_rank=")]
    else:
        from fairseq_cli import train as cli
    _train(cli, run, rest)
    return 0


def _train(cli: ModuleType, run: Run, arguments: list[str]) -> None:
    """Run one of fairseq's commands with ``arguments``, and :func:`_call_main` in place of its ``call_main``."""
    sys.argv[1:] = arguments
    call_main = functools.partial(_call_main, run, cli.distributed_utils.call_main)
    cli.distributed_utils = View(cli.distributed_utils, call_main=call_main)
    cli.cli_main()


def _call_main(run: Run, call_main: Callable, cfg: Any, main: Callable, **kwargs: Any) -> None:
    """fairseq's ``call_main``, which starts processes unless a launcher has, with :func:`_run` around ``main``."""
    communication.limit_waiting(run.timeout)
    if run.zero.stage > 0 and "RANK" not in os.environ and cfg.distributed_training.distributed_world_size == 1:
        communication.world_of_one(os.environ)
    main = functools.partial(_run, run, main, _timestamped_folder(cfg))  # Hydra is not in the processes that call_main makes
    with _lost_peers_named(run, cfg):
        call_main(cfg, main, **kwargs)


def _timestamped_folder(cfg: Any) -> str | None:
    """The refusal of a ``save_dir`` in a folder that Hydra has made for this start only; None if it is elsewhere."""
    save_dir = Path(cfg.checkpoint.save_dir)
    instead = hydra_1_0.instead_of_timestamped_folder()
    if instead is None or save_dir.is_absolute() or cfg.checkpoint.no_save:
        return None
    return (
        f"checkpoint.save_dir={save_dir} is relative, and Hydra has just made a folder for this start, {Path.cwd()}, where a "
        f"restart would not look. Add {instead} to the command, or give an absolute path."
    )


def _run(run: Run, main: Callable, refusal: str | None, cfg: Any, **kwargs: Any) -> None:
    """Train in one process of an initialised world; if that is refused, say so and exit.

    Args:
        refusal: what was found wrong before the processes started.
    """
    communication.limit_waiting(run.timeout)  # again, in a process that call_main made
    completed = None
    try:
        completed = _complete(run, cfg)
    except Refused as error:  # caught here, because Hydra and torch.multiprocessing would wrap it in tracebacks
        refusal = refusal or str(error)
    refusals = communication.gather((refusal, platform.node()))
    if all(each is None for each, _ in refusals):
        try:
            _train_here(run, completed, main, cfg, **kwargs)
            return
        except Refused as error:  # all processes find the same
            refusals = [(str(error), "")]
        except Exception:
            local_rank = cfg.distributed_training.device_id
            with sentences.in_sentences(main.__globals__, local_rank=local_rank, name="fairseq_posenc.train"):
                raise
    if cfg.distributed_training.distributed_rank == 0:
        for said in sorted({each for each, _ in refusals if each is not None}):
            _say(said, sorted({host for each, host in refusals if each == said and host}))
    exits.leave_together(exits.REFUSED)


def _say(refusal: str, hosts: Sequence[str] = ()) -> None:
    where = f" on {', '.join(hosts)}" if hosts else ""
    print(f"fairseq_posenc.train{where}: {refusal}", file=sys.stderr, flush=True)


def _complete(run: Run, cfg: Any) -> dict[str, Any]:
    """DeepSpeed's configuration, after the checks that this process makes without talking to others."""
    if run.zero.stage > 0:
        communication.require_one_device(without_gpus(cfg))
    return config.complete(run.zero, cfg, cfg.distributed_training.distributed_world_size)


def _train_here(run: Run, completed: dict[str, Any], main: Callable, cfg: Any, **kwargs: Any) -> None:
    sharded = run.zero.stage > 0
    if sharded:
        if not cfg.checkpoint.no_save:
            checkpoint.require_shared(Path(cfg.checkpoint.save_dir))
        if without_gpus(cfg):
            communication.without_inference_kernels()
        os.environ.setdefault("LOCAL_RANK", str(cfg.distributed_training.device_id))
        from fairseq_cli import train

        from .deepspeed.trainer import DeepSpeedTrainer

        train.Trainer = functools.partial(DeepSpeedTrainer, deepspeed_config=completed)
    with runs.training(main, cfg) as request, _lost_peers_named(run, cfg):
        main(cfg, **kwargs)
        if sharded and run.consolidates and not (request.granted or cfg.checkpoint.no_save):
            _consolidate(cfg)
    if request.granted:
        exits.leave_together(LEFT_OFF)
    if distributed.is_initialized():
        distributed.barrier()
        if hydra_1_0.job_number() is None:  # the jobs of a multirun share it
            distributed.destroy_process_group()


def _consolidate(cfg: Any) -> None:
    """Write consolidated.pt from the last checkpoint, or say why there is none."""
    if cfg.distributed_training.distributed_rank != 0:
        return
    last = Path(cfg.checkpoint.save_dir) / "checkpoint_last.pt"
    out = last.with_name("consolidated.pt")
    if cfg.checkpoint.no_save_optimizer_state:
        logger.warning("no consolidated.pt: --no-save-optimizer-state leaves out the float32 weights; the checkpoints are plain")
    elif cfg.checkpoint.no_last_checkpoints or not last.is_file():
        logger.warning(f"no consolidated.pt: there is no {last} of this run; for another file, use fairseq-posenc consolidate")
    elif out.exists() and (_started_from(out, cfg) or not consolidate.made(out)):
        logger.warning(f"{out} is left as it is: this run started from it, or another made it; for a new one: fairseq-posenc "
                       f"consolidate {last} --out FILE")  # fmt: skip
    else:
        parameters = consolidate.write(last, out, overwrite=True)
        logger.info(f"wrote {out}: {parameters:,} parameters in float32")


def _started_from(file: Path, cfg: Any) -> bool:
    sources = (cfg.checkpoint.restore_file, cfg.checkpoint.finetune_from_model)
    return any(source is not None and os.path.exists(source) and file.samefile(source) for source in sources)


class PeerIsGone(RuntimeError):
    """Another process of the run is gone; the message says what to do."""


@contextmanager
def _lost_peers_named(run: Run, cfg: Any) -> Iterator[None]:
    """Report at once that an error means a lost peer: a launcher soon ends this process, too.

    Raises:
        PeerIsGone: where that is what the error means.
    """
    try:
        yield
    except PeerIsGone:
        raise
    except RuntimeError as error:
        if not _peer_is_gone(error):
            raise
        gone = PeerIsGone(_what_to_do(run, cfg, error))
        logger.error(str(gone))
        raise gone from error


def _peer_is_gone(error: RuntimeError) -> bool:
    """Whether it is one of PyTorch's errors of communication; gloo's have no type of their own."""
    signs = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Timed out waiting")
    return isinstance(error, distributed.DistError) or any(sign in str(error) for sign in signs)


def _what_to_do(run: Run, cfg: Any, error: RuntimeError) -> str:
    rank = cfg.distributed_training.distributed_rank
    return (
        f"{str(error).partition(chr(10))[0]}. Process {rank} has lost another process: that one ended, its host went down, or "
        f"its network is gone (nothing was heard for at most {run.timeout:g} s). The first error in the "
        "other processes' output is the cause. When it is fixed, the same command continues from the last checkpoint in "
        f"{cfg.checkpoint.save_dir}."
    )


if __name__ == "__main__":
    sys.exit(main())
