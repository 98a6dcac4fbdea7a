"""What a program says when Ctrl-C, SIGTERM or SIGHUP ends it; the start-up hook handles these signals from the first import."""

import sys
from collections.abc import Callable

_hook = sys.modules.get("_fairseq_posenc_hook")


def end_with(program: str, kept: Callable[[], str]) -> None:
    """From now on, end this process by one line: the program's name, the signal, and what was kept and how to go on."""
    if _hook is not None:
        _hook.end_with(program, kept)
