"""Attention alone and a training step of masked language modelling, timed in this process in turn with a baseline."""

import functools
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...base.errors import InputError
from ...plugin.models.building import build, dictionary_of
from ...plugin.options.option_set import field_errors_as_flags
from ..engine.grid import Progress
from ..measure.work import Loss, Machine, Shape, TrainingStep, Work, bytes_in_use, memory, pairs, timing
from . import peers
from .attention import Attention, agreement

ATTENTION, STEP = "attention", "step"
"""The parts that are timed: the attention of one layer, forward and backward, and a training step."""
FAIRSEQS = "roberta_base"  # fairseq's own
WORDS = 4  # the first symbol after fairseq's own: <s>, padding, </s>, unknown
PLAIN = "none"  # positions of the attention that others are compared with
DISAGREES = "it does not agree with the reference"  # begins the reason why a row was not timed
TOO_LARGE = "it does not fit into memory"
MEMORY_ERRORS = ("out of memory", "allocate", "overflow")  # in PyTorch's messages


@dataclass(frozen=True)
class Model:
    """A model that is timed.

    Attributes:
        name: an architecture, an expression that has none, or another package's model.
        expression: the positions of this package's models.
        backend: the requested one, if there is a choice.
        arch: the architecture of this package's models, whose positions are the expression.
    """

    name: str
    expression: str | None = None
    backend: str = ""
    arch: str | None = None


class Step(TrainingStep):
    """A step of one model on a batch."""

    def __init__(self, model: nn.Module, loss: Loss, shape: Shape, machine: Machine) -> None:
        super().__init__(model, machine.device, machine.dtype)
        self.loss = loss
        generator = torch.Generator().manual_seed(1)
        tokens = torch.randint(WORDS, shape.symbols, (shape.sequences, shape.tokens), generator=generator)
        order = torch.randperm(shape.batch, generator=generator)
        self.tokens, self.masked = (x.to(machine.device) for x in (tokens, (order < shape.masked).view_as(tokens)))

    def compute(self) -> Tensor:
        return self.loss(self.tokens, self.masked)


def roberta(timed: Model, shape: Shape) -> tuple[nn.Module, Loss]:
    """Return a model of fairseq's or this package's, and its loss."""
    sizes = {"layers": shape.layers, "embed_dim": shape.dim, "ffn_embed_dim": shape.ffn_dim, "attention_heads": shape.heads}
    options = Namespace(**{f"encoder_{name}": size for name, size in sizes.items()}, max_positions=shape.tokens)
    if timed.arch:
        options.attention_backend, options.positions = timed.backend, timed.expression
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = build(timed.arch or timed.name, options, dictionary_of(shape.symbols))

    def loss(tokens: Tensor, masked: Tensor) -> Tensor:
        logits, _ = model(tokens, masked_tokens=masked)
        return F.cross_entropy(logits.float(), tokens[masked])

    return model, loss


class Steps:
    """Times models in turn with a baseline, whose work at a length is built once."""

    def __init__(self, baseline: Model, machine: Machine, repeats: int) -> None:
        self._machine, self._repeats = machine, repeats
        self._step = functools.lru_cache(maxsize=1)(lambda shape: self._build(baseline, shape)[0])
        self._plain = functools.lru_cache(maxsize=1)(lambda shape: self._attention(Model("", PLAIN, "auto"), shape))

    def __call__(self, model: Model, shape: Shape, progress: Progress) -> dict[str, Any]:
        """Return the result of a model.

        Returns:
            ``ran``, how its attention ran; ``refused``, why it was not timed, or None; and ``timings`` by part, of
            :func:`.work.timing`.
        """
        result: dict[str, Any] = {"ran": "", "refused": None, "timings": {}}
        try:
            if model.expression is not None:
                before = bytes_in_use(self._machine.device)
                attention = self._attention(model, shape)
                result["ran"] = attention.backend.name
                progress("compared with the reference")
                error, allowed = agreement(model.expression, result["ran"], shape, self._machine)
                if not error <= allowed:  # NaN is no agreement
                    return {**result, "refused": f"{DISAGREES}: its error is {error:.2g}, and {allowed:.2g} is allowed"}
                progress("attention")
                result["timings"][ATTENTION] = self._time(attention, self._plain, shape, before)
                del attention
            progress("training step")
            before = bytes_in_use(self._machine.device)
            step, ran = self._build(model, shape)
            result["ran"] = result["ran"] or ran
            result["timings"][STEP] = self._time(step, self._step, shape, before)
        except InputError as problem:  # of the backend, or of what a user's own scheme needs
            result["refused"] = str(problem)
        except RuntimeError as failure:
            if not any(sign in str(failure) for sign in MEMORY_ERRORS):
                raise
            result["refused"] = TOO_LARGE
        return result

    def _time(self, work: Work, baseline: Callable[[Shape], Work], shape: Shape, before: int) -> dict:
        work.run()
        taken = memory(work, before)
        return timing(pairs(work, baseline(shape), self._repeats), shape.batch, taken)

    def _attention(self, model: Model, shape: Shape) -> Attention:
        assert model.expression is not None
        with field_errors_as_flags():
            return Attention(model.expression, model.backend, shape, self._machine)

    def _build(self, model: Model, shape: Shape) -> tuple[Step, str]:
        if model.name in peers.PEERS:
            module, loss, ran = peers.build(model.name, shape)
        else:
            module, loss, ran = *roberta(model, shape), ""
        return Step(module, loss, shape, self._machine), ran
