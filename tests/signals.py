"""Programs that tests end by a signal."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import fork_server
from commands import environment

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LIMIT = 600  # seconds


class Program:
    """A program that runs in a session of its own, with its output in a file."""

    def __init__(self, process: fork_server.Process | subprocess.Popen, log: Path) -> None:
        self.pid, self._process, self._log = process.pid, process, log

    def said(self) -> str:
        return self._log.read_text("utf-8")

    def session(self) -> list[int]:
        """The processes of its session that have not ended."""
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                state, _, _, session = Path(f"/proc/{entry}/stat").read_text("utf-8").rpartition(")")[2].split()[:4]
                found += [int(entry)] if int(session) == self.pid and state not in "ZX" else []
        return found

    def wait_for(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + LIMIT
        while not condition():
            assert self.session(), self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.02)

    def wait(self) -> int:
        return self._process.wait(LIMIT)


@contextmanager
def running(*command: object, log: Path, forked: bool = True, cwd: Path | None = None) -> Iterator[Program]:
    """A Python program and its arguments, forked from one that has imported fairseq or started anew; killed in the end."""
    arguments = [*map(str, command)]
    with log.open("wb") as output:
        if forked:
            process = fork_server.start(arguments, output, cwd=cwd, environment=environment())
        else:
            streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
            process = subprocess.Popen(arguments, cwd=cwd, env=environment(), start_new_session=True, **streams)
    try:
        yield Program(process, log)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def wait_until_caught(pid: int, number: int) -> None:
    """Until the process has a handler of that signal, which would end it before."""
    while not int(re.search(r"SigCgt:\s*(\w+)", status := Path(f"/proc/{pid}/status").read_text())[1], 16) >> (number - 1) & 1:
        assert not re.search(r"State:\s*Z", status)
        time.sleep(0.02)


def cause(number: int) -> str:
    return "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"


def ended(program: Program, number: int, line: str) -> None:
    """Assert that the program ends by the signal, its last line begins with this one, and no process of it is left."""
    status, said = program.wait(), program.said()
    assert said.splitlines()[-1].startswith(line), said
    assert said.count(cause(number)) == 1, said
    assert "Traceback" not in said
    assert status == 128 + number
    deadline = time.monotonic() + LIMIT
    while left := program.session():
        assert time.monotonic() < deadline, left
        time.sleep(0.02)
