"""The parts of parameters that a process updates, and the optimizer's state for them, at ZeRO's stages 1, 2 and 3.

ZeRO concatenates the parameters of a group (at stages 1 and 2 whole, at stage 3 this process's part of each), and its
optimizer knows only the flat tensor that this process updates. Saved parameter by parameter, the same state fits any stage and
any number of processes.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed

from ...base.errors import InputError
from ..checkpoint.state_dict import LEARNING_RATES, require_same_groups

MASTER = "master"  # the float32 weights, next to the optimizer's own names: exp_avg, exp_avg_sq, step …
SCALER = ("cur_scale", "cur_iter", "last_overflow_iter", "cur_hysteresis")  # the changing state of a dynamic loss scale

State = dict[str, Any]


class Piece(NamedTuple):
    """The elements ``start … start + numel`` of a flattened parameter, at ``offset`` of a flat tensor."""

    name: str
    start: int
    numel: int
    offset: int
    total: int  # elements of the parameter


class Group(NamedTuple):
    """The parameters that this process updates together."""

    master: Tensor  # flat, float32
    pieces: list[Piece]  # also of parameters of which this process has no element


def groups(engine: Any) -> list[Group]:
    """Return this process's partition of DeepSpeed's ``engine``."""
    zero = engine.optimizer
    names = {parameter: name for name, parameter in engine.module.named_parameters()}
    if engine.zero_optimization_partition_weights():
        rank = distributed.get_rank(zero.dp_process_group)
        flat = zip(zero.fp32_partitioned_groups_flat, zero.fp16_groups, strict=True)
        return [Group(master, list(_parts_of_each(parameters, names, rank))) for master, parameters in flat]
    flat = zip(zero.single_partition_of_fp32_groups, zero.bit16_groups, strict=True)
    return [Group(master, list(_parts_of_all(parameters, names))) for master, parameters in flat]


def _parts_of_each(parameters: Iterable[Any], names: dict[Any, str], rank: int) -> Iterator[Piece]:
    """At stage 3, every parameter is divided, and the last part is padded."""
    offset = 0
    for parameter in parameters:
        size = parameter.partition_numel()
        start = min(rank * size, parameter.ds_numel)
        yield Piece(names[parameter], start, min(size, parameter.ds_numel - start), offset, parameter.ds_numel)
        offset += size


def _parts_of_all(parameters: Iterable[Any], names: dict[Any, str]) -> Iterator[Piece]:
    """At stages 1 and 2, the concatenation of all parameters is divided."""
    for parameter in parameters:
        mapping = parameter._hp_mapping
        if mapping is None:
            yield Piece(names[parameter], 0, 0, 0, parameter.numel())
        else:
            fragment = mapping.lp_fragment_address
            yield Piece(names[parameter], fragment.start, fragment.numel, mapping.hp_fragment_address.start, parameter.numel())


def collect(engine: Any) -> dict[str, Any]:
    """Return this process's part of the optimizer, in plain values and in tensors that are views.

    ``parameters`` has, by name, ``start`` and the flat elements from there on of the master weights and of each of the
    optimizer's tensors, and its other values (steps); ``groups`` the optimizer's settings; ``scaler`` the loss scale;
    ``shared`` other names of tied parameters.

    Raises:
        InputError: the optimizer keeps a tensor that does not have exactly one number per number of the parameter.
    """
    parameters, scaler = {}, engine.optimizer.loss_scaler
    for master, pieces in groups(engine):
        state = {MASTER: master.detach(), **engine.optimizer.optimizer.state.get(master, {})}
        flat = {key: value for key, value in state.items() if isinstance(value, Tensor) and value.dim() > 0}
        for key, value in flat.items():
            if value.shape != master.shape:
                raise InputError(
                    f"the optimizer keeps {key} of shape {tuple(value.shape)} for {master.numel():,} numbers, which cannot be "
                    "saved part by part. Use --optimizer adam, or --deepspeed-config zero0."
                )
        for piece in pieces:
            cut = {key: _cut(value, piece) for key, value in flat.items()}
            parameters[piece.name] = {"start": piece.start, **state, **cut}
    first = {id(parameter): name for name, parameter in engine.module.named_parameters()}
    names = [(name, first[id(each)]) for name, each in engine.module.named_parameters(remove_duplicate=False)]
    return {
        "parameters": parameters,
        "groups": [{key: value for key, value in group.items() if key != "params"} for group in _settings(engine)],
        "scaler": {key: getattr(scaler, key) for key in SCALER} if scaler.dynamic else {},
        "shared": {name: other for name, other in names if name != other},
    }


def restore(engine: Any, parts: list[dict[str, Any]]) -> None:
    """Set the engine's state from that of another run's processes (``parts``, from :func:`collect`).

    The weights that the engine has, those of the plain checkpoint, count more where they were changed since, as by averaging.

    Raises:
        RuntimeError: ``parts`` lack something or belong to another model or optimizer; the message names the parameter.
    """
    updated = groups(engine)
    known = {piece.name for group in updated for piece in group.pieces}
    if others := sorted({name for part in parts for name in part["parameters"]} - known):
        raise RuntimeError(f"it has the parameter {others[0]}, which this run does not train")
    for master, pieces in updated:
        states = [_states(parts, piece.name) for piece in pieces]
        for piece, saved in zip(pieces, states, strict=True):
            if _end(saved[-1]) > piece.total:
                raise RuntimeError(f"{piece.name} has {piece.total:,} numbers, and the checkpoint's at least {_end(saved[-1]):,}")
        with torch.no_grad():
            weights = master.clone()
            _fill(master, pieces, states, MASTER)
            master.copy_(torch.where(unchanged(master, weights), master, weights))
            _restore_state(engine.optimizer.optimizer.state[master], master, pieces, states)
    settings, saved = _settings(engine), parts[0]["groups"]
    require_same_groups(saved, settings)
    for group, values in zip(settings, saved, strict=True):
        group.update({name: values[name] for name in LEARNING_RATES if name in values})  # others are those of this training
    if engine.optimizer.loss_scaler.dynamic:
        scaler = parts[0]["scaler"]
        vars(engine.optimizer.loss_scaler).update({key: scaler[key] for key in SCALER if key in scaler})


def unchanged(master: Tensor, weights: Tensor) -> Tensor:
    """Return for each number whether the weights, in float32, are what the master weights are in the precision of the former."""
    halves = (dtype for dtype in (torch.bfloat16, torch.float16) if torch.equal(weights.to(dtype).to(weights.dtype), weights))
    rounded = master.to(next(halves, weights.dtype)).to(weights.dtype)
    return (rounded == weights) | (rounded.isnan() & weights.isnan())


def _restore_state(state: State, master: Tensor, pieces: list[Piece], states: list[list[State]]) -> None:
    """Restore the optimizer's state of a group, without its weights."""
    saved = {key: value for parts in states for part in parts for key, value in part.items() if key not in ("start", MASTER)}
    if missing := sorted(state.keys() - saved.keys()):
        raise RuntimeError(f"{missing[0]} of the parameter {pieces[0].name} is not in the checkpoint")
    for key, value in saved.items():
        if isinstance(value, Tensor) and value.dim() > 0:
            state[key] = torch.zeros_like(master, dtype=value.dtype, requires_grad=False)
            _fill(state[key], pieces, states, key)
        else:
            state[key] = _common_value(key, pieces, states)


def whole(parts: list[dict[str, Any]], name: str, key: str) -> Tensor:
    """Return all elements of a parameter, or of the optimizer's ``key`` for it, flat; copied.

    Raises:
        RuntimeError: some are missing.
    """
    states = _states(parts, name)
    return _range(states, name, key, 0, _end(states[-1]))


def _settings(engine: Any) -> list[dict[str, Any]]:
    return engine.optimizer.optimizer.param_groups


def _cut(flat: Tensor, piece: Piece) -> Tensor:
    return flat.narrow(0, piece.offset, piece.numel)


def _states(parts: list[dict[str, Any]], name: str) -> list[State]:
    """Return what each part holds of a parameter, in the order of its elements."""
    states = [part["parameters"][name] for part in parts if name in part["parameters"]]
    if not states:
        raise RuntimeError(f"nothing of the parameter {name} is in the checkpoint")
    return sorted(states, key=lambda state: (state["start"], _end(state)))


def _end(state: State) -> int:
    return state["start"] + state[MASTER].numel()


def _fill(flat: Tensor, pieces: list[Piece], states: list[list[State]], key: str) -> None:
    for piece, saved in zip(pieces, states, strict=True):
        _cut(flat, piece).copy_(_range(saved, piece.name, key, piece.start, piece.numel))


def _range(states: list[State], name: str, key: str, start: int, numel: int) -> Tensor:
    """Return the elements ``start … start + numel``, from the parts that have them."""
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


def _common_value(key: str, pieces: list[Piece], states: list[list[State]]) -> Any:
    """Return a value that the whole group shares, such as the number of steps."""
    values = [state.get(key) for saved in states for state in saved]
    if any(value != values[0] for value in values):
        names = ", ".join(piece.name for piece in pieces[:3])
        raise RuntimeError(f"the optimizer's {key} differs between the parameters {names} …, which are updated together now")
    return values[0].clone() if isinstance(values[0], Tensor) else values[0]
