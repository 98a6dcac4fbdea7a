"""Replaces the positional encoding of a pretrained model: keeps, adds and removes parameters."""

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..base.errors import InputError
from ..core.schemes import parse, same, scheme_options
from ..core.schemes.absolute import Absolute
from ..core.schemes.positions import read_sum, sums_of
from ..core.transformer import EncoderConfig, build_positions
from ..plugin.checkpoint.state_dict import ABSOLUTE, LANGUAGE_MODEL, MASK_POSITIONS, POSITIONS, WORDS, StateDict

IN_LAYERS = f"{POSITIONS}sums.0.absolute.weight"
"""The table of absolute positions where layers differ."""


@dataclasses.dataclass(frozen=True)
class Converted:
    """A model with other positions.

    Attributes:
        remarks: lines about what was kept, removed and newly initialised.
        same_function: whether it computes the source's function.
    """

    config: EncoderConfig
    state: StateDict
    remarks: list[str]
    same_function: bool


GENERAL = ("position_scale_factor", "position_log_n", "log_n_beta", "log_n_length")
"""Options that any expression has a meaning for."""


def convert(
    config: EncoderConfig,
    state: StateDict,
    expression: str,
    options: Mapping[str, Any],
    max_positions: int | None = None,
    seed: int = 1,
    initial: Mapping[str, Tensor] | None = None,
) -> Converted:
    """Replace the positions of a model.

    Parameters of schemes that both expressions name are kept. Where ``absolute`` positions are removed, their average is added to
    every word embedding (Wennberg & Henter 2021, appendix C), so that the layers above receive vectors of the kind that they were
    trained on; in an output projection that shares the embeddings, it adds the same number to the score of every symbol. New
    parameters are initialised by their scheme.

    Args:
        config, state: the source's.
        options: its options by full name; for schemes that both expressions name, the source's are the default.
        max_positions: the number of positions of schemes that learn each; by default the source's.
        seed: of new parameters.
        initial: values of some of the new parameters by their names, such as ``tisa.offset``.

    Raises:
        InputError: an unknown scheme or option, or a table that would have to be longer than the source's.
    """
    options = {**_shared_options(config, expression), **options}
    target = dataclasses.replace(
        config, positions=expression, position_options=options, max_positions=max_positions or config.max_positions
    )
    torch.manual_seed(seed)
    positions = build_positions(target)
    fresh = {POSITIONS + name: value.detach() for name, value in positions.named_parameters()}
    fit = functools.partial(_fit, lengths=(config.max_positions, target.max_positions))
    kept = {name: fit(state[name], value.shape, name) for name, value in fresh.items() if name in state}
    copied = {}
    table = next((name for name in (ABSOLUTE, IN_LAYERS) if name in state), "")
    if table:
        tables = (f"{POSITIONS}{path}.weight" for path, part in positions.named_modules() if isinstance(part, Absolute))
        copied = {name: fit(state[table], fresh[name].shape, name) for name in tables if name not in state}
    given = {POSITIONS + name: value for name, value in (initial or {}).items()}
    given = {name: value.to(fresh[name]).view_as(fresh[name]) for name, value in given.items()}
    new = fresh.keys() - kept.keys() - copied.keys() - given.keys()
    removed = [name for name in state if name.startswith(POSITIONS) and name not in fresh]

    others = {name: value for name, value in state.items() if name not in removed}
    averaged = [table] if table in removed and not copied else []
    if averaged:
        tied = f"{LANGUAGE_MODEL}weight"
        shifted = [WORDS, tied] if tied in state and torch.equal(state[WORDS], state[tied]) else [WORDS]
        others |= {name: state[name] + state[table].mean(0) for name in shifted}
    if MASK_POSITIONS in state:
        others[MASK_POSITIONS] = fit(state[MASK_POSITIONS], torch.Size((target.max_positions, target.dim)), MASK_POSITIONS)
    remarks = {
        "kept": kept,
        "starts as the source's absolute positions": copied,
        "removed, and their average added to every word embedding": averaged,
        "removed": [name for name in removed if name != table],
        "new, with given values": given,
        f"new, initialised by their scheme (seed {seed})": [name for name in fresh if name in new],
    }
    return Converted(
        target,
        {**fresh, **others, **copied, **given, **kept},
        [f"{title}: {_listed(names)}" for title, names in remarks.items() if names],
        not (removed or copied or given or new) and not differing(config, target),
    )


def _shared_options(config: EncoderConfig, expression: str) -> dict[str, Any]:
    """The source's options of schemes that both expressions name, but for those that the new one has in parentheses."""
    parts = [read_sum(part) for part in sums_of(config.positions)]
    options = {**config.position_options, **(parts[0].options if len(parts) == 1 else {})}
    shared = {*parse(config.positions)} & {*parse(expression)}
    names = {name for scheme in shared for name in (*scheme_options(scheme), *scheme.honours, *GENERAL)}
    given = {name for part in sums_of(expression) for name in read_sum(part).options}
    return {name: value for name, value in options.items() if name in names - given}


def differing(first: EncoderConfig, second: EncoderConfig) -> list[str]:
    """Return the fields by which two encoders of the same parameters differ in function, on sequences that both take."""
    affecting = [field.name for field in dataclasses.fields(EncoderConfig) if field.metadata.get("affects_output", True)]
    unlike = [name for name in affecting if getattr(first, name) != getattr(second, name)]
    idle = {"norm_bias": first.norm == "rms", "head_bias": not first.head_layer}
    elsewhere = ("positions", "position_options", "max_positions")  # of which the first two are compared below
    others = [name for name in unlike if name not in elsewhere and not idle.get(name)]
    if not same(first.positions, second.positions, first.layers):
        return ["positions", *others]
    # The names of effective options have the expression's spelling.
    second = dataclasses.replace(second, positions=first.positions)
    with torch.device("meta"):
        options = [build_positions(config).effective_options for config in (first, second)]
    return others + [name for name in sorted({*options[0], *options[1]}) if options[0].get(name) != options[1].get(name)]


def _fit(table: Tensor, shape: torch.Size, name: str, lengths: tuple[int, int]) -> Tensor:
    if table.shape == shape:
        return table
    if table.shape[1:] == shape[1:] and (len(table), shape[0]) == lengths and lengths[0] > lengths[1]:
        return table[: shape[0]].clone()
    raise InputError(
        f"{_listed([name])} of the source is {tuple(table.shape)} and would be {tuple(shape)}: --max-positions cannot "
        "exceed the source's for tables that are kept, nor can other options change their shape"
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(name.removeprefix(POSITIONS) for name in names)
