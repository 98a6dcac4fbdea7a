"""Another positional encoding for a pretrained model: what is kept, what is new, and what becomes of removed positions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..models.state import ABSOLUTE, LANGUAGE_MODEL, MASK_POSITIONS, POSITIONS, WORDS, StateDict
from ..schemes.absolute import Absolute
from ..transformer import EncoderConfig, build_positions


@dataclass(frozen=True)
class Converted:
    """A model with other positions.

    Attributes:
        config: its encoder's.
        state: all its parameters.
        remarks: what was kept, removed and newly initialised, a sentence each.
        same_function: whether it is the source's function still.
    """

    config: EncoderConfig
    state: StateDict
    remarks: list[str]
    same_function: bool


def convert(
    config: EncoderConfig,
    state: StateDict,
    expression: str,
    options: Mapping[str, Any],
    max_positions: int | None = None,
    seed: int = 1,
    initial: Mapping[str, Tensor] | None = None,
) -> Converted:
    """Give a model other positions.

    Parameters of schemes that both expressions name are kept. Of ``absolute`` positions that go, the average embedding remains,
    added to every word embedding (Wennberg & Henter 2021, appendix C), so that the layers above meet vectors of the kind they
    know; to the output projection that shares the embeddings it adds the same number for every symbol. New parameters start
    as their scheme starts them.

    Args:
        config, state: the source's.
        expression: the new positional encoding.
        options: its options by full name; for the source's own positions, the source's are the default.
        max_positions: the number of positions of schemes that learn each; by default the source's.
        seed: of new parameters.
        initial: values of some of the new parameters by their names, such as ``tisa.offset``; the others start as their scheme
            starts them.

    Raises:
        InputError: an unknown scheme or option, or a table that would have to be longer than the source's.
    """
    if expression == config.positions:
        options = {**config.position_options, **options}
    target = dataclasses.replace(
        config, positions=expression, position_options=dict(options), max_positions=max_positions or config.max_positions
    )
    torch.manual_seed(seed)
    positions = build_positions(target)
    fresh = {POSITIONS + name: value.detach() for name, value in positions.named_parameters()}
    removed = [name for name in state if name.startswith(POSITIONS) and name not in fresh]
    kept = [name for name in fresh if name in state]
    converted = {name: value for name, value in state.items() if name not in removed}
    remarks = []
    for name in kept:
        converted[name] = _fit(state[name], fresh[name].shape, name)
    if kept:
        remarks.append(f"kept: {_listed(kept)}")
    copied = []
    for scheme in positions.schemes:
        name = f"{POSITIONS}{scheme.name}.weight"
        if isinstance(scheme, Absolute) and name not in state and ABSOLUTE in state:
            fresh[name] = _fit(state[ABSOLUTE], fresh[name].shape, name)
            copied.append(name)
    if copied:
        remarks.append(f"begins as the source's absolute positions: {_listed(copied)}")
    elif ABSOLUTE in removed:
        converted |= _shifted_words(state, state[ABSOLUTE].mean(0))
        remarks.append("removed: absolute positions; their average is now part of every word embedding")
    if MASK_POSITIONS in state:
        shape = torch.Size((target.max_positions, target.dim))
        converted[MASK_POSITIONS] = _fit(state[MASK_POSITIONS], shape, MASK_POSITIONS)
    others = [name for name in removed if name != ABSOLUTE]
    if others:
        remarks.append(f"removed: {_listed(others)}")
    given = {POSITIONS + name: value for name, value in (initial or {}).items()}
    fresh |= {name: value.to(fresh[name]).view_as(fresh[name]) for name, value in given.items()}
    if given:
        remarks.append(f"new, with given values: {_listed(list(given))}")
    new = [name for name in fresh if name not in kept and name not in copied and name not in given]
    if new:
        remarks.append(f"new, initialised as their scheme does it (seed {seed}): {_listed(new)}")
    converted = {**fresh, **converted}
    same = not removed and not new and not given and not copied and _effective(config) == _effective(target)
    return Converted(target, converted, remarks, same)


def _shifted_words(state: StateDict, average: Tensor) -> StateDict:
    """The word embeddings with a vector added to each, and the output projection if it shares them."""
    tied = f"{LANGUAGE_MODEL}weight"
    shares = torch.equal(state[WORDS], state.get(tied, state[WORDS]))
    return {name: state[name] + average for name in ((WORDS, tied) if shares else (WORDS,)) if name in state}


def _fit(table: Tensor, shape: torch.Size, name: str) -> Tensor:
    """The source's table, cut to fewer positions if need be."""
    if table.shape == shape:
        return table
    if table.shape[1:] == shape[1:] and len(table) > shape[0]:
        return table[: shape[0]].clone()
    raise InputError(
        f"{_listed([name])} of the source is {tuple(table.shape)} and would be {tuple(shape)}: --max-positions cannot "
        "exceed the source's for tables that are kept, nor can other options change their shape"
    )


def _effective(config: EncoderConfig) -> Any:
    """What decides the function beside the parameters."""
    with torch.device("meta"):
        positions = build_positions(config)
    return config.positions, positions.effective_options


def _listed(names: list[str]) -> str:
    return ", ".join(name.removeprefix(POSITIONS) for name in names)
