"""A study: many runs in one output folder, which a command claims, locks, continues and reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ...base.ownership import Inputs, output
from .grid import Bar, Cell, Failures, RunCell, finished, run_grid
from .report import Report


class Study:
    """The output folder of a command, and the runs in it; made by :meth:`open`.

    Attributes:
        out: the folder.
        left: of a study that runs nothing, the cells that are not done.
    """

    def __init__(self, out: Path, lock: int, dry: bool) -> None:
        self.out, self.left, self._lock, self._dry, self._failures = out, list[Cell](), lock, dry, list[Failures]()

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
        for failures in study._failures:
            raise failures

    @property
    def failed(self) -> list[dict[str, Any]]:
        """The results of the runs that have failed, of all calls of :meth:`run`."""
        return [result for failures in self._failures for result in failures.failed]

    def run(
        self, cells: Sequence[Cell], run: RunCell, *, jobs: int = 1, keep_temporary: bool = False, bar: Bar | None = None
    ) -> list[dict[str, Any]]:
        """Run the cells that are not done, and return the results of those that finished or diverged, in their order.

        Args:
            cells: the runs.
            run: does one run, or reads what its command has left.
            jobs: runs at a time, among whose commands the GPUs are divided.
            keep_temporary: keep the cells' temporary files.
            bar: the progress of several calls; by default, this one has its own.

        Raises:
            InputError, OSError: as :func:`.grid.run_grid`.
        """
        if self._dry:
            results = {cell: finished(cell, self.out) for cell in cells}
            self.left += [cell for cell, result in results.items() if result is None]
            return [result for result in results.values() if result is not None]
        devices, lock = torch.cuda.device_count(), self._lock
        try:
            return run_grid(cells, self.out, run, keep_temporary=keep_temporary, jobs=jobs, devices=devices, lock=lock, bar=bar)
        except Failures as error:
            self._failures.append(error)
            return error.results

    def write(self, report: Report) -> str:
        """Write a report into the folder; returns its summary in Markdown."""
        return report.write(self.out)
