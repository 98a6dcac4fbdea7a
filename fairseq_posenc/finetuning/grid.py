"""Many runs, one for each task, learning rate and seed: each finished one is a file, so that a killed grid goes on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ..files import atomic_write
from .training import Progress

Configuration = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Cell:
    """One run of the grid.

    Attributes:
        configuration: everything that decides its result, in JSON's types.
    """

    task: str
    lr: float
    seed: int
    configuration: Configuration

    @property
    def name(self) -> str:
        return f"{self.task} lr={self.lr:g} seed={self.seed}"

    def folder(self, out: Path) -> Path:
        """Where it keeps its log, its checkpoints while it runs, and its result."""
        return out / "runs" / self.task / f"lr-{self.lr:g}_seed-{self.seed}"


RESULT = "result.json"
Run = Callable[[Cell, Path, Progress], dict[str, Any]]
"""Does one run in a folder and returns what it scored."""


def run_grid(
    cells: Sequence[Cell], out: Path, run: Run, needs: Mapping[str, Sequence[str]], keep_checkpoints: bool = False
) -> list[dict[str, Any]]:
    """Do what is not done yet.

    Args:
        cells: the grid.
        out: the output folder.
        run: does one cell.
        needs: by task, files that a finished cell must have in its folder besides its result.
        keep_checkpoints: leave the trained models there.

    Returns:
        The cells' results, in their order: task, lr, seed, folder (below ``out``), configuration, seconds and what ``run``
        returned.

    Raises:
        ValueError: a finished or begun cell had another configuration; says what differs.
    """
    results = {cell: _finished(cell, out, needs.get(cell.task, ())) for cell in cells}
    done = sum(result is not None for result in results.values())
    with tqdm(total=len(cells), initial=done, desc="runs", unit="run", dynamic_ncols=True) as bar:
        for cell in [cell for cell, result in results.items() if result is None]:
            bar.set_postfix_str(cell.name)
            results[cell] = _do(cell, out, run, lambda text, name=cell.name: bar.set_postfix_str(f"{name}, {text}"))
            if not keep_checkpoints:
                _remove_checkpoints(cell.folder(out))
            bar.update()
    return [result for result in results.values() if result is not None]


def _do(cell: Cell, out: Path, run: Run, progress: Progress) -> dict[str, Any]:
    folder = cell.folder(out)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "configuration.json", cell.configuration)
    start = time.monotonic()
    scored = run(cell, folder, progress)
    result = {
        "task": cell.task,
        "lr": cell.lr,
        "seed": cell.seed,
        "folder": str(folder.relative_to(out)),
        **scored,
        "seconds": round(time.monotonic() - start, 1),
        "configuration": cell.configuration,
    }
    write_json(folder / RESULT, result)
    return result


def _remove_checkpoints(folder: Path) -> None:
    for checkpoint in folder.glob("checkpoint*.pt"):
        checkpoint.unlink()


def _finished(cell: Cell, out: Path, needs: Sequence[str]) -> dict[str, Any] | None:
    folder = cell.folder(out)
    begun = read_json(folder / "configuration.json")
    if begun is not None:
        _require_same(cell, begun, folder)
    if any(not (folder / name).exists() for name in needs):
        return None
    return read_json(folder / RESULT)


def _require_same(cell: Cell, before: Configuration, folder: Path) -> None:
    now = json.loads(json.dumps(cell.configuration))
    different = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    changed = [f"{key} was {before.get(key)!r}, now {now.get(key)!r}" for key in different]
    if different:
        raise ValueError(
            f"{folder} is of another configuration: {'; '.join(changed)}. Name another --out, or remove that folder to run it "
            "anew."
        )


def write_json(path: Path, content: Any) -> None:
    """Write a file that is whole or not there."""
    with atomic_write(path) as stream:
        json.dump(content, stream, indent=1, ensure_ascii=False)
        stream.write("\n")


def read_json(path: Path) -> Any:
    """What :func:`write_json` wrote; None where there is none.

    Raises:
        ValueError: it is not JSON.
    """
    if not path.exists():
        return None
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}). Remove it to run that part anew.") from None
