"""The runs of a comparison: one ``fairseq-train`` each, and how its model is measured."""

import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from fairseq.models import ARCH_MODEL_REGISTRY
from omegaconf import DictConfig
from pydantic import Field

from ...base import log
from ...base.commands import Parser, add_flags, read_flags
from ...base.errors import InputError
from ...base.record import FINISHED, FORMAT, RESULT, Recorded, read_object
from ...plugin.batches.word_order import ORDERED
from ...plugin.checkpoint.checkpoint import Checkpoint
from ...plugin.checkpoint.trust import require_no_user_dir, user_dir
from ...plugin.models.building import complete_new, parse_flags_of
from ...plugin.run import refusals
from ...text.data import databin
from ...text.vocabulary import load_dictionary
from ..analyze.embeddings import position_vectors, vector_count
from ..analyze.examine import r_squared_of_run
from ..analyze.toeplitz import of_random_vectors
from ..engine.grid import LOG, Cell, Progress
from ..measure import losses
from ..measure.work import default_device, device_name
from .plan import LEFT_TO_RIGHT, LENGTH, PAIRS, POINTS, SELECTION, STOP_AFTER, UNKNOWN_UPDATES, Plan
from .results import ACCURACIES

Loss = Annotated[float, Field(ge=0, le=1000)]
LAST = "checkpoint_last.pt"
RANDOM = "(random weights)"
COMMANDS = {"glue": "..finetune.glue", "squad": "..finetune.squad", PAIRS: "..pairs.command"}
"""The modules of the benchmarks' commands, which run in processes of their own."""
SAVE = "FAIRSEQ_POSENC_SAVE_SECONDS=300"
"""What a kill may lose of a run: see :mod:`...plugin.processes.graceful_stop`."""
CHUNK = 1 << 24
VALID_TOKENS = 1 << 15
"""Tokens of a validation during training."""


class Point(Recorded):
    """A validation during training."""

    updates: int = Field(ge=1, le=10**9)
    loss: Loss
    permuted: Loss | None = None


class Measured(Recorded):
    """The outcome of a run: see :meth:`Runs.measure`."""

    selection: Loss
    loss: Loss
    permuted: Loss | None = None
    by_position: list[Loss | None] = Field(min_length=losses.PARTS, max_length=losses.PARTS)
    by_length: dict[Annotated[str, Field(pattern=r"^\d{1,9}$")], Loss]
    unigram: Loss
    curve: list[Point] = Field(min_length=1, max_length=10**6)
    device: str
    parameters: int
    r_squared: dict[str, float]
    r_squared_of_random_vectors: float | None
    command: str


class Scored(Recorded):
    """The outcome of fine-tuning: see :meth:`Runs.score`."""

    scores: dict[str, float | None]


class Runs:
    """The runs of one plan on one data-bin.

    Attributes:
        plan: the plan.
        data: the data-bin.
        digests: of its files, by name.
        file: the plan's, for messages.
        budgets: the folders of the tables that differ in the budget alone (:meth:`.plan.Plan.beside`), by the update until which
            the learning rate is that of larger budgets (:attr:`.plan.Plan.constant_until`).
    """

    def __init__(
        self,
        plan: Plan,
        data: Path,
        digests: Mapping[str, str],
        file: Path = Path("the plan"),
        budgets: Mapping[int, Path] | None = None,
    ) -> None:
        self.plan, self.data, self.digests, self._file, self._budgets = plan, data, digests, file, budgets or {}
        self._updates = plan.updates or UNKNOWN_UPDATES
        self._interval = max(1, self._updates // plan.validations)

    def cell(self, scheme: str, lr: float, seed: int, out: Path) -> Cell:
        """Return one run."""
        plan, key, flags = self.plan, _key(scheme, lr, seed), self.plan.flags(scheme)
        valid_steps = max(1, VALID_TOKENS // plan.tokens_per_update)
        subsets = f"valid,{ORDERED},permuted" if plan.task == LEFT_TO_RIGHT else "valid,permuted"
        logging = f"--log-format json --log-interval {max(1, self._interval // 2)} --valid-subset {subsets}"
        logging += f" --max-valid-steps {valid_steps} --validate-interval 1000000 --validate-interval-updates {self._interval}"
        scale, stop = plan.schemes[scheme].initial_scale, STOP_AFTER if plan.stop else 0
        program = ["fairseq_cli.train"]
        if scale != 1 or stop:
            program = ["fairseq_posenc.study.compare.training", f"{scale:g}", str(stop)]
        configuration = {"flags": flags, "threads": plan.threads, "valid_tokens": plan.valid_tokens, "data": dict(self.digests)}
        unusual = (("initial_scale", scale, 1), ("stop", plan.stop, None), ("validations", plan.validations, POINTS))
        configuration |= {name: value for name, value, usual in unusual if value != usual}
        saving = ["--save-interval-updates", str(plan.constant_until)] if self._budgets and plan.constant_until else []
        folders = {at: Cell(key, {}).folder(self._budgets[at]) for at in self._smaller(key, configuration)}
        before = [path for at, folder in folders.items() for path in folder.glob(f"checkpoint_*_{at}.pt")]
        saving += ["--continue-once", str(before[-1])] if before else []
        command = [
            *("env", f"OMP_NUM_THREADS={plan.threads}", SAVE, sys.executable, "-m", *program),
            *(str(self.data), *user_dir(), *flags),
            *("--lr", str(lr), "--seed", str(seed), "--save-dir", str(Cell(key, {}).folder(out)), "--no-epoch-checkpoints"),
            *("--distributed-world-size", "1"),  # with several GPUs, a batch of all would be larger
            *logging.split(),
            *saving,
            *(() if torch.cuda.is_available() else ("--cpu",)),
        ]
        until = ("wall", 60 * plan.budget.minutes) if plan.budget.minutes else ("num_updates", self._updates)
        tuning = (read_object(_benchmark(name, scheme, seed).folder(out) / RESULT, FORMAT) for name in plan.benchmarks)
        tuned = all(result is not None and result["status"] == FINISHED for result in tuning)
        needs = () if tuned else (LAST,)
        temporary = [name for name in (LAST, "checkpoint_best.pt", "crash.pt") if name not in needs]
        return Cell(key, configuration, command, until, needs, temporary, outcome=Measured)

    def _smaller(self, key: Mapping[str, Any], configuration: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
        """Return the results of runs with smaller budgets and else the same settings, by where they part; the largest last."""
        found = dict[int, Mapping[str, Any]]()
        for at in sorted(at for at in self._budgets if at < self.plan.constant_until):
            result = read_object(Cell(key, {}).folder(self._budgets[at]) / RESULT, FORMAT)
            if result and result["status"] == FINISHED and _but_budget(result["configuration"]) == _but_budget(configuration):
                found[at] = result
        return found

    def check(self) -> None:
        """Raise InputError if fairseq-train would reject a scheme, or run code that the plan names; the message names it."""
        require_no_user_dir(self.plan.benchmarks.values(), self._file)
        for name, flags in self.plan.benchmarks.items():
            self._check_benchmark(name, shlex.split(flags))
        tokens, needed = len(databin.read(self.data / "valid", load_dictionary(self.data))[0]), 4 * self.plan.tokens_per_sample
        if (measured := min(tokens, self.plan.valid_tokens)) < needed:
            raise InputError(
                f"{self._file}: samples of {self.plan.tokens_per_sample} tokens need {needed:,} of validation text, and it has "
                f"{measured:,}: shorten the samples, or raise valid_tokens or the text"
            )
        for scheme in self.plan.schemes:
            try:
                cfg = parse_flags_of(self._file, [str(self.data), *self.plan.flags(scheme)])
                if (mode := str(getattr(cfg.task, "sample_break_mode", "none"))) != "none":
                    raise InputError(f"--sample-break-mode {mode}: the halves of the validation text are cut for 'none'")
                others = {name for key, part in cfg.items() if key != "model" and isinstance(part, DictConfig) for name in part}
                if differing := [name for name in self.plan.schemes[scheme].options if name in others and name != LENGTH]:
                    raise InputError(
                        f"options.{differing[0]} is not of the model, and would differ between schemes: leave it out"
                    )
                if hasattr(ARCH_MODEL_REGISTRY[cfg.model._name], "option_set"):
                    complete_new(cfg.model, cfg.model._name, cfg.task)
                refusals.check(cfg)
            except InputError as error:
                raise InputError(f"schemes.{scheme}: {error}") from None

    def _check_benchmark(self, name: str, flags: Sequence[str]) -> None:
        """Raise InputError if a benchmark would reject its flags, which is else found after the trainings."""
        command, parser = import_module(COMMANDS[name], __package__), Parser(prog=name)
        add_flags(parser, command.Options)
        model = ["model"] if name == PAIRS else ["--checkpoint", str(self.data / "dict.txt")]
        try:
            given = read_flags(command.Options, parser.parse_args([*model, "--data-bin", str(self.data), "--out", "out", *flags]))
            if name == PAIRS and not command.pairs_of(given):
                raise InputError("it needs --data")
        except InputError as error:
            raise InputError(f"{self._file}: benchmarks.{name}: {error}") from None

    def first(self, out: Path) -> list[Cell]:
        """Return the runs that choose the learning rates."""
        return self._cells(SELECTION, dict.fromkeys(self.plan.schemes, self.plan.learning_rates), out)

    def further(self, chosen: Mapping[str, float], out: Path) -> list[Cell]:
        """Return the runs with the other seeds, of schemes whose learning rate has been chosen."""
        seeds = range(1 + len(SELECTION), 1 + max(map(self.plan.seeds_of, self.plan.schemes)))
        return self._cells(seeds, {scheme: [lr] for scheme, lr in chosen.items()}, out)

    def _cells(self, seeds: Iterable[int], rates: Mapping[str, Sequence[float]], out: Path) -> list[Cell]:
        """Return the runs of schemes with learning rates and those of these seeds that each scheme has."""
        keys = [(scheme, lr, seed) for seed in seeds for scheme, of_scheme in rates.items() for lr in of_scheme]
        return [self.cell(*key, out) for key in keys if key[-1] <= self.plan.seeds_of(key[0])]

    def benchmarks(self, runs: Sequence[Mapping[str, Any]], out: Path) -> list[Cell]:
        """Return the benchmarks of the models of finished runs, and of untrained models of the reference."""
        cells = []
        for name, flags in self.plan.benchmarks.items():
            for run in runs:
                scheme, seed = run["scheme"], run["seed"]
                of_all = ["--max-length", str(self.plan.tokens_per_sample)] if name == PAIRS else []  # some schemes take no more
                starts = [(scheme, [*of_all, *shlex.split(flags)])]
                if scheme == self.plan.reference and seed == 1 and name != PAIRS:
                    # From random weights, the seeds of fine-tuning alone differ.
                    starts.append((RANDOM, [*shlex.split(flags), "--from-scratch"]))
                for start, arguments in starts:
                    cell = _benchmark(name, start, seed)
                    model = Cell(_key(scheme, run["lr"], seed), {}).folder(out) / LAST
                    command = [sys.executable, "-m", "fairseq_posenc.cli", *user_dir(), name, *arguments]
                    command += [f"{PAIRS}={model}"] if name == PAIRS else ["--checkpoint", str(model)]
                    command += ["--data-bin", str(self.data), "--out", str(cell.folder(out) / name)]
                    configuration = {"model": run["configuration"], "lr": run["lr"], "flags": arguments}
                    cells.append(replace(cell, configuration=configuration, command=command))
        return cells

    def score(self, cell: Cell, folder: Path, progress: Progress) -> dict[str, Any]:
        """Return the ``scores`` of a benchmark in per cent: of tasks, the median over the seeds; of pairs, the accuracies."""
        report = read_object(folder / str(cell.key["benchmark"]) / "results.json", FORMAT) or {"tasks": {}}
        if cell.key["benchmark"] == PAIRS:
            return {"scores": {name: report["models"][0][name]["accuracy"] for name in ACCURACIES}}
        return {"scores": {task: content["overall"]["median"] for task, content in report["tasks"].items()}}

    def shown(self, cell: Cell) -> str:
        """Return the command of a run, as in a shell."""
        if "benchmark" in cell.key:
            return shlex.join(["fairseq-posenc", *cell.command[3:]])
        return shlex.join([f"OMP_NUM_THREADS={self.plan.threads}", "python", *cell.command[4:]])

    def measure(self, cell: Cell, folder: Path, progress: Progress) -> dict[str, Any]:
        """Measure the model that a run has left in its folder, on the two halves of the validation text.

        Returns:
            ``selection`` and ``loss``, the bits per predicted token of the first and the second half; ``permuted``, those of the
            second half with the visible words of each sequence in another order (:meth:`.losses.Text.permuted`), or of a model
            that reads from left to right, ``loss`` and what this order costs of the words that are predicted in it;
            ``by_position``, the loss in equal parts of a sequence from left to right; ``by_length``, the loss on longer sequences
            that the model takes, up to 4 times those of training, or 8 times if it reads from left to right; ``unigram``, the
            loss of the training text's frequencies of words; ``curve``, the ``updates``, ``loss`` and ``permuted`` of the
            validations during training; ``device``; ``parameters``, of the positions;
            ``r_squared`` by the number of updates, of encoders (see :func:`.analyze.examine.r_squared_of_run`);
            ``r_squared_of_random_vectors``, None where none are added to words; and the ``command``.

        Raises:
            Diverged: a loss is not finite.
        """
        progress("measuring")
        plan, n = self.plan, self.plan.tokens_per_sample
        checkpoint = Checkpoint(folder / LAST, self.data, may_be_causal=True)
        model, causal = checkpoint.build_model(), checkpoint.is_causal
        selection, text = losses.read(checkpoint, self.data, plan.valid_tokens, 4 * n).halves(n)
        predictions, shuffled = losses.predict(model, text, n), text.permuted(n)
        loss, in_order = predictions.summary()["loss"], predictions.losses[shuffled.predicted[text.predicted]]
        encoder = None if causal else checkpoint.encoder()
        vectors = None if encoder is None else position_vectors(encoder, vector_count(encoder, n))
        curve, ordered, permuted = (log.validation_losses(folder / LOG, name) for name in ("valid", ORDERED, "permuted"))
        first, validations = min(curve, default=0), list[dict[str, Any]]()
        for at, result in self._smaller(cell.key, cell.configuration).items():
            after = validations[-1]["updates"] if validations else 0
            validations += [point for point in result["curve"] if after < point["updates"] <= at and point["updates"] < first]
        if not validations and first > self._interval:
            raise InputError(
                f"{folder} continues from a run that is no longer there: remove it, so that it is run from the beginning"
            )
        for at, bits in curve.items():
            permuted_bits = permuted[at] + (bits - ordered.get(at, bits)) if at in permuted else None
            validations.append({"updates": at, "loss": bits, "permuted": permuted_bits})
        return {
            "selection": losses.predict(model, selection, n).summary()["loss"],
            "loss": loss,
            "permuted": loss + float((losses.predict(model, shuffled, n).losses - in_order).mean()),
            "by_position": [part["loss"] for part in predictions.summary()["parts"]],
            "by_length": {
                str(length): losses.predict(model, text, length).summary()["loss"]
                for length in (2 * n, 4 * n, *([8 * n] if causal else []))
                if checkpoint.max_predicted >= length and len(text.tokens) >= length - 1
            },
            "unigram": float(self._unigram[text.tokens[text.predicted].numpy()].mean()),
            "curve": validations,
            "device": device_name(default_device()),
            "parameters": sum(tensor.numel() for name, tensor in checkpoint.state.items() if "positions." in name),
            "r_squared": {} if causal else r_squared_of_run([folder / LAST], n),
            "r_squared_of_random_vectors": None if vectors is None else of_random_vectors(*vectors.shape),
            "command": self.shown(cell),
        }

    @cached_property
    def _unigram(self) -> np.ndarray:
        """Bits of each word by its share of the training tokens, plus one: (V,)."""
        dictionary = load_dictionary(self.data)
        tokens, _ = databin.read(self.data / "train", dictionary)
        parts = np.array_split(tokens, 1 + len(tokens) // CHUNK)
        counts = 1 + np.sum([np.bincount(part, minlength=len(dictionary)) for part in parts], axis=0)
        return np.log2(counts.sum()) - np.log2(counts)


def _benchmark(name: str, scheme: str, seed: int) -> Cell:
    return Cell({"benchmark": name, "scheme": scheme, "seed": seed}, {}, within="benchmarks", outcome=Scored)


def _but_budget(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without the values that differ between budgets."""
    return {**configuration, "flags": re.sub("(--max-update|--decay-updates) [^ ]+", "", " ".join(configuration["flags"]))}


def _key(scheme: str, lr: float, seed: int) -> dict[str, str | int | float]:
    return {"scheme": scheme, "lr": lr, "seed": seed}
