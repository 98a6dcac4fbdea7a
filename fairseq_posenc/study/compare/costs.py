"""The cost of each scheme: a training step, timed in turn with one of the reference, so that other load slows both."""

from pathlib import Path
from statistics import median
from typing import Any

import torch
from fairseq import utils
from fairseq.tasks import setup_task
from pydantic import Field
from torch import Tensor

from ...base.record import Recorded
from ...plugin.models.building import parse
from ..engine.grid import Cell, Progress
from ..measure.work import TrainingStep, default_device, device_name, pairs
from .cells import Runs

MODELS, REPEATS = 5, 7
"""Pairs of models, and pairs of steps of each. One pair of steps is off by a tenth on a shared machine, and where a model lies in
memory changes its time by a few hundredths."""


class Step(TrainingStep):
    """A step of the model of a run, with its criterion, on the first training batch.

    Args:
        data: the data-bin.
        flags: of fairseq-train.
    """

    def __init__(self, data: Path, flags: list[str]) -> None:
        cfg = parse([str(data), *flags])
        task = setup_task(cfg.task)
        task.load_dataset("train")
        rows = task.dataset("train")
        rows.set_epoch(1)  # draws the masks
        sample = rows.collater([rows[row] for row in range(min(cfg.dataset.batch_size, len(rows)))])
        device = default_device()
        dtype = torch.bfloat16 if cfg.common.bf16 else torch.float16 if cfg.common.fp16 else torch.float32
        super().__init__(task.build_model(cfg.model), device, dtype)
        self.sample = utils.move_to_cuda(sample) if device.type == "cuda" else sample
        self.amp = cfg.common.amp
        self.criterion = task.build_criterion(cfg.criterion)

    def compute(self) -> Tensor:
        with torch.autocast(default_device().type, enabled=self.amp):
            loss, tokens, _ = self.criterion(self.model, self.sample)
        return loss / tokens


class Ratio(Recorded):
    """The time of a step relative to the reference's."""

    median: float = Field(gt=0)
    low: float | None = Field(None, gt=0)
    high: float | None = Field(None, gt=0)


class Timed(Recorded):
    """The outcome of :func:`measure`."""

    ratio: Ratio
    device: str


def cells(runs: Runs) -> list[Cell]:
    """Return a measurement for each scheme of a comparison but the reference."""
    plan = runs.plan
    flags = {scheme: plan.flags(scheme) for scheme in plan.schemes}
    others = {"reference": flags[plan.reference], "threads": plan.threads, "data": dict(runs.digests)}
    return [
        Cell({"cost": scheme, "reference": plan.reference}, {"flags": flags[scheme], **others}, within="costs", outcome=Timed)
        for scheme in plan.schemes
        if scheme != plan.reference
    ]


def measure(data: Path, cell: Cell, folder: Path, progress: Progress) -> dict[str, Any]:
    """Return the ``ratio`` of a step's time to the reference's, with a data-bin, and the ``device``.

    Of several models of both, it is the ``median`` of the medians, which reach from ``low`` to ``high``.
    """
    progress("timing")
    medians = []
    for _ in range(MODELS):
        step, reference = Step(data, cell.configuration["flags"]), Step(data, cell.configuration["reference"])
        medians.append(median(own / other for own, other in pairs(step, reference, REPEATS)))
    ratio = {"median": median(medians), "low": min(medians), "high": max(medians)}
    return {"ratio": ratio, "device": device_name(default_device())}
