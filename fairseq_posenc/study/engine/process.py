"""A process that does one run, with its output in a log, which is read for its progress."""

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

INTERVAL = 0.1  # seconds between two looks at a process
READ = 1 << 14
"""Bytes at the end of a log that are read for the progress."""


def execute(
    command: Sequence[str], log: Path, variables: Mapping[str, str] | None, locks: Sequence[int], watch: Callable[[str], None]
) -> tuple[int, str]:
    """Run a command.

    Args:
        command: the program and its arguments.
        log: its output is appended to this file.
        variables: its environment; None: that of this process.
        locks: file descriptors that it holds open.
        watch: receives the end of its output, whenever that has grown.

    Returns:
        Its status and all of its output.
    """
    # Unbuffered: with buffers, the last line of the log would be of stdout, and the reason of a failure is in stderr.
    environment = {**(os.environ if variables is None else variables), "PYTHONUNBUFFERED": "1"}
    with log.open("ab+") as stream:
        start = seen = stream.seek(0, os.SEEK_END)
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, pass_fds=locks, env=environment)
        try:
            while child.poll() is None:
                time.sleep(INTERVAL)
                if (size := os.fstat(stream.fileno()).st_size) > seen:
                    begin, seen = max(seen, size - READ), size
                    output = os.pread(stream.fileno(), size - begin, begin)  # does not move the place at which the child writes
                    watch(output.decode("utf-8", "replace"))
        except BaseException:
            child.kill()
            child.wait()
            raise
        stream.seek(start)
        return child.returncode, stream.read().decode("utf-8", "replace")
