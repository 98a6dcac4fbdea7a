"""Other forms of a model: the same function with other parameters, which classes of transformers have."""

import math
from collections.abc import Iterator
from dataclasses import replace

import torch

from ..core.schemes.positions import Sum, read_sum, sums_of
from ..core.terms import Window
from ..core.transformer import EncoderConfig, build_positions
from ..plugin.checkpoint.state_dict import ABSOLUTE, WORDS, StateDict


def forms(config: EncoderConfig, state: StateDict) -> Iterator[tuple[EncoderConfig, StateDict]]:
    """Yield a model as it is, and in the other forms that it has.

    - Rotations of neighbouring features are rotations of halves, with the rows of queries and keys in another order.
    - Sines that are added to the word embeddings are a learned table, and T5's biases alone are those with a table of zeros. The
      table ends at the length of training.
    - Embeddings that are multiplied by √D are others. The output projection, if it was the same tensor, is another then.
    """
    yield config, state
    if len(sums_of(config.positions)) > 1:
        return
    part = read_sum(config.positions)
    names = {scheme.name for scheme in part.classes}
    if names == {"rope"}:
        config, state = _of_halves(config, state, part)
        yield config, state
    elif names <= {"sinusoidal", "t5"} and part.window is None:
        config, state = _with_table(config, state, part)
        yield config, state
    if config.scale_embeddings and "sinusoidal" not in config.positions:
        multiplied = {name: state[name] * math.sqrt(config.dim) for name in (WORDS, ABSOLUTE) if name in state}
        yield replace(config, scale_embeddings=False), state | multiplied


def _of_halves(config: EncoderConfig, state: StateDict, part: Sum) -> tuple[EncoderConfig, StateDict]:
    """Return a model whose rotations are of halves; those that it has may be, too."""
    options = {**config.position_options, **part.options}
    positions = "rope" if part.window is None else f"rope(window={part.window})"
    turned = dict(state)
    if options.get("rope_layout") != "half":
        for name, value in state.items():
            if ".self_attn.q_proj." in name or ".self_attn.k_proj." in name:
                pairs = value.unflatten(0, (config.heads, -1, 2))
                turned[name] = pairs.transpose(1, 2).reshape(value.shape)
    return replace(config, positions=positions, position_options={**options, "rope_layout": "half"}), turned


def _with_table(config: EncoderConfig, state: StateDict, part: Sum) -> tuple[EncoderConfig, StateDict]:
    """Return a model whose positions add a table to the word embeddings: of sines, or zeros."""
    with torch.no_grad():
        added = build_positions(config).embed(Window(config.max_positions), None)
    width = config.embed_dim or config.dim
    table = torch.zeros(config.max_positions, width) if added is None else added[0].float()
    options = {**config.position_options, **part.options}
    options = {name: value for name, value in options.items() if not name.startswith("sinusoidal_")}
    positions = "+".join(["absolute", *(scheme.name for scheme in part.classes if scheme.name == "t5")])
    return replace(config, positions=positions, position_options=options), {**state, ABSOLUTE: table}
