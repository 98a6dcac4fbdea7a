"""What is said when Ctrl-C, SIGTERM or SIGHUP ends a program. The start-up hook does so from the first import on."""

import sys
from collections.abc import Callable

_hook = sys.modules.get("_fairseq_posenc_hook")


def end_with(program: str, kept: Callable[[], str]) -> None:
    """From now on, end this process by one line: the program's name, the signal, and what was kept and how to go on."""
    if _hook is not None:
        _hook.end_with(program, kept)
