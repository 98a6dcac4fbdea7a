"""What is wrong with a run before it begins."""

import os
import sys
import time
from pathlib import Path
from typing import NoReturn

REFUSED = 2  # exit status
LAST_WORDS = 10.0  # seconds; a launcher ends all processes of a host soon after the first has ended


class Refused(ValueError):
    """A run that cannot be meant. Every process of it finds this alike, so that one need say it."""


def leave(refusal: str) -> NoReturn:
    """End a process that has met no other yet: the first one of each host says why."""
    if int(os.environ.get("LOCAL_RANK", "0")) == 0:
        print(f"{Path(sys.argv[0]).name}: {refusal}", file=sys.stderr, flush=True)
    else:
        time.sleep(LAST_WORDS)
    sys.exit(REFUSED)
