"""Makes ``import fairseq`` apply fairseq_posenc's compatibility patches first and register the plugin afterwards.

``fairseq_posenc_hook.pth`` imports this module whenever Python starts, so it only puts a finder in front of ``sys.meta_path``.
The finder handles one name, and only the release that the patches are for: other packages may have the same name.
In programs of fairseq and of this package, it also has Ctrl-C, SIGTERM and SIGHUP end them with one line, from their first import
on. ``FAIRSEQ_POSENC_DISABLE=1`` disables all of it.
"""

import os
import sys

STARTED = (os.getpid(), os.getppid())
"""This process and its parent when Python started, so that training notices if its launcher ended during imports."""

PROGRAMS = ("fairseq_cli", "fairseq_posenc")
LAUNCHERS = ("torch.distributed.run", "deepspeed.launcher.runner")
REPORTS = "FAIRSEQ_POSENC_REPORTS"
"""The variable of the environment with the process that reports signals, also for those that it spawns."""
GRACE_SECONDS = 2

VERSION_LINES = {"version.py": '__version__ = "0.12.2"', "version.txt": "0.12.2\n"}
"""The beginning of a line, in the first of these files that exists next to ``__init__.py``."""


class Finder:
    """Finds fairseq with the other finders, and wraps the execution of its ``__init__``."""

    def find_spec(self, name, path=None, target=None):
        program = os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else ""
        if name in PROGRAMS and (program == "-m" or program.startswith("fairseq-")):
            if program == "-m":  # until the module has been found
                program = sys.orig_argv[sys.orig_argv.index("-m") + 1] if "-m" in sys.orig_argv else name
            end_with(program, lambda: "It had not begun; give the same command again.")
        if name in LAUNCHERS and "fairseq_posenc.train" in sys.orig_argv:
            sys.excepthook = _end_launcher
        if name != "fairseq":
            return None
        spec = self._find_elsewhere(name, path, target)
        if spec is None or not is_known_release(spec):
            return spec
        try:
            from fairseq_posenc import importing
        except ImportError as error:
            if error.name == "fairseq_posenc":  # uninstalled, and this file left behind
                return spec
            raise
        loader = spec.loader
        execute = loader.exec_module

        def exec_module(module):
            del loader.exec_module  # restores the loader
            with importing():
                execute(module)

        loader.exec_module = exec_module
        return spec

    def _find_elsewhere(self, name, path, target):
        for finder in sys.meta_path:
            find_spec = getattr(finder, "find_spec", None)
            if finder is not self and find_spec is not None:
                spec = find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None


def is_known_release(spec):
    """Whether a package has the version that the patches are for, according to one of its files."""
    if not (spec.origin and spec.submodule_search_locations):  # a plain module, or a mere folder of that name
        return False
    for file, beginning in VERSION_LINES.items():
        try:
            with open(os.path.join(os.path.dirname(spec.origin), file), encoding="utf-8") as stream:
                return any(f"{line.rstrip()}\n".startswith(beginning) for line in stream)
        except FileNotFoundError:
            continue
        except (OSError, ValueError):  # within a zip, or not text
            return False
    return False


class Interruption:
    """What a program says when a signal ends it, and whether it has said so."""

    program, kept = "", None
    process = None  # that which handles the signals; those that it forks leave them to it
    status = None  # of the exit, once it has said so


def end_with(program, kept):
    """From now on, end this process by the line ``PROGRAM: interrupted.`` and what ``kept()`` returns.

    Signals that are ignored, as by nohup, or handled by others, stay so. A process that was spawned leaves them to its parent.
    """
    import atexit
    import signal
    import threading

    if "--multiprocessing-fork" in sys.orig_argv:
        return
    Interruption.program, Interruption.kept = program, kept
    if Interruption.process == os.getpid() or threading.current_thread() is not threading.main_thread():
        return
    Interruption.process = os.getpid()
    os.environ[REPORTS] = str(os.getpid())
    quiet = "ignore:resource_tracker:UserWarning"  # of the process that removes what killed ones have left
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, (os.environ.get("PYTHONWARNINGS"), quiet)))
    numbers = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    handled = {number for number in numbers if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)}
    receiver, sender = os.pipe()
    os.set_blocking(sender, False)
    signal.set_wakeup_fd(sender, warn_on_full_buffer=False)
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))
    atexit.register(_leave)
    threading.Thread(target=_enforce, args=(receiver, handled), name="signals", daemon=True).start()
    for number in handled:
        signal.signal(number, _end)


def _end(number, _):
    if os.getpid() != Interruption.process:
        os._exit(128 + number)
    _say(number)
    raise SystemExit(128 + number)


def _end_launcher(kind, error, traceback):
    """End a launcher that a signal has ended (torchrun raises its own error) with the status of its processes, no traceback."""
    if kind.__name__ not in ("SignalException", "KeyboardInterrupt"):
        return sys.__excepthook__(kind, error, traceback)
    os._exit(128 + getattr(error, "sigval", 2))


def _enforce(receiver, handled):
    """End the process after a while if it does not end by itself, since it waits in a library or for threads."""
    import time

    while (number := os.read(receiver, 1)[0]) not in handled:
        pass
    time.sleep(GRACE_SECONDS)
    _say(number)
    os._exit(128 + number)


def _leave():
    """End as the signal asks before threads of libraries find parts of the interpreter gone, for which they may abort."""
    if Interruption.status is not None:
        os._exit(Interruption.status)


def _say(number):
    """Print the line, and nothing after it: libraries report that they were interrupted. End the child processes."""
    import signal

    Interruption.status = 128 + number
    if os.environ.get("LOCAL_RANK", "0") == "0":  # of several processes, which a launcher ends together
        cause = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
        line = f"{Interruption.program}: {cause}. {Interruption.kept()}".rstrip()
        os.write(2, f"\n{line}\n".encode("utf-8", "backslashreplace"))  # a progress bar has no end of its line
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    if "logging" in sys.modules:
        sys.modules["logging"].disable()
    for child in _below(os.getpid()):
        try:  # noqa: SIM105 - nothing is imported at this moment
            os.kill(child, signal.SIGTERM)
        except OSError:  # it has ended
            pass


def _below(process):
    """The processes that this one has started, and those that they have."""
    found = []
    try:
        for thread in os.listdir(f"/proc/{process}/task"):
            with open(f"/proc/{process}/task/{thread}/children", encoding="ascii") as children:
                found += map(int, children.read().split())
    except OSError:  # the process or the thread has ended
        pass
    return found + [other for child in found for other in _below(child)]


if os.environ.get("FAIRSEQ_POSENC_DISABLE", "0") in ("", "0"):
    sys.meta_path.insert(0, Finder())
    if REPORTS in os.environ and "--multiprocessing-fork" in sys.orig_argv:
        import signal

        signal.signal(signal.SIGINT, signal.SIG_DFL)
