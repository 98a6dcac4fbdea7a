"""How a process ends if its run cannot continue: with one message per host, or together with the other processes."""

import os
import sys
import time
from pathlib import Path
from typing import NoReturn

from torch import distributed

REFUSED = 2  # exit status
GRACE_SECONDS = 10.0  # seconds; a launcher ends all processes of a host soon after the first has ended


def refuse(refusal: str, program: str | None = None) -> NoReturn:
    """End a process before the processes have met: the first process on each host says why, as ``program``."""
    if not left_to_the_first(int(os.environ.get("LOCAL_RANK", "0"))):
        print(f"{program or Path(sys.argv[0]).name}: {refusal}", file=sys.stderr, flush=True)
    sys.exit(REFUSED)


def left_to_the_first(local_rank: int) -> bool:
    """Whether the first process on this host is another, after leaving it the time to speak: a launcher then ends all."""
    if local_rank == 0:
        return False
    time.sleep(GRACE_SECONDS)
    return True


def leave_together(status: int) -> NoReturn:
    """Exit with the other processes of the run: a launcher ends all when one has ended, while another may be reporting why."""
    if distributed.is_initialized():
        distributed.barrier()
    sys.exit(status)
