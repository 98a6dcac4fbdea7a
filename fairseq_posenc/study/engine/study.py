"""A study: many runs in one output folder, which a command claims, locks, continues and reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from typing import Any

import torch

from ...base.errors import InputError
from ...base.ownership import Inputs, output
from ...base.record import DIVERGED, FAILED, FINISHED
from .grid import Bar, Cell, RunCell, Variables, finished, run_cell, shares


class Failures(OSError):
    """Raised when every cell has been run and some have failed."""

    def __init__(self, failed: Mapping[str, Mapping[str, Any]], total: int) -> None:
        reasons = "; ".join(f"{name} ({result['reason']})" for name, result in failed.items())
        super().__init__(f"{len(failed)} of {total} runs failed: {reasons}. The same command repeats these.")


class Study:
    """The output folder of a command, and the runs in it.

    Args:
        out: the folder, which has a record.
        lock: a file descriptor that commands hold open, so that the folder stays locked while they run; :meth:`open` has one.
        dry: run nothing.

    Attributes:
        out: the folder.
        left: of a study that runs nothing, the cells that are not done.
        failed: the results of the runs that have failed, by their names.
    """

    def __init__(self, out: Path, lock: int | None = None, dry: bool = False) -> None:
        self.out, self._lock, self._dry = out, lock, dry
        self.left, self.failed, self._total = list[Cell](), dict[str, dict[str, Any]](), 0

    @classmethod
    @contextmanager
    def open(cls, out: Path, command: str, inputs: Inputs = (), dry: bool = False) -> Iterator[Study]:
        """Claim and lock a folder; yields the study in it.

        Args:
            out: the folder, which ``--out`` names.
            command: the command's name in the folder's record.
            inputs: flags with the files and folders that are read, which must not lie in ``out``.
            dry: run nothing.

        Raises:
            InputError, OSError: as :func:`.ownership.output`.
            Failures: on exit, if runs have failed, which by then are recorded and reported.
        """
        with output(out, command, inputs) as lock:
            study = cls(out, lock, dry)
            yield study
        study.finish()

    def run(
        self, cells: Sequence[Cell], run: RunCell, *, jobs: int = 1, keep_temporary: bool = False, bar: Bar | None = None
    ) -> list[dict[str, Any]]:
        """Run the cells that are not done, and return the results of those that finished or diverged, in their order.

        A result has the cell's key and configuration, and the status, outcome, seconds and versions of the run.

        Args:
            cells: the runs.
            run: does one run, or reads what its command has left. With several jobs, it is called in threads.
            jobs: runs at a time, among whose commands the GPUs are divided.
            keep_temporary: keep the temporary files of cells that finish.
            bar: the progress of several calls; by default, this one has its own.

        Raises:
            InputError: as :func:`.grid.finished`, or two cells have the same folder; before anything is run.
            InputError, OSError: raised by a run; the cells that have not begun are not run.
        """
        for folder, count in Counter(cell.folder(self.out) for cell in cells).items():
            if count > 1:
                raise InputError(f"two runs share the folder {folder}: their words, or six digits of their numbers, must differ")
        results = {cell: result for cell in cells if (result := finished(cell, self.out)) is not None}
        waiting = [cell for cell in cells if cell not in results]
        if self._dry:
            self.left += waiting
            return [*results.values()]
        stopping, free = Event(), SimpleQueue[Variables]()  # the variables of the environment of each job
        for variables in shares(torch.cuda.device_count(), jobs):
            free.put(variables)
        with nullcontext(bar) if bar else Bar(len(cells), *{cell.within for cell in cells[:1]}) as progress_bar:
            progress_bar.skip(len(results))

            def complete(cell: Cell) -> None:
                folder, progress, variables = cell.folder(self.out), progress_bar.progress_of(cell), free.get()
                try:
                    result = results[cell] = run_cell(cell, folder, run, progress, self._lock, variables, stopping)
                finally:
                    free.put(variables)
                progress_bar.ended(cell, result)
                if result["status"] == DIVERGED or (result["status"] == FINISHED and not keep_temporary):
                    for name in cell.temporary:
                        (folder / name).unlink(missing_ok=True)

            if jobs == 1:
                for cell in waiting:
                    complete(cell)
            else:
                with ThreadPoolExecutor(jobs) as pool:
                    try:
                        for future in as_completed([pool.submit(complete, cell) for cell in waiting]):
                            future.result()
                    except BaseException:
                        stopping.set()
                        pool.shutdown(cancel_futures=True)
                        raise
        self.failed |= {cell.name: results[cell] for cell in cells if results[cell]["status"] == FAILED}
        self._total += len(cells)
        return [results[cell] for cell in cells if results[cell]["status"] != FAILED]

    def finish(self) -> None:
        """Raise :class:`Failures` if runs have failed."""
        if self.failed:
            raise Failures(self.failed, self._total)
