"""What is compared: the YAML file of ``fairseq-posenc compare``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from fairseq.models import ARCH_MODEL_REGISTRY
from pydantic import Field, ValidationError, model_validator

from ...base.errors import MAX_POSITIONS, InputError, flag_of, flag_value
from ...base.record import Strict, faults, read_yaml
from ...core.families import expression_of
from ...plugin.models import transformer_lm
from ..engine.grid import SCHEME

MASKED, LEFT_TO_RIGHT = "masked_lm", transformer_lm.PosencLanguageModel.option_set.task
CRITERIA = {MASKED: "masked_lm", LEFT_TO_RIGHT: "cross_entropy"}
"""The criterion of each task whose models are compared."""
RECIPE = """
    --sample-break-mode none --dropout 0 --attention-dropout 0
    --optimizer adam --adam-betas (0.9,0.98) --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 1
"""
FIXED = frozenset(
    shlex.split("""
    --arch -a --positions --lr --lr-scheduler --seed --save-dir --tokens-per-sample --max-positions --batch-size --max-sentences
    --max-tokens --update-freq --max-epoch --max-update --total-num-update --warmup-updates --stop-time-hours
    """)
)
"""Flags of which the plan has the values."""
TASK = frozenset(("--task", "--criterion"))
LENGTH = "max_positions"
"""The option of schemes whose tables are to be longer than the samples, as those of positions that are drawn."""
SELECTION = (1, 2)
"""The seeds that choose a scheme's learning rate."""
PAIRS = "pairs"
"""The benchmark that fine-tunes no model."""
MAX_RUNS = 10**4
POINTS = 25
"""Validations during training, by default."""
STOP_AFTER = 3
"""Validations in a row that use word order, after which a run ends whose plan says so."""
UNKNOWN_UPDATES = 1000
"""Of a run whose budget is a time, the updates on which the intervals of validation are based."""


Rates = Annotated[list[Annotated[float, Field(gt=0, le=1000)]], Field(min_length=1)]


class Budget(Strict):
    """How long each run trains: one of the three."""

    updates: int | None = Field(None, ge=1, le=10**9)
    tokens: int | None = Field(None, ge=1, le=10**15)
    minutes: float | None = Field(None, gt=0, le=10**7)

    @model_validator(mode="after")
    def _one(self) -> Budget:
        if sum(value is not None for value in (self.updates, self.tokens, self.minutes)) != 1:
            raise ValueError("name one of updates, tokens and minutes")
        return self


class Scheme(Strict):
    """One row of the result: an expression, or an architecture, with options. Without both, its name is the expression.

    ``initial_scale`` multiplies the initial values of the positions (:mod:`.training`).
    """

    positions: str | None = None
    arch: str | None = None
    options: dict[str, str | bool | int | float] = Field({})
    seeds: int | None = Field(None, ge=1)
    initial_scale: float = Field(1.0, gt=0, le=1000)


class Recipe(Strict):
    """The fields of the plan of which a table has other values."""

    learning_rates: Rates | None = None
    batch_size: int | None = Field(None, ge=1)
    warmup: float | None = Field(None, ge=0)
    decay: float | None = Field(None, ge=0, le=1)


class Size(Recipe):
    """The sizes of all models of a table, whose feed-forward networks are four times as wide as the model."""

    layers: int = Field(ge=1)
    dim: int = Field(ge=1)
    heads: int = Field(ge=1)


class Plan(Strict):
    """The whole file.

    Attributes:
        arch: the architecture of schemes that name none. All are of masked language models, or all of models that read from left
            to right; the task and the criterion follow from it.
        schemes: by the name in the report.
        budget: of each run.
        learning_rates: every scheme is trained with each of them and two seeds (:func:`.results.choose`); the one with the least
            loss on the first half of the validation text is used for the other seeds, and the second half gives the result.
        seeds: runs per scheme; run s of every scheme has the same batches and masks, and the same initial weights where shapes
            agree, except those of positions.
        reference: the scheme with which the others are compared.
        tokens_per_sample, batch_size: of fairseq-train.
        warmup: the share of the updates in which the learning rate rises, or from 1 on, their number.
        decay: the share of the updates, at the end, in which the learning rate falls (0: it stays); by default, all after the
            warm-up.
        validations: about so many during training, evenly spaced, between which the start of word order is interpolated.
        stop: ``word order`` ends a run once it uses word order, :data:`STOP_AFTER` validations in a row. Of such runs, only the
            starts compare.
        sizes, recipes, lengths, budgets: a table for each combination (:meth:`tables`): sizes of the models by name; other
            learning rates, batches, warm-ups and decays by name, which take precedence over those of a size; tokens per sample;
            and updates. An update has as many tokens at every length. A run continues from that with a smaller budget, as it was
            before the learning rate fell, where ``decay`` is below 0.5 and ``warmup`` is a number of updates.
        valid_tokens: tokens of the validation text that are read.
        threads: of a process on a CPU, on which the last digits of a loss depend.
        train: further flags of fairseq-train.
        text: what the report says of the text.
        benchmarks: ``glue``, ``squad`` and ``pairs`` with their flags, such as ``--data glue_data --tasks RTE,MRPC``, for the
            models that give the result. The first two also fine-tune models of the reference from random weights, to compare.
    """

    arch: str = "roberta_posenc_tiny"
    schemes: dict[str, Scheme]
    budget: Budget
    learning_rates: Rates
    seeds: int = Field(3, ge=1)
    reference: str
    tokens_per_sample: int = Field(ge=8, le=MAX_POSITIONS)
    batch_size: int = Field(ge=1, le=10**6)
    warmup: float = Field(0.1, ge=0, le=10**9)
    decay: float | None = Field(None, ge=0, le=1)
    validations: int = Field(POINTS, ge=1, le=1000)
    stop: Literal["word order"] | None = None
    sizes: dict[str, Size] = Field({})
    recipes: dict[str, Recipe] = Field({})
    lengths: list[Annotated[int, Field(ge=8, le=MAX_POSITIONS)]] = Field([])
    budgets: list[Annotated[int, Field(ge=1, le=10**9)]] = Field([])
    valid_tokens: int = Field(1 << 18, ge=1 << 10, le=1 << 40)
    threads: int = Field(1, ge=1, le=4096)
    train: str = ""
    text: str = ""
    benchmarks: dict[Literal["glue", "squad", "pairs"], str] = Field({})

    @model_validator(mode="before")
    @classmethod
    def _named(cls, content: Any) -> Any:
        """A list of expressions, and names without content, are schemes without options."""
        if isinstance(content, dict) and isinstance(schemes := content.get("schemes"), (dict, list)):
            pairs = [*schemes.items()] if isinstance(schemes, dict) else [(name, None) for name in schemes]
            if not all(isinstance(name, str) for name, _ in pairs):
                raise ValueError("schemes: names are needed, in quotes where YAML takes them for something else")
            if len(dict(pairs)) < len(pairs):
                raise ValueError("schemes: a name occurs twice in the list")
            content = {**content, "schemes": {name: scheme or {} for name, scheme in pairs}}
        return content

    @model_validator(mode="after")
    def _has_reference(self) -> Plan:
        if self.reference not in self.schemes:
            raise ValueError(f"reference: {self.reference} is not one of the schemes")
        if self.task not in CRITERIA:
            raise ValueError(f"arch: models of the task {self.task} are not compared, only masked and causal language models")
        for name, scheme in self.schemes.items():
            if _task(scheme.arch or self.arch) not in (None, self.task):
                raise ValueError(f"schemes.{name}: its task is not that of {self.reference}, {self.task}: losses do not compare")
            if not SCHEME.fullmatch(name):
                raise ValueError(f"schemes.{name}: a name begins with a letter and has no slash")
            if scheme.positions and scheme.arch:
                raise ValueError(f"schemes.{name}: name either positions or arch")
            same = FIXED | TASK | _flags(RECIPE) | _flags(self.train)
            if fixed := same & {flag_of(option) for option in scheme.options if option != LENGTH}:
                raise ValueError(f"schemes.{name}.options: {', '.join(sorted(fixed))} would differ between schemes: leave it out")
        if self.total > MAX_RUNS:
            raise ValueError(f"the schemes, learning rates and seeds make {self.total:,} runs, more than {MAX_RUNS:,}")
        for name, flags in self.benchmarks.items():
            shlex.split(flags)  # raises ValueError if a quote is missing
            if self.task == LEFT_TO_RIGHT and name != PAIRS:
                raise ValueError(f"benchmarks.{name}: fine-tunes encoders, and these models are decoders: leave it out")
        if fixed := (FIXED | (TASK if self.task == LEFT_TO_RIGHT else set())) & _flags(self.train):
            raise ValueError(f"train: the plan has other fields for {', '.join(sorted(fixed))}")
        return self

    @model_validator(mode="after")
    def _fits(self) -> Plan:
        warmup, decay = self._warmup_updates, self._decay_updates
        named = "a name begins with a letter or digit and has no slash or underscore: it is a part of a folder's name"
        names = [f"{axis}.{name}" for axis in ("sizes", "recipes") for name in getattr(self, axis)]
        wrong = [f"{name}: {named}" for name in names if not SCHEME.fullmatch(name.partition(".")[2]) or "_" in name]
        if self.stop and not self.has_axes and (self.benchmarks or len(self.learning_rates) > 1):
            wrong.append("stop: losses of runs that end after different updates choose no learning rate, and need no benchmarks")
        flags = {flag for size in self.sizes.values() for flag in self._widths(size)} & _flags(self.train)
        wrong += [f"train: sizes has other fields for {', '.join(sorted(flags))}"] if flags else []
        if self.budgets and "--save-interval-updates" in _flags(self.train):
            wrong.append("train: budgets decide --save-interval-updates")
        batches = {recipe.batch_size or self.batch_size for recipe in self.recipes.values()} or {self.batch_size}
        uneven = [(n, tokens) for n in self.lengths for rows in batches if (tokens := rows * self.tokens_per_sample) % n]
        wrong += [f"lengths: {n} does not divide the tokens of an update, {tokens:,}" for n, tokens in uneven]
        if decay and not self.has_axes and warmup + decay > (self.updates or 0):
            wrong.append(f"warmup, decay: {warmup} and {decay} updates are more than the {self.updates}")
        if wrong:
            raise ValueError(wrong[0])
        return self

    @property
    def has_axes(self) -> bool:
        """Whether there are several tables."""
        return bool(self.sizes or self.recipes or self.lengths or self.budgets)

    @property
    def combinations(self) -> dict[str, tuple[str, str, int, int]]:
        """The size, the recipe, the length and the updates of each table, empty or 0 without that axis, by the folder's name."""
        every = product(self.sizes or [""], self.recipes or [""], self.lengths or [0], sorted(self.budgets) or [0])
        return {"_".join(filter(None, [*of[:2], f"n{of[2]}" * (of[2] > 0), f"u{of[3]}" * (of[3] > 0)])): of for of in every}

    def tables(self) -> dict[str, Plan]:
        """Return the plan of each combination of ``sizes``, ``recipes``, ``lengths`` and ``budgets``, by the name of its folder.

        Raises:
            ValidationError: a combination is no plan.
        """
        plans = {}
        for table, (name, recipe, n, updates) in self.combinations.items():
            values: dict[str, Any] = {"sizes": {}, "recipes": {}, "lengths": [], "budgets": []}
            for changes in (size := self.sizes.get(name), self.recipes.get(recipe)):
                values |= changes.model_dump(include={*Recipe.model_fields}, exclude_none=True) if changes else {}
            if size is not None:
                values["train"] = " ".join([self.train, *(f"{flag} {value}" for flag, value in self._widths(size).items())])
            if n:
                tokens = self.tokens_per_sample * values.get("batch_size", self.batch_size)
                values |= {"tokens_per_sample": n, "batch_size": tokens / n}
            if updates:
                values["budget"] = {"updates": updates}
            plans[table] = Plan.model_validate({**dict(self), **values})
        return plans

    def beside(self, table: str) -> list[str]:
        """Return the names of the tables that differ from one in the budget alone, and its own; none without ``budgets``."""
        *same, updates = self.combinations[table]
        return [name for name, (*others, _) in self.combinations.items() if updates and others == same]

    @property
    def constant_until(self) -> int:
        """The update until which a run with a larger budget has the same learning rates; 0 if all of them differ."""
        at = (self.updates or 0) - self._decay_updates if self.decay is not None and self.warmup >= 1 else 0
        return at if 2 * at > (self.updates or 0) else 0  # fairseq-train saves at its multiples, too

    @property
    def task(self) -> str:
        """fairseq's name of the task of all runs."""
        return _task(self.schemes[self.reference].arch or self.arch) or MASKED

    @property
    def tokens_per_update(self) -> int:
        """Tokens of a batch."""
        return self.tokens_per_sample * self.batch_size

    @property
    def updates(self) -> int | None:
        """Updates per run; None where the budget is a time."""
        if self.budget.tokens is not None:
            return -(-self.budget.tokens // self.tokens_per_update)
        return self.budget.updates

    @property
    def weight_decay(self) -> str:
        """What weight decay shrinks, in words."""
        shrinks, exempt = (re.findall(rf"--{name}[ =](\S+)", f"{RECIPE} {self.train}") for name in ("weight-decay", "no-decay"))
        return f"weight decay {shrinks[-1]} of all parameters{''.join(f' but {kinds}' for kinds in exempt[-1:])}"

    def seeds_of(self, name: str) -> int:
        """Return the number of runs of a scheme."""
        return self.schemes[name].seeds or self.seeds

    @property
    def total(self) -> int:
        """The number of all runs."""
        seeds = {name: self.seeds_of(name) for name in self.schemes}
        of_benchmarks = len(self.benchmarks) * sum(seeds.values()) + len({*self.benchmarks} - {PAIRS})
        of_rates = sum(min(len(SELECTION), count) for count in seeds.values()) * (len(self.learning_rates) - 1)
        return of_rates + sum(seeds.values()) + of_benchmarks

    def flags(self, name: str) -> list[str]:
        """Return the flags of fairseq-train of a scheme's runs, except the learning rate and the seed."""
        scheme = self.schemes[name]
        positions = [] if scheme.arch else ["--positions", scheme.positions or expression_of(name)]
        flags = ["--arch", scheme.arch or self.arch, *positions]
        for option, value in scheme.options.items():
            if option != LENGTH:
                flags += [flag_of(option), flag_value(value)]
        return [*flags, *self._train_flags(scheme.options.get(LENGTH, self.tokens_per_sample))]

    def _widths(self, size: Size) -> dict[str, int]:
        """Return the flags of a size."""
        names = getattr(getattr(ARCH_MODEL_REGISTRY.get(self.arch), "option_set", None), "names", {})
        widths = {"layers": size.layers, "dim": size.dim, "heads": size.heads, "ffn_dim": 4 * size.dim}
        return {flag_of(names.get(field, field)): value for field, value in widths.items()}

    @property
    def _decay_updates(self) -> int:
        return round((self.decay or 0) * (self.updates or 0))

    @property
    def _warmup_updates(self) -> int:
        return round(self.warmup if self.warmup >= 1 else self.warmup * (self.updates or UNKNOWN_UPDATES))

    def _train_flags(self, max_positions: str | float) -> Iterator[str]:
        yield from ("--task", self.task, "--criterion", CRITERIA[self.task], *shlex.split(RECIPE))
        yield from ("--tokens-per-sample", str(self.tokens_per_sample), "--batch-size", str(self.batch_size))
        yield from (flag_of(LENGTH), str(max_positions))
        if self.budget.minutes is not None:  # the number of updates, on which other schedules depend, is not known
            yield from ("--lr-scheduler", "fixed", "--warmup-updates", str(self._warmup_updates))
            yield from ("--stop-time-hours", str(self.budget.minutes / 60))
        else:
            updates = str(self.updates)
            scheduler, end = "polynomial_decay", ["--total-num-update", updates]
            if self.decay is not None:
                scheduler, end = "warmup_stable_decay", ["--decay-updates", str(self._decay_updates), "--decay-shape", "linear"]
            yield from ("--lr-scheduler", scheduler, "--warmup-updates", str(self._warmup_updates), *end, "--max-update", updates)
        yield from shlex.split(self.train)


def _task(arch: str) -> str | None:
    """The task of the models of an architecture; None if there is none, which is refused where its flags are read."""
    model = ARCH_MODEL_REGISTRY.get(arch)
    return getattr(getattr(model, "option_set", None), "task", MASKED) if model else None


def _flags(words: str) -> set[str]:
    return {word.partition("=")[0] for word in shlex.split(words) if word.startswith("-")}


def read_plan(path: Path) -> Plan:
    """Read the file.

    Raises:
        InputError: it is not YAML, or an entry is wrong; the message names it.
    """
    try:
        plan = Plan.model_validate(read_yaml(path))
        plan.tables()
    except ValidationError as error:
        raise InputError(f"{path}: {faults(error)}") from None
    return plan
