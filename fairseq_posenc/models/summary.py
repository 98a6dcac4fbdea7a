"""What is being trained, in one line of the log; which attention backend trains it is logged with the first update."""

from __future__ import annotations

from torch import nn

from ..transformer import Stack


def summary(model: nn.Module, core: Stack, tokens_per_sample: int | None = None) -> str:
    """The positions of a model, by those of its encoder or decoder ``core``, and its size."""
    positions = core.positions
    options = ", ".join(f"{name}={value}" for name, value in positions.effective_options.items())
    samples = f"{tokens_per_sample} tokens per sample, " if tokens_per_sample else ""
    length = "any length" if positions.max_length is None else f"{positions.max_length} positions"
    positional = {p for part in model.modules() if isinstance(part, Stack) for p in part.positions.parameters()}
    counts = [sum(parameter.numel() for parameter in part) for part in (positional, model.parameters())]
    return (
        f"positions {positions.expression} ({options}); {samples}{length}; {counts[0]:,} positional of {counts[1]:,} parameters"
    )
