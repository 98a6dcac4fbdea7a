"""Which part of which parameter a process updates, and the optimizer's state of it, at ZeRO's stages 1, 2 and 3.

ZeRO lays the parameters of a group end to end (at stages 1 and 2 whole, at stage 3 this process's part of each), and its
optimizer knows only the flat tensor that this process updates. Written down parameter by parameter, the same state fits any
stage and any number of processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed

MASTER = "master"  # the float32 weights, beside the optimizer's own names: exp_avg, exp_avg_sq, step …
SCALER = ("cur_scale", "cur_iter", "last_overflow_iter", "cur_hysteresis")  # what changes of a dynamic loss scale

State = dict[str, Any]


class Piece(NamedTuple):
    """The elements ``start … start + numel`` of a flattened parameter, at ``offset`` of a flat tensor."""

    name: str
    start: int
    numel: int
    offset: int


class Group(NamedTuple):
    """What this process updates together."""

    master: Tensor  # flat, float32
    pieces: list[Piece]  # parameters of the group that have no element here are in it too


def groups(engine: Any) -> list[Group]:
    """The partition of DeepSpeed's ``engine`` that is this process's."""
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
        yield Piece(names[parameter], start, min(size, parameter.ds_numel - start), offset)
        offset += size


def _parts_of_all(parameters: Iterable[Any], names: dict[Any, str]) -> Iterator[Piece]:
    """Stages 1 and 2: the row of all parameters is divided."""
    for parameter in parameters:
        found = parameter._hp_mapping
        if found is None:
            yield Piece(names[parameter], 0, 0, 0)
        else:
            here, flat = found.lp_fragment_address, found.hp_fragment_address
            yield Piece(names[parameter], here.start, here.numel, flat.start)


def collect(engine: Any) -> dict[str, Any]:
    """This process's part of the optimizer, in tensors and plain values; tensors are views, and nothing is copied.

    ``parameters`` has, by name, ``start`` and the flat elements from there on of the master weights and of each of the
    optimizer's tensors, and its other values (steps); ``groups`` the optimizer's settings; ``scaler`` the loss scale;
    ``shared`` other names of tied parameters.

    Raises:
        ValueError: the optimizer keeps a tensor that does not have one number for each of a parameter's.
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
    """Give the engine the state that the processes of another run (``parts``, by :func:`collect`) had.

    The model's weights, which have the precision of training, are left alone; they come with the plain checkpoint.

    Raises:
        RuntimeError: ``parts`` lack something or are of another model or optimizer; says of which parameter.
    """
    for master, pieces in groups(engine):
        found = [_found(parts, piece.name) for piece in pieces]
        with torch.no_grad():
            _fill(master, pieces, found, MASTER)
        state = engine.optimizer.optimizer.state[master]
        everything = {key: value for states in found for part in states for key, value in part.items()}
        for key, value in everything.items():
            if key in ("start", MASTER):
                continue
            if isinstance(value, Tensor) and value.dim() > 0:
                state[key] = torch.zeros_like(master, dtype=value.dtype, requires_grad=False)
                _fill(state[key], pieces, found, key)
            else:
                state[key] = _agreed(key, pieces, found)
    settings, saved = _settings(engine), parts[0]["groups"]
    if len(settings) != len(saved):
        raise RuntimeError(f"the optimizer has {len(settings)} groups of parameters, and the checkpoint's had {len(saved)}")
    for group, values in zip(settings, saved, strict=True):
        group.update({key: value for key, value in values.items() if key in group and key != "params"})
    scaler = engine.optimizer.loss_scaler
    if scaler.dynamic:
        vars(scaler).update({key: parts[0]["scaler"][key] for key in SCALER if key in parts[0]["scaler"]})


def check(part: Any) -> None:
    """Refuse what :func:`collect` has not made.

    Raises:
        TypeError: it lacks something or has something of another type.
    """
    match part:
        case {"parameters": dict(parameters), "groups": list(groups), "scaler": dict(), "shared": dict()}:
            states_fit = all(map(_is_state, parameters.values())) and all(isinstance(group, dict) for group in groups)
        case _:
            states_fit = False
    if not states_fit:
        raise TypeError("it does not hold what a process writes")


def _is_state(state: Any) -> bool:
    match state:
        case {"start": int(start), "master": Tensor()}:
            return start >= 0 and all(value.dim() < 2 for value in state.values() if isinstance(value, Tensor))
    return False


def whole(parts: list[dict[str, Any]], name: str, key: str) -> Tensor:
    """All elements of a parameter, or of the optimizer's ``key`` for it, flat; copied.

    Raises:
        RuntimeError: some are missing.
    """
    found = sorted(_found(parts, name), key=lambda state: state["start"])
    end = max(state["start"] + state[key].numel() for state in found)
    return _range(found, name, key, 0, end)


def _settings(engine: Any) -> list[dict[str, Any]]:
    return engine.optimizer.optimizer.param_groups


def _is_flat(key: str, value: Any, master: Tensor) -> bool:
    if not isinstance(value, Tensor) or value.dim() == 0:
        return False
    if value.shape != master.shape:
        raise ValueError(
            f"the optimizer keeps {key} of shape {tuple(value.shape)} for {master.numel():,} numbers, which cannot be saved part "
            "by part. Use --optimizer adam, or --deepspeed-config zero0."
        )
    return True


def _cut(flat: Tensor, piece: Piece) -> Tensor:
    return flat.narrow(0, piece.offset, piece.numel)


def _shared(model: Any) -> dict[str, str]:
    """Other names of parameters that have several, and the one of them that ``named_parameters`` gives."""
    first = {id(parameter): name for name, parameter in model.named_parameters()}
    every = model.named_parameters(remove_duplicate=False)
    return {name: first[id(parameter)] for name, parameter in every if first[id(parameter)] != name}


def _found(parts: list[dict[str, Any]], name: str) -> list[State]:
    found = [part["parameters"][name] for part in parts if name in part["parameters"]]
    if not found:
        raise RuntimeError(f"nothing of the parameter {name} is in the checkpoint")
    return found


def _fill(flat: Tensor, pieces: list[Piece], found: list[list[State]], key: str) -> None:
    for piece, states in zip(pieces, found, strict=True):
        _cut(flat, piece).copy_(_range(states, piece.name, key, piece.start, piece.numel))


def _range(states: list[State], name: str, key: str, start: int, numel: int) -> Tensor:
    """Elements ``start … start + numel``, from the parts that have them."""
    taken, at = [], start
    for state in sorted(states, key=lambda state: state["start"]):
        if key not in state:
            raise RuntimeError(f"{key} of the parameter {name} is not in the checkpoint")
        end = min(start + numel, state["start"] + state[key].numel())
        if state["start"] <= at < end:
            taken.append(state[key][at - state["start"] : end - state["start"]])
            at = end
    if at != start + numel:
        raise RuntimeError(f"elements {at} … {start + numel} of the parameter {name} ({key}) are not in the checkpoint")
    return torch.cat(taken) if taken else torch.empty(0)


def _agreed(key: str, pieces: list[Piece], found: list[list[State]]) -> Any:
    """A value that is one for the whole group, such as the number of steps."""
    values = [state.get(key) for states in found for state in states]
    if any(value != values[0] for value in values):
        names = ", ".join(piece.name for piece in pieces[:3])
        raise RuntimeError(f"the optimizer's {key} differs between the parameters {names} …, which are updated together now")
    return values[0].clone() if isinstance(values[0], Tensor) else values[0]
