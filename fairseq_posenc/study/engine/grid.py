"""Many runs, one per cell of a grid. Each has a folder with its record, so that a killed grid can be resumed.

A cell is recorded as begun, finished, diverged or failed (``result.json``). A grid that is started again runs the cells that have
not finished or diverged. A cell that fails does not stop the others.
"""

import json
import os
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, Protocol

from tqdm import tqdm

from ...base import record
from ...base.errors import InputError
from ...base.log import entries
from ...base.record import DIVERGED, FAILED, FINISHED, FORMAT, RESULT, Recorded
from .process import READ, execute

BEGUN = "begun"
LOG = "train.log"
PLAIN = r"\w+@:.()=,| -"
"""The characters of a folder's name."""
SCHEME = re.compile(rf"\w[{PLAIN}]*")
"""The name of a scheme; it is also the name of a folder, and so has no slash and begins with a letter."""
NOT_PLAIN = re.compile(rf"[^{PLAIN}]|^\.")
"""What the name of a folder does not have, which a word of data may."""
DIVERGENCE = re.compile(r"gradients are Nan/Inf|Minimum loss scale reached \(.*?\)|rank +\d+ = -?(nan|inf)")
"""fairseq's error messages about gradients that are no longer finite."""


class Done(Recorded):
    """The fields of the result of a run that finished or diverged."""

    versions: dict[str, str]
    seconds: float
    reason: str = ""


class Diverged(Exception):
    """Raised by a run whose numbers are no longer finite."""


class Progress(Protocol):
    """Receives, a few times per minute, a description of what a run is doing and the share that is done."""

    def __call__(self, text: str, share: float | None = None) -> None: ...


@dataclass(frozen=True, eq=False)
class Cell:
    """One run of the grid.

    Attributes:
        key: the named values that distinguish it from the grid's other cells; numbers must differ within their first six digits.
        configuration: everything else that decides its result, in JSON's types.
        command: a command that does the work; its output is appended to :data:`LOG`. Empty if the run needs no other process.
        until: a number in the lines of fairseq's log, and its value when the command ends, such as ``("num_updates", 1500)``.
        needs: files that its folder must have, in addition to its result, once it is finished.
        temporary: files, such as checkpoints, that its run leaves in its folder; removed once it has finished or diverged.
        within: the folder, below the grid's, of the cells' folders.
        outcome: the fields of the result of a run that finished.
    """

    key: Mapping[str, str | int | float]
    configuration: Mapping[str, Any]
    command: Sequence[str] = ()
    until: tuple[str, float] | None = None
    needs: Sequence[str] = ()
    temporary: Sequence[str] = ()
    within: str = "runs"
    outcome: type[Recorded] = Recorded

    @property
    def name(self) -> str:
        """Its name in messages, such as ``RTE lr=1e-05 seed=1``."""
        words, numbers = self._parts("=")
        return " ".join([*words, *numbers])

    def folder(self, out: Path) -> Path:
        """Return the folder of its log, its result and, while it runs, its checkpoints: ``runs/RTE/lr-1e-05_seed-1``."""
        words, numbers = self._parts("-")
        plain = [NOT_PLAIN.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), word) for word in words]
        return out / self.within / Path(*plain, "_".join(numbers))

    def _parts(self, sign: str) -> tuple[list[str], list[str]]:
        """Return the parts of its name: values that are words, and numbers with their names."""
        words = [value for value in self.key.values() if isinstance(value, str)]
        numbers = [(name, value) for name, value in self.key.items() if not isinstance(value, str)]
        return words, [f"{name}{sign}{f'{value:g}' if isinstance(value, float) else value}" for name, value in numbers]


RunCell = Callable[[Cell, Path, Progress], dict[str, Any]]
"""A function that does one run in a folder, or reads its command's output there, and returns the outcome. May raise Diverged."""
Variables = Mapping[str, str] | None
"""Those of the environment of a command; None: of this process."""


def finished(cell: Cell, out: Path) -> dict[str, Any] | None:
    """Return the result of a cell, or None if it has not finished or diverged yet.

    Raises:
        InputError: it was run with another configuration, or lacks a file that it needs, or the record is damaged.
    """
    folder = cell.folder(out)
    result = record.read_object(folder / RESULT, FORMAT)
    if result is None:
        return None
    advice = "Name another --out, or remove that folder to run it again."
    record.require_same({name: result.get(name) for name in cell.key}, cell.key, f"{folder} is of another run", advice)
    record.require_same(result.get("configuration"), cell.configuration, f"{folder} is of another configuration", advice)
    if result.get("status") == FINISHED and (missing := [name for name in cell.needs if not (folder / name).exists()]):
        raise InputError(f"{folder} has finished, and {', '.join(missing)}, which is needed now, is not in it. {advice}")
    if result.get("status") not in (FINISHED, DIVERGED):
        return None
    record.require_fields(result, Done, folder / RESULT)
    if result["status"] == FINISHED:
        record.require_fields(result, cell.outcome, folder / RESULT)
    return {**result, **cell.key}


def shares(devices: int, jobs: int) -> list[Variables]:
    """Return the variables of the environment with which each of several jobs sees its share of the GPUs; all see them if 0."""
    if jobs == 1 or devices == 0:
        return [None] * jobs
    count = max(1, devices // jobs)
    names = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(devices)))).split(",")
    visible = [[names[device % devices] for device in range(job * count, (job + 1) * count)] for job in range(jobs)]
    return [{**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(of_job)} for of_job in visible]


def run_cell(
    cell: Cell, folder: Path, run: RunCell, progress: Progress, lock: int | None, variables: Variables, stopping: Event
) -> dict[str, Any]:
    """Run one cell and record its result, which is returned; raises InputError and OSError of the run, and what stops it.

    Args:
        lock: a file descriptor that its command holds open, or None.
        variables: of the environment of its command.
        stopping: set before the processes of threads are ended, which is no failure of theirs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    result = {**cell.key, "configuration": cell.configuration, "format": FORMAT}
    record.write_json(folder / RESULT, {**result, "status": BEGUN})
    start = time.monotonic()
    before = (folder / LOG).read_text("utf-8", "replace")[-READ:] if (folder / LOG).exists() else ""
    progress("started", [0.0, *(share for _, share in _progress(cell, before))][-1])
    try:
        if cell.command:
            _execute(cell, folder / LOG, progress, lock, variables)
        outcome = {"status": FINISHED, **run(cell, folder, progress)}
        json.dumps(outcome, allow_nan=False)
    except Diverged as error:
        outcome = {"status": DIVERGED, "reason": str(error)}
    except Exception as error:
        if stopping.is_set() or (isinstance(error, (InputError, OSError)) and not isinstance(error, ChildProcessError)):
            raise
        with (folder / LOG).open("a", encoding="utf-8") as stream:
            traceback.print_exc(file=stream)
        outcome = {"status": FAILED, "reason": f"{type(error).__name__}: {error}; see {folder / LOG}"}
    result |= {**outcome, "seconds": round(time.monotonic() - start, 1), "versions": record.versions()}
    record.write_json(folder / RESULT, result)
    progress(outcome["status"], 1)
    return result


def _execute(cell: Cell, log: Path, progress: Progress, lock: int | None, variables: Variables) -> None:
    def watch(output: str) -> None:
        for text, share in _progress(cell, output):
            progress(text, share)

    status, output = execute(cell.command, log, variables, () if lock is None else (lock,), watch)
    if status:
        if reason := DIVERGENCE.search(output):
            raise Diverged(f"{reason[0]}; see {log.name}")
        raise ChildProcessError(f"the command ended with status {status}: {output.rstrip().rpartition(chr(10))[2]}")


def _progress(cell: Cell, output: str) -> Iterator[tuple[str, float]]:
    """What a log says of the progress of a cell's command."""
    name, end = cell.until or ("", 1.0)
    for entry in entries(output):
        with suppress(KeyError, TypeError, ValueError):  # a line of another kind
            yield f"loss {entry['loss']}", min(float(entry[name]) / end, 0.99)


class Bar(tqdm):
    """The progress of one or several grids and the remaining time, estimated from what this process has done of all runs."""

    def __init__(self, total: int, name: str = "runs") -> None:
        form = "{desc}: {percentage:3.0f}%|{bar}| {n:.1f}/{total} [{elapsed}<{remaining}{postfix}]"
        super().__init__(total=total, desc=name, dynamic_ncols=True, bar_format=form, smoothing=0)
        self._name, self._before = name, 0
        self._begun: dict[Cell, float] = {}  # the share of each run that was done when this process began it
        self._shares: dict[Cell, float] = {}
        self._unfinished = Counter[str]()  # by status, such as "failed"

    def skip(self, count: int) -> None:
        """Count runs as done that were done before."""
        self._before += count
        self._show()

    def ended(self, cell: Cell, result: Mapping[str, Any]) -> None:
        """Say at once that a run has failed or diverged, above the bar, which counts such runs."""
        if result["status"] in (FAILED, DIVERGED):
            self._unfinished[result["status"]] += 1
            counts = ", ".join(f"{count} {status}" for status, count in self._unfinished.items())
            self.set_description_str(f"{self._name} ({counts})")
            self.write(f"{cell.name} has {result['status']}: {result['reason']}", file=sys.stderr)

    def progress_of(self, cell: Cell) -> Progress:
        """Return the function that receives the progress of one run."""

        def progress(text: str, share: float | None = None) -> None:
            if share is not None:
                self._shares[cell] = min(share, 1.0)
                self._begun[cell] = min(share, self._begun.get(cell, 1.0))
            self.set_postfix_str(f"{cell.name}, {text}", refresh=False)
            self._show()

        return progress

    def _show(self) -> None:
        self.n = self._before + sum(self._shares.values())
        self.initial = self._before + sum(self._begun.values())
        self.refresh()
