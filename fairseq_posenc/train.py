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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import distributed

from .compat import exits, hydra_1_0
from .compat.distributed import without_gpus
from .compat.view import View
from .deepspeed import checkpoint, communication, config, consolidate
from .deepspeed.config import ZeroConfig
from .errors import Refused

if TYPE_CHECKING:
    from .pipeline import Run

# What imports fairseq or DeepSpeed is imported within functions: they look at the environment, which main completes first.

logger = logging.getLogger("fairseq_posenc.train")

HYDRA_FLAGS = ("--config-dir", "-cd", "--config-name", "-cn", "--config-path", "-cp")
TIMEOUT = 600.0  # seconds
MAX_TIMEOUT = 1e9  # seconds


@dataclass(frozen=True)
class Engine:
    """What this command adds to :mod:`.pipeline`: its own options, besides fairseq's, and DeepSpeed."""

    zero: ZeroConfig
    timeout: float  # seconds that another process may be silent
    consolidates: bool  # whether to merge the last checkpoint at the end

    program: ClassVar[str] = "fairseq_posenc.train"

    @classmethod
    def of(cls, options: argparse.Namespace) -> Engine:
        """Check the options and read the file, before Hydra changes the current folder.

        Raises:
            Refused: what this host finds wrong.
        """
        if not 0 < options.distributed_timeout <= MAX_TIMEOUT:
            raise Refused(f"--distributed-timeout {options.distributed_timeout}: a positive number of seconds is needed")
        zero = config.read(options.deepspeed_config)
        if zero.stage > 0:
            config.require_deepspeed()
        return cls(zero, options.distributed_timeout, consolidates=not options.no_consolidate)

    @contextmanager
    def connected(self, run: Run) -> Iterator[None]:
        """In the process that was started: limits how long to wait, and reports a lost process."""
        communication.limit_waiting(self.timeout)
        if self.zero.stage > 0 and "RANK" not in os.environ and run.cfg.distributed_training.distributed_world_size == 1:
            communication.world_of_one(os.environ)
        if refusal := _timestamped_folder(run.cfg):
            exits.refuse(refusal, self.program)
        with self._lost_peers_named(run.cfg):
            yield

    @contextmanager
    def prepared(self, run: Run) -> Iterator[None]:
        """In each process: completes DeepSpeed's configuration, and chooses its trainer.

        Raises:
            Refused: what any process finds wrong; in all alike.
        """
        communication.limit_waiting(self.timeout)  # again, in a process that call_main made
        completed = self._complete(run.cfg)
        if self.zero.stage > 0:
            if not run.cfg.checkpoint.no_save:
                checkpoint.require_shared(Path(run.cfg.checkpoint.save_dir))
            if without_gpus(run.cfg):
                communication.without_inference_kernels()
            os.environ.setdefault("LOCAL_RANK", str(run.cfg.distributed_training.device_id))
            from .deepspeed.trainer import DeepSpeedTrainer

            run.trainer = functools.partial(DeepSpeedTrainer, deepspeed_config=completed)
        with self._lost_peers_named(run.cfg):
            yield
        if distributed.is_initialized():
            distributed.barrier()
            if hydra_1_0.job_number() is None:  # the jobs of a multirun share it
                distributed.destroy_process_group()

    def _complete(self, cfg: Any) -> dict[str, Any]:
        """DeepSpeed's configuration, if no process finds anything wrong with it."""
        completed, refusal = {}, None
        try:
            if self.zero.stage > 0:
                communication.require_one_device(without_gpus(cfg))
            completed = config.complete(self.zero, cfg, cfg.distributed_training.distributed_world_size)
        except Refused as error:
            refusal = str(error)
        refusals = communication.gather((refusal, platform.node()))
        hosts = {found: sorted({host for each, host in refusals if each == found}) for found, _ in refusals if found is not None}
        if hosts:
            raise Refused("; ".join(f"on {', '.join(names)}: {found}" for found, names in hosts.items()))
        return completed

    def consolidate(self, run: Run) -> None:
        """At the end of training with ZeRO, write consolidated.pt from the last checkpoint, or log why there is none."""
        cfg = run.cfg
        if not (self.zero.stage > 0 and self.consolidates) or cfg.checkpoint.no_save or cfg.distributed_training.distributed_rank:
            return
        last = Path(cfg.checkpoint.save_dir) / "checkpoint_last.pt"
        out = last.with_name("consolidated.pt")
        if cfg.checkpoint.no_save_optimizer_state:
            logger.warning(
                "no consolidated.pt: --no-save-optimizer-state leaves out the float32 weights; the checkpoints are plain"
            )
        elif cfg.checkpoint.no_last_checkpoints or not last.is_file():
            logger.warning(
                f"no consolidated.pt: there is no {last} of this run; for another file, use fairseq-posenc consolidate"
            )
        elif out.exists() and (_started_from(out, cfg) or not consolidate.made(out)):
            logger.warning(f"{out} is left as it is: this run started from it, or another made it; for a new one: fairseq-posenc "
                           f"consolidate {last} --out FILE")  # fmt: skip
        else:
            parameters = consolidate.write(last, out, overwrite=True)
            logger.info(f"wrote {out}: {parameters:,} parameters in float32")

    @contextmanager
    def _lost_peers_named(self, cfg: Any) -> Iterator[None]:
        """Report at once that an error means a lost process: a launcher soon ends this one, too.

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
            rank, save_dir = cfg.distributed_training.distributed_rank, cfg.checkpoint.save_dir
            gone = PeerIsGone(
                f"{str(error).partition(chr(10))[0]}. Process {rank} has lost another process: that one ended, its host went "
                f"down, or its network is gone (nothing was heard for at most {self.timeout:g} s). The first error in the other "
                "processes' output is the cause. When it is fixed, the same command continues from the last checkpoint in "
                f"{save_dir}."
            )
            logger.error(str(gone))
            raise gone from error


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
        engine = Engine.of(options)
    except Refused as error:
        exits.refuse(str(error), f"{Engine.program} on {platform.node()}")
    if "--cpu" in rest or "common.cpu=true" in rest or not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")  # which DeepSpeed looks for when fairseq imports it
    if any(argument.partition("=")[0] in HYDRA_FLAGS for argument in rest):
        from fairseq_cli import hydra_train as cli

        # DeepSpeed's launcher adds --local_rank, which Hydra would refuse; LOCAL_RANK says the same.
        rest = [argument for argument in rest if not argument.startswith("--local_rank=")]
    else:
        from fairseq_cli import train as cli
    sys.argv[1:] = rest
    call_main = functools.partial(cli.distributed_utils.call_main, engine=engine)
    cli.distributed_utils = View(cli.distributed_utils, call_main=call_main)
    cli.cli_main()
    return 0


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


def _started_from(file: Path, cfg: Any) -> bool:
    sources = (cfg.checkpoint.restore_file, cfg.checkpoint.finetune_from_model)
    return any(source is not None and os.path.exists(source) and file.samefile(source) for source in sources)


class PeerIsGone(RuntimeError):
    """Another process of the run is gone; the message says what to do."""


def _peer_is_gone(error: RuntimeError) -> bool:
    """Whether it is one of PyTorch's errors of communication; gloo's have no type of their own."""
    signs = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Timed out waiting")
    return isinstance(error, distributed.DistError) or any(sign in str(error) for sign in signs)


if __name__ == "__main__":
    sys.exit(main())
