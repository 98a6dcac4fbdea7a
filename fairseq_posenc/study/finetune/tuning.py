"""The runs of fine-tuning for both benchmarks: how they are started, trained, resumed, scored and reported."""

import shlex
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.data import Dictionary, indexed_dataset
from fairseq.models import BaseFairseqModel
from omegaconf import DictConfig

from ...base import ownership
from ...base.commands import show
from ...base.errors import InputError, flag_of
from ...base.files import atomic_write
from ...base.ownership import own
from ...base.record import DIVERGED, read_object, write_json
from ...plugin.models.checkpoint import Checkpoint
from ...text.vocabulary import fingerprint
from ..engine.grid import Cell, Diverged, Failures, Progress, finished, run_grid
from .fairseq_run import configure, load, options_set, train
from .grid_report import damaged_results_as_input_errors, notes, summarise, table
from .hyperparameters import Settings, SharedOptions

CHECKPOINTS = ("checkpoint_best.pt", "checkpoint_last.pt", "crash.pt")
FIXED_OPTIONS = (
    *("arch", "finetune_from_model", "restore_file", "max_tokens", "update_freq", "max_update", "train_subset", "valid_subset"),
    *("maximize_best_checkpoint_metric", "disable_validation", "validate_interval", "save_interval", "checkpoint_suffix"),
    *("no_save", "no_last_checkpoints", "regression_target"),
)
"""fairseq's options on whose defaults the results rest, in addition to those that the task, the grid and its settings set."""
UNDECIDED = ("--log-format", "json", "--log-interval", "20", "--num-workers", "0", "--find-unused-parameters")
"""Flags that decide no result. Heads that fine-tuning does not use, such as the language model's, get no gradients."""
PREPARED, FORMAT = "prepared.json", 1


def write_items(folder: Path, split: str, dictionary: Dictionary, items: Iterable[np.ndarray | list[int]]) -> None:
    """Write one split of a data-bin, and its dictionary; each item is (n,) ids."""
    folder.mkdir(parents=True, exist_ok=True)
    data, index, names = folder / f"{split}.bin", folder / f"{split}.idx", folder / "dict.txt"
    own(data, index, names)
    dictionary.save(str(names))
    dtype = indexed_dataset.best_fitting_int_dtype(len(dictionary))
    builder = indexed_dataset.MMapIndexedDatasetBuilder(str(data), dtype=dtype)
    for item in items:
        builder.add_item(torch.as_tensor(item))
    builder.finalize(str(index))


class TaskRuns(ABC):
    """The runs of one task, which differ only in learning rate and seed; ``data`` is the folder of its data-bin."""

    scored = "checkpoint_last.pt"  # the checkpoint that is scored
    outputs: Sequence[str] = ()  # names of the files that score() writes into the folder of a run

    def __init__(self, name: str, pretrained: Checkpoint, settings: Settings, options: SharedOptions) -> None:
        self.name, self.pretrained, self.settings, self.options = name, pretrained, settings, options
        self.data = options.out / "data" / name

    @property
    @abstractmethod
    def arguments(self) -> list[str]:
        """fairseq-train's flags that the task decides: its data, task, criterion and how checkpoints are chosen."""

    @abstractmethod
    def configuration(self) -> dict[str, Any]:
        """Return everything about the task that decides a result, in JSON's types; reads the data set."""

    @abstractmethod
    def write_data(self) -> int:
        """Write the data-bin; returns the number of training examples."""

    @abstractmethod
    def score(self, model: BaseFairseqModel, folder: Path) -> dict[str, Any]:
        """Return ``scores`` by evaluation set and metric, ``majority`` scores, and the sets with ``constant`` answers."""

    def finish(self, results: Sequence[Mapping[str, Any]]) -> None:  # noqa: B027 - not every benchmark has more
        """Write what depends on all results of the task, other than the report."""

    @cached_property
    def cells(self) -> list[Cell]:
        """One run per learning rate and seed. Two grids can be compared if all of their configuration but ``model`` is the same.

        Raises:
            InputError: as :attr:`_processes`, or these do not divide a batch.
        """
        self.settings.arguments(lr=1e-5, seed=1, examples=1, processes=self._processes)
        pretrained = self.pretrained
        configuration = {
            "model": {
                "checkpoint": None if self.options.from_scratch else pretrained.digest,
                "arch": pretrained.arch,
                "positions": pretrained.positions,
                **{name: getattr(pretrained.config, name) for name in ("position_sampling", "position_evaluation")},
            },
            "vocabulary": fingerprint(pretrained.vocabulary.dictionary, pretrained.vocabulary.folder),
            **self.configuration(),
            "train_flags": self.options.train_flags,
            **self.settings.hyperparameters,
        }
        keys: list[dict[str, Any]] = [
            {"task": self.name, "lr": lr, "seed": seed + 1} for lr in self.settings.lrs for seed in range(self.settings.seeds)
        ]
        return [Cell(key, configuration, needs=self.outputs, temporary=CHECKPOINTS) for key in keys]

    def prepare(self) -> None:
        """Read all of the data, and write the data-bin unless that is done.

        Raises:
            InputError: a file cannot be read.
        """
        identity = {name: self.cells[0].configuration[name] for name in ("vocabulary", *self.configuration())}
        done = read_object(self.data / PREPARED, FORMAT)
        if done is None or done["identity"] != identity:
            ownership.remove(self.data)
            examples = self.write_data()
            write_json(own(self.data / PREPARED), {"format": FORMAT, "identity": identity, "examples": examples})

    def run(self, cell: Cell, folder: Path, progress: Progress) -> dict[str, Any]:
        """Train and score one cell."""
        prepared, key = read_object(self.data / PREPARED, FORMAT), dict[str, Any](cell.key)
        assert prepared is not None
        train(self._fairseq_config(folder, key["lr"], key["seed"], prepared["examples"]), progress)
        progress("scoring")
        model = load(folder / self.scored)
        return self.score(model, folder)

    @cached_property
    def _model(self) -> DictConfig:
        """The options of the model; those of pretraining alone have their defaults."""
        dropout = {"dropout": self.settings.dropout, "attention_dropout": self.settings.attention_dropout}
        dropout |= dict.fromkeys(("pooler_dropout", "activation_dropout", "encoder_layerdrop"), 0.0)
        return self.pretrained.model_options(**dropout, compile=False, attention_backend="auto")

    def _arguments(self, save_dir: Path, lr: float, seed: int, examples: int, processes: int) -> list[str]:
        """Return fairseq-train's flags that decide a result."""
        return [
            *self.arguments,
            *("--save-dir", str(save_dir), "--no-epoch-checkpoints", "--max-positions", str(self._model.max_positions)),
            *self.settings.arguments(lr, seed, examples, processes),
            *([] if self.options.from_scratch else ["--finetune-from-model", str(self.options.checkpoint)]),
        ]

    def _fairseq_config(self, save_dir: Path, lr: float, seed: int, examples: int) -> DictConfig:
        """Return fairseq's configuration."""
        arguments = self._arguments(save_dir, lr, seed, examples, self._processes)
        arguments += [*UNDECIDED, "--distributed-world-size", str(self._processes), *shlex.split(self.options.train_flags)]
        return configure(self.pretrained.arch, self._model.copy(), arguments)

    @cached_property
    def _processes(self) -> int:
        """The number of processes that train one run: that of --train-flags, or by default one per GPU that ``--jobs`` leaves it.

        Raises:
            InputError: fairseq rejects --train-flags, or they set something that the task or the grid decides.
        """
        gpus = torch.cuda.device_count() // (1 if self.options.cell else self.options.jobs)
        given, flags = self.options.train_flags, f"--train-flags {self.options.train_flags!r}"
        decisive = self._arguments(self.options.out, lr=1e-5, seed=1, examples=1, processes=1)
        try:
            arguments = [*decisive, *UNDECIDED, *shlex.split(given)]
            config = configure(self.pretrained.arch, self._model.copy(), arguments)
            values = options_set(self.pretrained.arch, arguments, shlex.split(given))
        except Exception as error:  # of any kind, as fairseq evaluates some values as Python
            if not given:
                raise
            raise InputError(f"{flags}: fairseq-train does not take them: {error}") from None
        sections = [section for key, section in config.items() if key != "model" and isinstance(section, DictConfig)]
        set_here = options_set(self.pretrained.arch, arguments, decisive[1:])
        decided = {*FIXED_OPTIONS, *set_here, *({*config.model} - {name for section in sections for name in section})}
        if conflicts := [name for name in values if name in decided]:
            raise InputError(f"{flags} sets {flag_of(conflicts[0])}, which this command decides. Leave it out there.")
        return values.get("distributed_world_size", max(1, gpus))


def max_length(length: int | None, pretrained: Checkpoint, minimum: int, default: int = 512) -> int:
    """Return the number of tokens per sequence: what is given, or the length of pretraining, but at most ``default``.

    The default is the same for every scheme, although some would take more, so that runs of two schemes are comparable.

    Raises:
        InputError: the model has fewer positions, or there is no room for text; the message names the flag.
    """
    length = min(default, pretrained.length) if length is None else length
    if length > pretrained.max_length:
        sampling = pretrained.config.position_sampling
        limits = f"--positions {pretrained.positions}" + (f" with --position-sampling {sampling}" if sampling else "")
        raise InputError(
            f"--max-length {length}: {pretrained.path} takes at most {pretrained.max_length} tokens, by its {limits}. Name a "
            "lower length, or use a checkpoint with an inductive scheme whose positions are not sampled, which takes any length."
        )
    if length < minimum:
        raise InputError(f"--max-length {length}: at least {minimum} tokens are needed")
    return length


def fine_tune(
    command: str,
    tasks: Sequence[TaskRuns],
    options: SharedOptions,
    inputs: Iterable[Path],
    columns: Mapping[str, str] | None = None,
) -> None:
    """Run what is not done yet, write the report into ``--out``, and print it. Bad input is rejected before training.

    A process of ``--jobs`` runs its one cell under the lock that its parent holds.

    Args:
        inputs: files and folders of the data set, which must not lie in ``--out``.
        columns: those of the average: see :func:`.grid_report.summarise`.

    Raises:
        InputError, OSError: data cannot be read, or as :func:`.engine.grid.run_grid`.
    """
    if options.cell:
        (task,) = (task for task in tasks if options.cell.startswith(f"{task.name} "))
        cells = [cell for cell in task.cells if cell.name == options.cell]
        run_grid(cells, options.out, task.run, keep_temporary=True)
        return
    vocabulary = tasks[0].pretrained.vocabulary.folder
    read = [("--checkpoint", options.checkpoint), ("--data-bin", vocabulary / "dict.txt"), *(("--data", path) for path in inputs)]
    with ownership.output(options.out, command, read) as lock:
        _run_all(tasks, options, lock, columns)


def _run_all(tasks: Sequence[TaskRuns], options: SharedOptions, lock: int, columns: Mapping[str, str] | None) -> None:
    task_of, out = {cell: task for task in tasks for cell in task.cells}, options.out
    waiting = {task_of[cell] for cell in task_of if finished(cell, out) is None}
    for task in tasks:
        if task in waiting:
            task.prepare()
    cells = [*task_of]
    if options.jobs > 1:
        command = [sys.executable, "-m", "fairseq_posenc.cli", *options.command, "--cell"]
        cells = [replace(cell, command=[*command, cell.name], until=("update", task_of[cell].settings.epochs)) for cell in cells]

    def run(cell: Cell, folder: Path, progress: Progress) -> dict[str, Any]:
        return _recorded(cell, out) if cell.command else task_of[cell].run(cell, folder, progress)

    failures = None
    try:
        devices = torch.cuda.device_count()
        results = run_grid(
            cells, out, run, keep_temporary=options.keep_checkpoints, lock=lock, jobs=options.jobs, devices=devices
        )
    except Failures as error:
        failures, results = error, error.results
    if results:
        with damaged_results_as_input_errors(str(out / "runs")):
            text = write_report(results, out, columns)
        show(text)
    if failures:
        raise failures
    for task in tasks:
        task.finish([result for result in results if result["task"] == task.name])


def write_report(results: Sequence[Mapping[str, Any]], out: Path, columns: Mapping[str, str] | None = None) -> str:
    """Write results.json and results.md into ``out``; returns the table, with notes below it."""
    report = summarise(results, columns)
    lines = [table(report), *notes(report)]
    write_json(own(out / "results.json"), report)
    with atomic_write(own(out / "results.md")) as stream:
        stream.write("\n\n".join(lines) + "\n")
    return "\n\n".join(lines)


def _recorded(cell: Cell, out: Path) -> dict[str, Any]:
    result = finished(cell, out)
    if result is None:
        raise ChildProcessError(f"the process of {cell.name} has recorded no result")
    if result["status"] == DIVERGED:
        raise Diverged(result["reason"])
    return result
