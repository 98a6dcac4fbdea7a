"""How a process ends if its run cannot continue: with one message per host, or together with the other processes."""

import os
import sys
import time
from pathlib import Path
from typing import NoReturn

from omegaconf.errors import MissingMandatoryValue
from torch import distributed

from ...base.errors import InputError, flag_of, sentence

REFUSED = 2  # exit status
INTERRUPTED = 130  # exit status after Ctrl-C
GRACE_SECONDS = 10.0  # a launcher ends all processes of a host soon after the first has ended


def refuse(refusal: str, program: str | None = None, status: int = REFUSED, local_rank: int | None = None) -> NoReturn:
    """End this process; the first on each host prints the reason, and the others wait for their launcher to end them.

    Where ``local_rank`` is given, in a process group, one of the others may have met the error alone, and prints it after that.
    The interpreter's own end is left out there, in which gloo's threads may abort the process.
    """
    rank = int(os.environ.get("LOCAL_RANK", "0")) if local_rank is None else local_rank
    if rank != 0:
        time.sleep(GRACE_SECONDS)
    if rank == 0 or local_rank is not None:
        print(f"{program or Path(sys.argv[0]).name}: {refusal}", file=sys.stderr, flush=True)
    if distributed.is_initialized():
        sys.stdout.flush()
        os._exit(status)
    sys.exit(status)


def leave_process_group() -> None:
    """Destroy the process group, if there is one, in all processes: gloo's threads may abort a process that exits in it."""
    if distributed.is_initialized():
        distributed.barrier()
        distributed.destroy_process_group()


def reason_for_user(error: Exception) -> str | None:
    """Return what the user can change, in one sentence; None if the error is a fault of the program."""
    if isinstance(error, MissingMandatoryValue):
        return f"{flag_of(error.key)} ({error.full_key}) is missing"
    if isinstance(error, FloatingPointError):
        return f"training has diverged ({error}): lower --lr, warm up for longer (--warmup-updates), or clip (--clip-norm)"
    # If data or a flag cannot be used, fairseq raises Exception itself; if a package is not installed, ImportError with advice.
    if isinstance(error, (InputError, OSError)) or type(error) in (Exception, ImportError):
        return sentence(error)
    return None
