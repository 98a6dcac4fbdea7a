"""The sizes of a model and its batch, the device, the times of runs that alternate with a baseline's, and memory."""

from __future__ import annotations

import gc
import math
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ...base.errors import InputError
from ...base.record import processor
from ...core.saved_tensors import saved_bytes
from ...core.transformer import EncoderConfig
from ..engine.statistics import spread

Loss = Callable[[Tensor, Tensor], Tensor]
"""Tokens (B, n) and where they are predicted (B, n) -> the mean loss there."""
MASKED = 0.15  # share of the tokens that are predicted (Devlin et al. 2019)
MIN_SECONDS = 0.02  # seconds; shorter work is repeated within a measurement, so that the clock and kernel launches weigh little


@dataclass(frozen=True)
class Shape:
    """Sizes of a model and of its batch."""

    layers: int
    dim: int
    ffn_dim: int
    heads: int
    symbols: int
    tokens: int  # n, per sequence
    sequences: int  # per step
    dropout: float = EncoderConfig.attention_dropout  # of attention weights

    @property
    def batch(self) -> int:
        """The number of tokens of a step, n times the sequences."""
        return self.tokens * self.sequences

    @property
    def masked(self) -> int:
        """Tokens of a step that are predicted."""
        return max(1, round(MASKED * self.batch))


def shapes(shape: Shape, lengths: Sequence[int]) -> list[Shape]:
    """Return the model at several lengths: ``shape`` has the sequences of the shortest, and longer ones are fewer."""
    return [replace(shape, tokens=n, sequences=max(1, shape.sequences * min(lengths) // n)) for n in lengths]


def default_device() -> torch.device:
    """Return the current GPU, or the processor where there is none."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def device_name(device: torch.device) -> str:
    """Return the name of the GPU or of the processor."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else processor()


@dataclass(frozen=True)
class Machine:
    """A device and a precision."""

    device: torch.device
    dtype: torch.dtype

    @classmethod
    def of(cls, device: str | None, bf16: bool) -> Machine:
        """Return the device and the precision of the flags ``--device`` and ``--bf16``.

        Raises:
            InputError: there is no such device.
        """
        name = device or str(default_device())
        match = re.fullmatch(r"cpu|cuda(:(\d+))?", name)
        if match is None or (name != "cpu" and int(match[2] or 0) >= torch.cuda.device_count()):
            raise InputError(f"--device {name}: name cpu, or one of {torch.cuda.device_count()} GPUs as cuda:0")
        return cls(torch.device(name), torch.bfloat16 if bf16 else torch.float32)

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    def describe(self) -> dict[str, Any]:
        """Return what decides a time, in JSON's types."""
        threads = {} if self.on_gpu else {"threads": torch.get_num_threads()}
        dtype = str(self.dtype).removeprefix("torch.")
        return {"device": device_name(self.device), "dtype": dtype, "torch": torch.__version__, **threads}


class Work(nn.Module, ABC):
    """Work to be timed. Its parameters, but nothing that a run computes, are kept between runs."""

    device: torch.device

    @abstractmethod
    def compute(self) -> Tensor:
        """Run the forward pass, and return its result, from which the backward pass begins."""

    @abstractmethod
    def run(self) -> None:
        """Run what is timed: the forward and the backward pass, and the update of a step."""


class TrainingStep(Work):
    """Zeroed gradients, the loss that :meth:`compute` returns, backward pass, Adam."""

    def __init__(self, model: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self.device = device
        self.model = model.to(device, dtype).train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4)

    def run(self) -> None:
        self.optimizer.zero_grad()
        self.compute().backward()
        self.optimizer.step()


def timing(pairs: Sequence[tuple[float, float]], tokens: int, memory: int) -> dict:
    """Return the results of pairs of times, in JSON's types.

    Args:
        pairs: seconds of a run, and of one of the baseline.
        tokens: of a run.
        memory: bytes.
    """
    milliseconds: dict[str, Any] = spread([1e3 * own for own, _ in pairs])
    return {
        "milliseconds": milliseconds,
        "ratio": spread([seconds / other for seconds, other in pairs]),  # of its time to the baseline's, pair by pair
        "tokens_per_second": 1e3 * tokens / milliseconds["median"],
        "mebibytes": memory / 2**20,
    }


def pairs(work: Work, baseline: Work, repeats: int) -> list[tuple[float, float]]:
    """Return seconds of a run of both, ``repeats`` times in turn, so that other load on the machine affects both."""
    calls = []
    for each in (work, baseline):
        _seconds(each, 1)  # compiles, and fills caches
        calls.append(max(1, math.ceil(MIN_SECONDS / _seconds(each, 1))))
    return [(_seconds(work, calls[0]), _seconds(baseline, calls[1])) for _ in range(repeats)]


def memory(work: Work, in_use: int) -> int:
    """Return in bytes a run's peak beyond ``in_use`` on a GPU, and elsewhere what is saved for the backward pass."""
    if work.device.type != "cuda":
        return saved_bytes(work.parameters(), work.compute)
    torch.cuda.reset_peak_memory_stats(work.device)
    work.run()
    torch.cuda.synchronize(work.device)
    return torch.cuda.max_memory_allocated(work.device) - in_use


def bytes_in_use(device: torch.device) -> int:
    """Return the bytes of a GPU that are in use now; 0 elsewhere."""
    gc.collect()  # frees what was timed before
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0


def _seconds(work: Work, calls: int) -> float:
    def synchronize() -> None:
        if work.device.type == "cuda":
            torch.cuda.synchronize(work.device)

    synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        work.run()
    synchronize()
    return (time.perf_counter() - start) / calls
