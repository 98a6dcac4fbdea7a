"""A process that has imported PyTorch and fairseq, and forks one process for each program that the tests run.

Importing them takes longer than what most tests ask of a program. A forked program has its own folder, environment, arguments and
streams, and ends as an interpreter does. What depends on the order of imports, or on how processes are started, needs
:mod:`subprocess`.
"""

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import IO

RANKS = Path(__file__).with_name("ranks.py")  # which forks the processes of a run
IMPORTED = ["fairseq.trainer", "fairseq_posenc.plugin.models", "fairseq_posenc.plugin.run", "torch._dynamo"]
if find_spec("deepspeed"):
    IMPORTED.append("fairseq_posenc.plugin.zero.trainer")


def run(
    command: list[object],
    *,
    cwd: Path | None = None,
    environment: dict[str, str],
    timeout: float,
) -> "subprocess.CompletedProcess[str]":
    """Run ``command``, a Python program and its arguments, in a forked process; ``stdout`` is what it writes to either stream.

    The program is a file, or ``-m`` and a module, as after ``python``. Raises TimeoutExpired after ``timeout``
    seconds, when all of its processes have been killed.
    """
    arguments = [*map(str, command)]
    with tempfile.TemporaryFile() as output:
        process = start(arguments, output, cwd=cwd, environment=environment)
        try:
            status = process.wait(timeout)
        except TimeoutError:
            process.kill()
            output.seek(0)
            raise subprocess.TimeoutExpired(arguments, timeout, output.read()) from None
        output.seek(0)
        return subprocess.CompletedProcess(arguments, status, output.read().decode())


def start(
    arguments: list[str],
    output: IO[bytes],
    *,
    cwd: Path | None = None,
    environment: dict[str, str],
) -> "Process":
    """Start such a program in a session of its own, without waiting for its end."""
    arguments = arguments[1:] if arguments[0] == sys.executable else arguments
    return _server().start({"arguments": arguments, "cwd": str(cwd or Path.cwd()), "environment": environment}, output)


class Process:
    """A forked program."""

    def __init__(self, status: socket.socket) -> None:
        self._status = status
        self.pid = int(status.recv(64))
        self.returncode: int | None = None

    def wait(self, timeout: float) -> int:
        """The exit status, which is the negative signal of a program that was killed."""
        if self.returncode is None:
            self._status.settimeout(timeout)
            self.returncode = int(self._status.recv(64))
            self._status.close()
        return self.returncode

    def kill(self) -> None:
        """Kill the program and what it has started, and wait."""
        if self.returncode is None:
            os.killpg(self.pid, signal.SIGKILL)
            self.wait(60)


class _Server:
    """The process that forks, as its client sees it; it ends with the client."""

    def __init__(self) -> None:
        self._connection, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
            command = [sys.executable, __file__, str(other.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[other.fileno()], env=environment)

    def start(self, request: dict[str, object], output: IO[bytes]) -> Process:
        status, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            socket.send_fds(self._connection, [json.dumps(request).encode()], [output.fileno(), other.fileno()])
        return Process(status)


@functools.cache
def _server() -> _Server:
    return _Server()


def serve(connection: socket.socket) -> dict[str, object] | None:
    """Fork for each request; returns it in the process that is forked, and None when the client has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, descriptors, *_ = socket.recv_fds(connection, 1 << 20, 2)
        if not message:
            return None
        if os.fork() == 0:
            connection.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            output, status = descriptors
            ready, begun = os.pipe()
            program = os.fork()
            if program:
                os.close(output)
                os.close(begun)
                os.read(ready, 1)  # until the program has its session, by which tests find and end its processes
                _report(program, status)
            os.close(status)
            os.setsid()
            os.close(begun)
            os.close(ready)
            for stream in (1, 2):
                os.dup2(output, stream)
            os.close(output)
            return json.loads(message)
        for descriptor in descriptors:
            os.close(descriptor)


def _report(program: int, status: int) -> None:
    """Send the id of a program and, when it has ended, its exit status."""
    os.write(status, str(program).encode())
    _, ended = os.waitpid(program, 0)
    os.write(status, str(os.waitstatus_to_exitcode(ended)).encode())
    os._exit(0)


def execute(arguments: list[str], cwd: str, environment: dict[str, str]) -> None:
    """Run a program as the interpreter's own."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    interpret(arguments)


def interpret(arguments: list[str]) -> None:
    """Run a program, which is a file or ``-m`` and a module, and its arguments as ``python`` does."""
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).parent))
        runpy.run_path(arguments[0], run_name="__main__")


def _end_quietly() -> None:
    """Drop what libraries write about objects that :func:`gc.freeze` keeps alive until the interpreter has ended."""
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


if __name__ == "__main__":
    atexit.register(_end_quietly)  # first, and therefore called last
    for module in IMPORTED:
        importlib.import_module(module)
    sys.path.pop(0)  # the folder of the tests
    gc.freeze()  # otherwise each process would copy all that it shares when it collects garbage at its end
    if (request := serve(socket.socket(fileno=int(sys.argv[1])))) is not None:
        execute(**request)
