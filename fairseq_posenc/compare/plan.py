"""What is compared: the YAML file of ``fairseq-posenc compare``."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ..errors import InputError, flag_of

RECIPE = """
    --task masked_lm --criterion masked_lm --sample-break-mode none --dropout 0 --attention-dropout 0
    --optimizer adam --adam-betas (0.9,0.98) --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 1
"""


class Strict(BaseModel):
    """A part of the file, in which unknown names are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Budget(Strict):
    """How long each run trains: one of the three."""

    updates: int | None = Field(None, ge=1)
    tokens: int | None = Field(None, ge=1)
    minutes: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _one(self) -> Budget:
        if sum(value is not None for value in (self.updates, self.tokens, self.minutes)) != 1:
            raise ValueError("name one of updates, tokens and minutes")
        return self


class Scheme(Strict):
    """One row of the result: an expression, or an architecture, with options."""

    positions: str | None = None
    arch: str | None = None
    options: dict[str, str | bool | int | float] = {}
    seeds: int | None = Field(None, ge=1)


class Plan(Strict):
    """The whole file.

    Attributes:
        data: the data-bin, relative to the file.
        arch: the architecture of schemes that name none.
        schemes: by the name in the report, which is the expression where none is given.
        budget: of each run.
        learning_rates: every scheme is trained with each of them and seed 1; the one with the least loss on the first half of the
            validation text is used for the other seeds, and the second half gives the result.
        seeds: runs per scheme.
        reference: the scheme with which the others are compared.
        tokens_per_sample, batch_size: of fairseq-train.
        warmup: the share of the updates in which the learning rate rises.
        train: further flags of fairseq-train.
    """

    data: Path
    arch: str = "roberta_posenc_tiny"
    schemes: dict[str, Scheme]
    budget: Budget
    learning_rates: list[float] = Field(min_length=1)
    seeds: int = Field(3, ge=1)
    reference: str
    tokens_per_sample: int = Field(ge=8)
    batch_size: int = Field(ge=1)
    warmup: float = Field(0.1, ge=0, lt=1)
    train: str = ""

    @model_validator(mode="before")
    @classmethod
    def _named(cls, content: Any) -> Any:
        """``none:`` alone, and a list of expressions, are schemes without options."""
        if isinstance(content, dict) and isinstance(schemes := content.get("schemes"), (dict, list)):
            pairs = schemes.items() if isinstance(schemes, dict) else ((name, None) for name in schemes)
            content = {**content, "schemes": {name: scheme or {} for name, scheme in pairs}}
        return content

    @model_validator(mode="after")
    def _has_reference(self) -> Plan:
        if self.reference not in self.schemes:
            raise ValueError(f"reference: {self.reference} is not one of the schemes")
        return self

    @property
    def updates(self) -> int | None:
        """Updates per run; None where the budget is a time."""
        if self.budget.tokens is not None:
            return -(-self.budget.tokens // (self.tokens_per_sample * self.batch_size))
        return self.budget.updates

    def seeds_of(self, name: str) -> int:
        """The number of runs of a scheme."""
        return self.schemes[name].seeds or self.seeds

    def model_flags(self, name: str) -> list[str]:
        """The flags of fairseq-train that make a scheme."""
        scheme = self.schemes[name]
        flags = ["--arch", scheme.arch or self.arch]
        if scheme.arch is None:
            flags += ["--positions", scheme.positions or name]
        for option, value in scheme.options.items():
            flags += [flag_of(option), str(value).lower() if isinstance(value, bool) else str(value)]
        return flags

    def train_flags(self) -> Iterator[str]:
        """The flags of fairseq-train that are the same for all runs, but for the learning rate and the seed."""
        yield from shlex.split(RECIPE)
        yield from ("--tokens-per-sample", str(self.tokens_per_sample), "--batch-size", str(self.batch_size))
        yield from ("--max-positions", str(self.tokens_per_sample))
        if self.updates is None:  # the updates that fit into the time are not known
            yield from ("--lr-scheduler", "fixed", "--warmup-updates", "200", "--stop-time-hours", str(self.budget.minutes / 60))
        else:
            yield from ("--lr-scheduler", "polynomial_decay", "--warmup-updates", str(round(self.warmup * self.updates)))
            yield from ("--total-num-update", str(self.updates), "--max-update", str(self.updates))
        yield from shlex.split(self.train)


def read_plan(path: Path) -> Plan:
    """Read the file.

    Raises:
        InputError: it is not YAML, or an entry is wrong; the message names it.
    """
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
        plan = Plan.model_validate(content)
    except ValidationError as error:
        faults = ("; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())).replace(
            ": : ", ": "
        )
        raise InputError(f"{path}: {faults}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is not YAML: {error}") from None
    return plan.model_copy(update={"data": path.parent / plan.data})
