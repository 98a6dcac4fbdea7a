"""Show what models learned about position, as one HTML page with pictures and numbers.

A MODEL is a checkpoint of fairseq-train, the folder of a run (or of a Hydra job, which has its checkpoints in checkpoints/), or a
Hugging Face model of a type that import-hf takes, or Longformer, by name or folder. A run is represented by its best checkpoint,
and R² is followed along all of them. LABEL=MODEL gives a model another name in the pictures.

    fairseq-posenc analyze checkpoints/tisa bert=bert-base-uncased --text some.txt --out analysis

The parameters alone show position vectors, their effect on the first layer's attention, and functions of the offset. With --text,
the page also has the kinds of heads, correlations of words and positions, and linear probes of hidden states. Each model
then takes minutes. All models are checked before the analysis begins. An interrupted analysis continues with the same command.
Needs matplotlib and, for the probes, scikit-learn.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.commands import existing, option, saved_checkpoints, show
from ...base.errors import InputError, require_extras

if TYPE_CHECKING:
    from torch import Tensor

    from .models import AnalyzedModel

CHARACTERS = 2_000_000  # of the text that are read
MODELS = "models"


@dataclass(kw_only=True)
class Options:
    """The flags of ``fairseq-posenc analyze``, with their defaults."""

    models: list[str] = option("a checkpoint, a run's folder, or a Hugging Face model", names=("models",), nargs="+")
    out: Path = option("the folder to write", metavar="DIR")
    text: Path | None = option(
        "UTF-8 text for the models to read (its first two million characters)", None, parse=existing, metavar="FILE"
    )
    length: int = option("tokens of a window, one more than the largest offset", 128, minimum=8, maximum=2048, metavar="N")
    windows: int = option("windows to read, at most", 64, minimum=2, metavar="N")
    data_bin: list[str] | None = option("the vocabulary of checkpoints, or of the one with this label; repeatable (default: that "
                                        "of its training)", None, metavar="[LABEL=]DIR")  # fmt: skip


def main(options: Options) -> None:
    """Analyze the models that the flags name, and write and print the report.

    Raises:
        InputError, OSError: a flag, or a file that it names, cannot be used.
    """
    require_extras("plots", *(["glue"] if options.text is not None else []))
    from ..engine.grid import Cell, Progress
    from ..engine.report import PAGE
    from ..engine.study import Study
    from .examine import Examined, examine, require_positions
    from .models import read, split_label
    from .report import report

    labels, paths = zip(*((label, Path(name)) for label, name in map(split_label, options.models)), strict=True)
    folders = [re.sub(r"\W+", "-", label) for label in labels]
    if repeated := next((label for label, name in zip(labels, folders, strict=True) if folders.count(name) > 1), None):
        raise InputError(f"two models are called {repeated}: give each another name with LABEL=MODEL")
    data_bins = _data_bins(options.data_bin or [], labels)
    text = None if options.text is None else _read_text(options.text)

    def load(number: int) -> tuple[AnalyzedModel, int, Tensor | None]:
        model = read(options.models[number], data_bins[number], text is not None)
        n = model.fitting_length(options.length)
        require_positions(model, n)
        return model, n, None if text is None else model.windows(text, n, options.windows)

    for number in range(len(labels)):
        load(number)

    def run(cell: Cell, folder: Path, progress: Progress) -> dict[str, Any]:
        progress("analysis")
        numbers, sections = examine(*load(cells.index(cell)))
        for figure in (figure for figures in sections.values() for figure in figures):
            figure.save(folder)
        path = folder.relative_to(options.out)
        recorded = {name: [(f"{path}/{figure.name}", figure.caption) for figure in sections[name]] for name in sections}
        return {**numbers, "figures": recorded}

    inputs = [("MODEL", path) for path in paths if path.exists()] + ([("--text", options.text)] if options.text else [])
    settings = {"length": options.length, "windows": options.windows}
    files = [_files([path, data_bin, options.text]) for path, data_bin in zip(paths, data_bins, strict=True)]
    cells = [
        Cell({"model": name}, {**settings, "label": label, "files": of_model}, within=MODELS, outcome=Examined)
        for name, label, of_model in zip(folders, labels, files, strict=True)
    ]
    with Study.open(options.out, "analyze", inputs) as study:
        models = study.run(cells, run)
        summary = report(models).write(study.out)
    show(f"{summary}\n\n{options.out / PAGE}")


def _data_bins(values: Sequence[str], labels: Sequence[str]) -> list[Path | None]:
    """Return the data-bin of each model: that with its label, or that without."""
    by_label = {}
    for value in values:
        label, sign, folder = value.partition("=")
        if sign and label not in labels:
            raise InputError(f"--data-bin {value}: no model is called {label}; the models are {', '.join(labels)}")
        by_label[label if sign else None] = Path(folder if sign else value)
    return [by_label.get(label, by_label.get(None)) for label in labels]


def _files(paths: Sequence[Path | None]) -> dict[str, list[int]]:
    """Return the sizes and times of these files, or of the checkpoints or all files of these folders; [] for names on the Hub."""
    states: dict[str, list[int]] = {str(path): [] for path in paths if path is not None and not path.exists()}
    for path in filter(None, paths):
        for file in saved_checkpoints(path) or (sorted(path.iterdir()) if path.is_dir() else [path]):
            if file.is_file():
                states[str(file.resolve())] = [(state := file.stat()).st_size, state.st_mtime_ns]
    return states


def _read_text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8-sig") as stream:
            return stream.read(CHARACTERS)
    except UnicodeDecodeError as error:
        raise InputError(f"--text {path} is not UTF-8 ({error}): name a plain text file") from None
