"""Which part of which parameter a process updates, and the optimizer's state for it, at ZeRO's stages 1, 2 and 3.

ZeRO concatenates the parameters of a group (at stages 1 and 2 whole, at stage 3 this process's part of each), and its
optimizer knows only the flat tensor that this process updates. Saved parameter by parameter, the same state fits any stage and
any number of processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed

from ..errors import InputError

MASTER = "master"  # the float32 weights, next to the optimizer's own names: exp_avg, exp_avg_sq, step …
SCALER = ("cur_scale", "cur_iter", "last_overflow_iter", "cur_hysteresis")  # the changing state of a dynamic loss scale

State = dict[str, Any]


class Piece(NamedTuple):
    """The elements ``start … start + numel`` of a flattened parameter, at ``offset`` of a flat tensor."""

    name: str
    start: int
    numel: int
    offset: int
    total: int  # elements that the parameter has


class Group(NamedTuple):
    """What this process updates together."""

    master: Tensor  # flat, float32
    pieces: list[Piece]  # also of the group's parameters that have no element here


def groups(engine: Any) -> list[Group]:
    """This process's partition of DeepSpeed's ``engine``."""
    zero = engine.optimizer
    names = {parameter: name for name, parameter in engine.module.named_parameters()}
    if engine.zero_optimization_partition_weights():
        rank = distributed.get_rank(zero.dp_process_group)
        flat = zip(zero.fp32_partitioned_groups_flat, zero.fp16_groups, strict=True)
        return [Group(master, list(_parts_of_each(parameters, names, rank))) for master, parameters in flat]
    flat = zip(zero.single_partition_of_fp32_groups, zero.bit16_groups, strict=True)
    return [Group(master, list(_parts_of_all(parameters, names))) for master, parameters in flat]


def _parts_of_each(parameters: Iterable[Any], names: dict[Any, str], rank: int) -> Iterator[Piece]:
    """Stage 3: every parameter is divided, and the last part padded."""
    offset = 0
    for parameter in parameters:
        size = parameter.partition_numel()
        start = min(rank * size, parameter.ds_numel)
        yield Piece(names[parameter], start, min(size, parameter.ds_numel - start), offset, parameter.ds_numel)
        offset += size


def _parts_of_all(parameters: Iterable[Any], names: dict[Any, str]) -> Iterator[Piece]:
    """Stages 1 and 2: the row of all parameters is divided."""
    for parameter in parameters:
        found = parameter._hp_mapping
        if found is None:
            yield Piece(names[parameter], 0, 0, 0, parameter.numel())
        else:
            here, flat = found.lp_fragment_address, found.hp_fragment_address
            yield Piece(names[parameter], here.start, here.numel, flat.start, parameter.numel())


def collect(engine: Any) -> dict[str, Any]:
    """This process's part of the optimizer, in tensors and plain values; tensors are views, and nothing is copied.

    ``parameters`` has, by name, ``start`` and the flat elements from there on of the master weights and of each of the
    optimizer's tensors, and its other values (steps); ``groups`` the optimizer's settings; ``scaler`` the loss scale;
    ``shared`` other names of tied parameters.

    Raises:
        InputError: the optimizer keeps a tensor without exactly one number per number of the parameter.
    """
    parameters, scaler = {}, engine.optimizer.loss_scaler
    for master, pieces in groups(engine):
        state = {MASTER: master.detach(), **engine.optimizer.optimizer.state.get(master, {})}
        for piece in pieces:
            parameters[piece.name] = {
                "start": piece.start,
                **{key: _cut(value, piece) if _is_flat(key, value, master) else value for key, value in state.items()},
            }
    return {
        "parameters": parameters,
        "groups": [{key: value for key, value in group.items() if key != "params"} for group in _settings(engine)],
        "scaler": {key: getattr(scaler, key) for key in SCALER} if scaler.dynamic else {},
        "shared": _shared(engine.module),
    }


def restore(engine: Any, parts: list[dict[str, Any]]) -> None:
    """Give the engine the state that the processes of another run had (``parts``, from :func:`collect`).

    The model's weights, which have the precision of training, are left alone; they come with the plain checkpoint.

    Raises:
        RuntimeError: ``parts`` lack something or belong to another model or optimizer; names the parameter.
    """
    updated = groups(engine)
    _require_no_others(parts, updated)
    for master, pieces in updated:
        found = [_found(parts, piece) for piece in pieces]
        with torch.no_grad():
            _fill(master, pieces, found, MASTER)
            _restore_state(engine.optimizer.optimizer.state[master], master, pieces, found)
    settings, saved = _settings(engine), parts[0]["groups"]
    if len(settings) != len(saved):
        raise RuntimeError(f"the optimizer has {len(settings)} groups of parameters, and the checkpoint's had {len(saved)}")
    for group, values in zip(settings, saved, strict=True):
        _update(group, values, group.keys() - {"params"})
    scaler = engine.optimizer.loss_scaler
    if scaler.dynamic:
        _update(vars(scaler), parts[0]["scaler"], SCALER)


def _restore_state(state: State, master: Tensor, pieces: list[Piece], found: list[list[State]]) -> None:
    """What the optimizer keeps for a group besides its weights."""
    everything = [item for states in found for part in states for item in part.items()]
    keys = dict(everything).keys() - {"start", MASTER}
    missing = sorted(state.keys() - keys)
    if missing:
        raise RuntimeError(f"{missing[0]} of the parameter {pieces[0].name} is not in the checkpoint")
    for key in keys:
        flat = {value.dtype for name, value in everything if name == key and isinstance(value, Tensor) and value.dim() > 0}
        if flat:
            state[key] = torch.zeros_like(master, dtype=_dtype(key, flat, state.get(key)), requires_grad=False)
            _fill(state[key], pieces, found, key)
        else:
            value = _common_value(key, pieces, found)
            state[key] = _fitting(key, value, state.get(key, value))


def whole(parts: list[dict[str, Any]], name: str, key: str) -> Tensor:
    """All elements of a parameter, or of the optimizer's ``key`` for it, flat; copied.

    Raises:
        RuntimeError: some are missing.
    """
    found = _states(parts, name)
    return _range(found, name, key, 0, _end(found[-1]))


def _settings(engine: Any) -> list[dict[str, Any]]:
    return engine.optimizer.optimizer.param_groups


def _is_flat(key: str, value: Any, master: Tensor) -> bool:
    if not isinstance(value, Tensor) or value.dim() == 0:
        return False
    if value.shape != master.shape:
        raise InputError(
            f"the optimizer keeps {key} of shape {tuple(value.shape)} for {master.numel():,} numbers, which cannot be saved part "
            "by part. Use --optimizer adam, or --deepspeed-config zero0."
        )
    return True


def _cut(flat: Tensor, piece: Piece) -> Tensor:
    return flat.narrow(0, piece.offset, piece.numel)


def _shared(model: Any) -> dict[str, str]:
    """For parameters with several names: each other name, and the one that ``named_parameters`` gives."""
    first = {id(parameter): name for name, parameter in model.named_parameters()}
    every = model.named_parameters(remove_duplicate=False)
    return {name: first[id(parameter)] for name, parameter in every if first[id(parameter)] != name}


def _require_no_others(parts: list[dict[str, Any]], updated: list[Group]) -> None:
    known = {piece.name for group in updated for piece in group.pieces}
    others = sorted({name for part in parts for name in part["parameters"]} - known)
    if others:
        raise RuntimeError(f"it has the parameter {others[0]}, which this run does not train")


def _found(parts: list[dict[str, Any]], piece: Piece) -> list[State]:
    found = _states(parts, piece.name)
    if _end(found[-1]) > piece.total:
        raise RuntimeError(
            f"the parameter {piece.name} has {piece.total:,} numbers, and the checkpoint's at least {_end(found[-1]):,}"
        )
    return found


def _states(parts: list[dict[str, Any]], name: str) -> list[State]:
    """What each part holds of a parameter, in the order of its elements."""
    found = [part["parameters"][name] for part in parts if name in part["parameters"]]
    if not found:
        raise RuntimeError(f"nothing of the parameter {name} is in the checkpoint")
    found.sort(key=lambda state: (state["start"], _end(state)))
    filled = [state for state in found if state[MASTER].numel()]
    if any(_end(before) > state["start"] for before, state in pairwise(filled)):
        raise RuntimeError(f"elements of the parameter {name} are in the checkpoint twice")
    return found


def _end(state: State) -> int:
    return state["start"] + state[MASTER].numel()


def _fill(flat: Tensor, pieces: list[Piece], found: list[list[State]], key: str) -> None:
    for piece, states in zip(pieces, found, strict=True):
        _cut(flat, piece).copy_(_range(states, piece.name, key, piece.start, piece.numel))


def _range(states: list[State], name: str, key: str, start: int, numel: int) -> Tensor:
    """Elements ``start … start + numel``, from the parts that have them."""
    taken, at = [], start
    for state in states:
        if not isinstance(state.get(key), Tensor) or state[key].dim() == 0:
            raise RuntimeError(f"{key} of the parameter {name} is not in the checkpoint")
        end = min(start + numel, _end(state))
        if state["start"] <= at < end:
            taken.append(state[key][at - state["start"] : end - state["start"]])
            at = end
    if at != start + numel:
        raise RuntimeError(f"elements {at} … {start + numel} of the parameter {name} ({key}) are not in the checkpoint")
    return torch.cat(taken) if taken else torch.empty(0)


def _common_value(key: str, pieces: list[Piece], found: list[list[State]]) -> Any:
    """A value that the whole group shares, such as the number of steps."""
    values = [state.get(key) for states in found for state in states]
    if any(value != values[0] for value in values):
        names = ", ".join(piece.name for piece in pieces[:3])
        raise RuntimeError(f"the optimizer's {key} differs between the parameters {names} …, which are updated together now")
    return values[0].clone() if isinstance(values[0], Tensor) else values[0]


def _dtype(key: str, found: set[torch.dtype], now: Tensor | None) -> torch.dtype:
    expected = found if now is None else {now.dtype}
    if len(found | expected) > 1:
        raise RuntimeError(f"the optimizer's {key} is {' and '.join(map(str, found))} in the checkpoint")
    return found.pop()


def _update(settings: dict[str, Any], saved: dict[str, Any], keys: Iterable[str]) -> None:
    settings.update({key: _fitting(key, saved[key], settings[key]) for key in keys if key in saved})


def _fitting(key: str, value: Any, now: Any) -> Any:
    """The checkpoint's value, which must have the type of the current one."""
    numbers = (int, float)
    if type(value) is type(now) or (type(value) in numbers and type(now) in numbers):
        return value
    raise RuntimeError(f"the optimizer's {key} is {now!r} here and {value!r:.60} in the checkpoint")
