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

from .base.errors import InputError, first_line, lacking
from .base.patching import ModuleProxy
from .plugin.processes import exits
from .plugin.processes.group import without_gpus
from .plugin.zero import communication, consolidate, sharded_checkpoint, zero_config

if TYPE_CHECKING:
    from .plugin.run import ProgramRun

# What imports fairseq or DeepSpeed is imported within functions: they look at the environment, which main completes first.

logger = logging.getLogger("fairseq_posenc.train")

HYDRA_FLAGS = ("--config-dir", "-cd", "--config-name", "-cn", "--config-path", "-cp")
DEFAULT_TIMEOUT = 600.0  # seconds
MAX_TIMEOUT = 1e9  # seconds


@dataclass(frozen=True)
class DeepSpeedOptions:
    """DeepSpeed as a part of :mod:`.run`, and the options that this command has in addition to fairseq's."""

    zero: zero_config.ZeroConfig
    timeout: float  # seconds to wait for another process
    consolidates: bool  # whether to merge the last checkpoint at the end

    program: ClassVar[str] = "fairseq_posenc.train"

    @classmethod
    def of(cls, options: argparse.Namespace) -> DeepSpeedOptions:
        """Check the options and read the file, before Hydra changes the current folder.

        Raises:
            InputError: an option or the file cannot be used on this host.
        """
        if not 0 < options.distributed_timeout <= MAX_TIMEOUT:
            raise InputError(f"--distributed-timeout {options.distributed_timeout}: a positive number of seconds is needed")
        zero = zero_config.read(options.deepspeed_config)
        if zero.stage > 0 and (problem := lacking("deepspeed")):
            raise InputError(f"--deepspeed-config with sharding {problem}")
        return cls(zero, options.distributed_timeout, consolidates=not options.no_consolidate)

    def connect(self, run: ProgramRun) -> None:
        """Limit the waiting for processes and prepare their connection, in the process that was started.

        Raises:
            InputError: ``save_dir`` is in a folder that Hydra has made for this start.
        """
        communication.limit_waiting(self.timeout)
        if self.zero.stage > 0 and "RANK" not in os.environ and run.cfg.distributed_training.distributed_world_size == 1:
            communication.world_of_one(os.environ)
        _require_lasting_folder(run.cfg)

    @contextmanager
    def prepared(self, run: ProgramRun) -> Iterator[None]:
        """Complete DeepSpeed's configuration and choose its trainer, in each process.

        Raises:
            InputError: DeepSpeed would train elsewhere or cannot divide the optimizer, or the processes see no common folder.
        """
        communication.limit_waiting(self.timeout)  # again, in a process that call_main made
        if self.zero.stage > 0:
            communication.require_one_device(without_gpus(run.cfg))
        if distributed.is_initialized() and not run.cfg.checkpoint.no_save:
            sharded_checkpoint.require_shared(Path(run.cfg.checkpoint.save_dir))
        if self._assigns_whole_tensors(run.cfg):
            from .plugin.zero.whole_tensors import WholeTensorTrainer

            run.trainer = WholeTensorTrainer
        elif self.zero.stage > 0:
            if without_gpus(run.cfg):
                communication.without_inference_kernels()
            os.environ.setdefault("LOCAL_RANK", str(run.cfg.distributed_training.device_id))
            from .plugin.zero.trainer import DeepSpeedTrainer

            config = zero_config.complete(self.zero, run.cfg, run.cfg.distributed_training.distributed_world_size)
            run.trainer = functools.partial(DeepSpeedTrainer, deepspeed_config=config)
        try:
            yield
        except RuntimeError as error:
            if _peer_is_gone(error):  # logged at once, since a launcher soon ends this process, too
                rank, save_dir = run.cfg.distributed_training.distributed_rank, run.cfg.checkpoint.save_dir
                logger.error(
                    f"{first_line(error)}. Process {rank} has lost another process, which ended, or whose host or "
                    f"network failed (--distributed-timeout {self.timeout:g}). The first error in the other processes' output is "
                    f"the cause. When it is fixed, the same command continues from the last checkpoint in {save_dir}."
                )
            raise

    def _assigns_whole_tensors(self, cfg: Any) -> bool:
        """Return whether the optimizer cannot use DeepSpeed's division of tensors; raises InputError with what only that has."""
        from .plugin.optim import WHOLE_TENSORS

        whole = self.zero.stage == 1 and cfg.optimizer._name in WHOLE_TENSORS
        if whole and self.zero.offload_optimizer:
            raise InputError(
                f"--deepspeed-config {self.zero.source} has offload_optimizer, which is not for --optimizer {cfg.optimizer._name}"
            )
        return whole

    def consolidate(self, run: ProgramRun) -> None:
        """At the end of training with ZeRO, write consolidated.pt from the last checkpoint, or log why it is not written."""
        saving, sharded = run.cfg.checkpoint, self.zero.stage > 0 and not self._assigns_whole_tensors(run.cfg)
        if not (sharded and self.consolidates) or saving.no_save or run.cfg.distributed_training.distributed_rank:
            return
        last = Path(saving.save_dir) / "checkpoint_last.pt"
        out = last.with_name("consolidated.pt")
        started_from = [Path(file) for file in (saving.restore_file, saving.finetune_from_model) if file and os.path.exists(file)]
        if saving.no_save_optimizer_state:
            logger.warning("no consolidated.pt: --no-save-optimizer-state leaves out the float32 weights; checkpoints are plain")
        elif saving.no_last_checkpoints or not last.is_file():
            logger.warning(f"no consolidated.pt: this run has no {last}; for another file, use fairseq-posenc consolidate")
        elif out.exists() and (any(map(out.samefile, started_from)) or not consolidate.made(out)):
            logger.warning(f"{out} is left as it is: this run started from it, or another program made it; for a new one: "
                           f"fairseq-posenc consolidate {last} --out FILE")  # fmt: skip
        else:
            parameters = consolidate.write(last, out, overwrite=True)
            logger.info(f"wrote {out}: {parameters:,} parameters in float32")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that fairseq-train does not have."""
    group = parser.add_argument_group("DeepSpeed")
    group.add_argument("--deepspeed-config", default="zero0", metavar="NAME|FILE",
                       help="zero0 (fairseq's own data parallelism, the default), zero1, zero2, zero3, zero2-offload, "
                       "zero3-offload, or a JSON file; what fairseq has options for is filled in from them")  # fmt: skip
    group.add_argument("--distributed-timeout", type=float, default=DEFAULT_TIMEOUT, metavar="SECONDS",
                       help="give up when another process has not answered for this long (default: %(default)s)")  # fmt: skip
    group.add_argument("--no-consolidate", action="store_true", help="at the end of training with ZeRO, do not write "
                       "consolidated.pt, a plain checkpoint with all weights in float32, into --save-dir")  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    """Train."""
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_arguments(parser)
    options, rest = parser.parse_known_args(argv)
    if {"-h", "--help"} & set(rest):  # fairseq's follows
        print(f"{__doc__}\n{parser.format_help().partition(chr(10) * 2)[2]}")
    communication.rank_from_slurm(os.environ)  # sets LOCAL_RANK, which fairseq reads when it is imported
    try:
        engine = DeepSpeedOptions.of(options)
    except InputError as error:
        exits.refuse(str(error), f"{DeepSpeedOptions.program} on {platform.node()}")
    if "--cpu" in rest or "common.cpu=true" in rest or not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")  # DeepSpeed reads it when fairseq imports DeepSpeed
    if any(argument.partition("=")[0] in HYDRA_FLAGS for argument in rest):
        from fairseq_cli import hydra_train as cli

        # DeepSpeed's launcher adds --local_rank, which Hydra would refuse and which LOCAL_RANK repeats.
        rest = [argument for argument in rest if not argument.startswith("--local_rank=")]
    else:
        from fairseq_cli import train as cli
    sys.argv[1:] = rest
    call_main = functools.partial(cli.distributed_utils.call_main, engine=engine)
    cli.distributed_utils = ModuleProxy(cli.distributed_utils, call_main=call_main)
    cli.cli_main()


def _require_lasting_folder(cfg: Any) -> None:
    """Raise InputError for a ``save_dir`` in a folder that Hydra has made for this start only."""
    save_dir = Path(cfg.checkpoint.save_dir)
    from .plugin.run import hydra_job  # which imports fairseq

    instead = hydra_job.override_of_timestamped_folder()
    if instead is not None and not save_dir.is_absolute() and not cfg.checkpoint.no_save:
        raise InputError(
            f"checkpoint.save_dir={save_dir} is relative to {Path.cwd()}, a folder that Hydra has made for this start, so a "
            f"restart would not find it. Add {instead} to the command, or give an absolute path."
        )


def _peer_is_gone(error: RuntimeError) -> bool:
    """Return whether PyTorch reports a failed communication; gloo's errors have no specific type."""
    signs = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Timed out waiting")
    return isinstance(error, distributed.DistError) or any(sign in str(error) for sign in signs)


if __name__ == "__main__":
    main()
