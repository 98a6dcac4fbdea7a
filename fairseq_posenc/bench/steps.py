"""Attention alone and training steps, timed in this process in turn with a baseline's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..runs.grid import Progress
from . import peers, report
from .attention import Attention, agreement
from .step import FAIRSEQS, Step, roberta
from .work import Machine, Shape, Work, held, memory, pairs, timing

PLAIN = "none"  # positions of the attention that others are compared with
DISAGREES = "it does not agree with the reference"  # begins the reason why a row was not timed
TOO_LARGE = ("out of memory", "allocate", "overflow")  # in PyTorch's messages


@dataclass(frozen=True)
class Contender:
    """The model of a row."""

    model: str  # an architecture, or another package's model
    expression: str | None = None  # of this package's architectures
    backend: str = ""  # the requested one, if there is a choice


class Steps:
    """Times contenders; the baseline's work at a length is built once."""

    def __init__(self, baseline: Contender, machine: Machine, repeats: int) -> None:
        self._machine, self._repeats = machine, repeats
        self._step = functools.lru_cache(maxsize=1)(lambda shape: self._build(baseline, shape)[0])
        self._plain = functools.lru_cache(maxsize=1)(lambda shape: self._attention(Contender("", PLAIN, "auto"), shape))

    def __call__(self, contender: Contender, shape: Shape, progress: Progress) -> dict[str, Any]:
        """Returns ``ran``, ``refused`` and ``timings`` of a :data:`.report.Result`."""
        found: dict[str, Any] = {"ran": "", "refused": None, "timings": {}}
        try:
            if contender.expression is not None:
                before = held(self._machine.device)
                attention = self._attention(contender, shape)
                found["ran"] = attention.backend.name
                progress("compared with the reference")
                agreed = agreement(contender.expression, found["ran"], shape, self._machine.device, self._machine.dtype)
                if not agreed.holds:
                    reason = f"{DISAGREES}: its error is {agreed.error:.2g}, and {agreed.allowed:.2g} is allowed"
                    return {**found, "refused": reason}
                progress("attention")
                flops = shape.attention_flops
                found["timings"][report.ATTENTION] = self._time(attention, self._plain, shape, flops, before)
                del attention
            progress("training step")
            before = held(self._machine.device)
            step, ran = self._build(contender, shape)
            found["ran"] = found["ran"] or ran
            found["timings"][report.STEP] = self._time(step, self._step, shape, shape.step_flops, before)
        except RuntimeError as error:
            if not any(sign in str(error) for sign in TOO_LARGE):
                raise
            found["refused"] = "it does not fit into memory"
        return found

    def _time(self, work: Work, baseline: Callable[[Shape], Work], shape: Shape, flops: float, before: int) -> dict[str, Any]:
        work.run()
        taken = memory(work, before)
        return timing(pairs(work, baseline(shape), self._repeats), shape.batch, flops, taken, self._machine.peak)

    def _attention(self, contender: Contender, shape: Shape) -> Attention:
        assert contender.expression is not None
        return Attention(contender.expression, contender.backend, shape, self._machine.device, self._machine.dtype)

    def _build(self, contender: Contender, shape: Shape) -> tuple[Step, str]:
        if contender.expression is not None:
            model, loss, ran = *roberta(contender.model, shape, contender.backend), ""
        elif contender.model == FAIRSEQS:
            model, loss, ran = *roberta(FAIRSEQS, shape), ""
        else:
            model, loss, ran = peers.build(contender.model, shape)
        return Step(model, loss, shape, self._machine.device, self._machine.dtype), ran
