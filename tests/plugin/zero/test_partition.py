"""Optimizer states written by some processes and read by others, without a process: the arithmetic of parts."""

from types import SimpleNamespace

import pytest
import torch

from fairseq_posenc.base.errors import InputError
from fairseq_posenc.plugin.zero import partition

NUMELS = {"wide": 11, "narrow": 1, "square": 9}


class Parameter(torch.nn.Parameter):
    """What DeepSpeed adds to one at stage 3."""

    def partition_numel(self):
        return self.part

    @property
    def ds_numel(self):
        return self.whole.numel()


def whole(name, key):
    numbers = torch.arange(NUMELS[name], dtype=torch.float32) + 2**-12
    return numbers + 100 * list(NUMELS).index(name) + 1000 * ["master", "exp_avg"].index(key)


class Engine:
    """Of DeepSpeed's engine what holds the partition of one process; numbers say which element they are."""

    def __init__(self, stage, processes, rank, filled=True):
        self.stage = stage
        values = {name: whole(name, "master") for name in NUMELS}
        self.parameters = {name: Parameter(value) for name, value in values.items()}
        lay_out = self._divide_each if stage == 3 else self._divide_the_row
        master, average = (lay_out(key, processes, rank) for key in ("master", "exp_avg"))
        state = {"exp_avg": average, "step": 7} if filled else {}
        if not filled:
            master.copy_(master.bfloat16())  # as the plain file has them
        optimizer = SimpleNamespace(state={master: state}, param_groups=[{"params": [], "lr": 0.1 if filled else 0.0}])
        scaler = SimpleNamespace(
            dynamic=True, cur_scale=8.0 if filled else 1.0, cur_iter=5, last_overflow_iter=2, cur_hysteresis=1
        )
        groups = [list(self.parameters.values())]
        self.optimizer = SimpleNamespace(
            optimizer=optimizer, loss_scaler=scaler, dp_process_group=None, fp32_partitioned_groups_flat=[master],
            fp16_groups=groups, single_partition_of_fp32_groups=[master], bit16_groups=groups,
        )  # fmt: skip
        tied = [("tied", self.parameters["wide"])]
        named = list(self.parameters.items())
        self.module = SimpleNamespace(named_parameters=lambda remove_duplicate=True: named + ([] if remove_duplicate else tied))

    def zero_optimization_partition_weights(self):
        return self.stage == 3

    def _divide_each(self, key, processes, rank):
        parts = []
        for name, parameter in self.parameters.items():
            parameter.whole = whole(name, key)
            parameter.part = -(-NUMELS[name] // processes)
            padded = torch.cat([whole(name, key), torch.full((processes * parameter.part - NUMELS[name],), -1.0)])
            parts.append(padded.chunk(processes)[rank])
        return torch.cat(parts)

    def _divide_the_row(self, key, processes, rank):
        row = torch.cat([whole(name, key) for name in NUMELS])
        size = -(-len(row) // processes)
        offset = 0
        for name, parameter in self.parameters.items():
            first, last = max(offset, rank * size), min(offset + NUMELS[name], (rank + 1) * size)
            addresses = SimpleNamespace(
                lp_fragment_address=SimpleNamespace(start=first - offset, numel=last - first),
                hp_fragment_address=SimpleNamespace(start=first - rank * size, numel=last - first),
            )
            parameter._hp_mapping = addresses if first < last else None
            offset += NUMELS[name]
        return torch.cat([row, torch.full((processes * size - len(row),), -1.0)]).chunk(processes)[rank].clone()


@pytest.fixture
def engines(monkeypatch):
    """``engines(stage, processes, filled=...)``, one of each rank; a rank is asked for while its engine is used."""

    def of(stage, processes, filled=True):
        for rank in range(processes):
            monkeypatch.setattr(partition.distributed, "get_rank", lambda group, rank=rank: rank)
            yield Engine(stage, processes, rank, filled)

    return of


@pytest.mark.parametrize("now", [(1, 1), (2, 3), (3, 1), (3, 2), (3, 5)])
@pytest.mark.parametrize("before", [(2, 1), (2, 2), (1, 4), (3, 1), (3, 3), (3, 4)])
def test_every_element_finds_its_place(engines, before, now):
    parts = [partition.collect(engine) for engine in engines(*before)]
    restored = []
    for engine in engines(*now, filled=False):
        partition.restore(engine, parts)
        restored.append(partition.collect(engine))
        assert engine.optimizer.optimizer.param_groups[0]["lr"] == 0.1
        assert engine.optimizer.loss_scaler.cur_scale == 8.0
    for name in NUMELS:
        for key in ("master", "exp_avg"):
            assert torch.equal(partition.whole(restored, name, key), whole(name, key))
        assert all(part["parameters"][name]["step"] == 7 for part in restored if name in part["parameters"])
    assert restored[0]["shared"] == {"tied": "wide"}


def test_weights_that_were_changed_count_more(engines):
    (part,) = [partition.collect(engine) for engine in engines(2, 1)]
    (engine,) = engines(2, 1, filled=False)
    (master,) = engine.optimizer.single_partition_of_fp32_groups
    master[2:5] += 64
    changed = master[2:5].clone()
    partition.restore(engine, [part])
    assert torch.equal(master[2:5], changed)
    assert torch.equal(master[5 : NUMELS["wide"]], whole("wide", "master")[5:])


def test_what_is_missing_is_named(engines):
    parts = [partition.collect(engine) for engine in engines(3, 2)]
    (engine,) = engines(1, 1, filled=False)
    with pytest.raises(RuntimeError, match=r"elements 6 … 11 of the parameter wide \(master\)"):
        partition.restore(engine, parts[:1])
    for part in parts:
        del part["parameters"]["square"]
    with pytest.raises(RuntimeError, match="nothing of the parameter square"):
        partition.restore(engine, parts)


def test_steps_that_differ_are_refused(engines):
    parts = [partition.collect(engine) for engine in engines(3, 2)]
    for part in parts:
        part["parameters"]["square"]["step"] = 8
    (engine,) = engines(2, 1, filled=False)
    with pytest.raises(RuntimeError, match="step differs between the parameters wide, narrow, square"):
        partition.restore(engine, parts)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_part_without_the_state_is_refused(engines, rank):
    parts = [partition.collect(engine) for engine in engines(3, 2)]
    for state in parts[rank]["parameters"].values():
        del state["exp_avg"]
    (engine,) = engines(2, 1, filled=False)
    with pytest.raises(RuntimeError, match="exp_avg of the parameter wide is not in the checkpoint"):
        partition.restore(engine, parts)


def test_only_what_changes_of_the_loss_scale_and_the_groups_is_taken(engines):
    parts = [partition.collect(engine) for engine in engines(2, 1)]
    parts[0]["scaler"]["dynamic"] = parts[0]["groups"][0]["params"] = "changed"
    (engine,) = engines(2, 1, filled=False)
    partition.restore(engine, parts)
    assert engine.optimizer.loss_scaler.cur_scale == 8.0
    assert engine.optimizer.loss_scaler.dynamic is True
    assert engine.optimizer.optimizer.param_groups[0]["params"] == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda part: part["parameters"].update(other=part["parameters"]["wide"]), "the parameter other, which this run"),
        (
            lambda part: part["parameters"].update(square=part["parameters"]["wide"]),
            "square has 9 numbers, and",
        ),
        (lambda part: [each.pop("exp_avg") for each in part["parameters"].values()], "exp_avg of the parameter wide is not in"),
        (lambda part: part["groups"].append({}), "of 2 groups of parameters .* has 1"),
    ],
    ids=["unknown", "larger", "no state", "groups"],
)
def test_what_does_not_fit_is_named(engines, change, message):
    (part,) = [partition.collect(engine) for engine in engines(2, 1)]
    (engine,) = engines(2, 1, filled=False)
    (master,) = engine.optimizer.single_partition_of_fp32_groups
    engine.optimizer.optimizer.state[master] |= {"exp_avg": torch.zeros_like(master), "step": 7}  # as DeepSpeed makes it
    change(part)
    with pytest.raises((RuntimeError, InputError), match=message):
        partition.restore(engine, [part])


def test_an_optimizer_that_cannot_be_divided_is_refused(engines):
    (engine,) = engines(2, 1)
    ((_, state),) = engine.optimizer.optimizer.state.items()
    state["row"] = torch.zeros(3)
    with pytest.raises(ValueError, match=r"keeps row of shape \(3,\)"):
        partition.collect(engine)
