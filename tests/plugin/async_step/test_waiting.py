"""Between two log lines an update reads nothing from the device.

On a CPU every read is at once; so what would wait on a GPU is forbidden: numbers of tensors, and sizes that depend on values.
``tests/gpu/test_async_step_on_gpu.py`` lets CUDA look.
"""

import threading
from contextlib import contextmanager

import pytest
import torch
from fairseq.distributed import utils as distributed_utils
from fairseq.trainer import Trainer
from torch.ops import aten
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_posenc.core.families import expressions
from fairseq_posenc.core.transformer import Encoder, EncoderConfig, Mask
from fairseq_posenc.plugin.processes.graceful_stop import request

WAITING = {
    aten._local_scalar_dense.default, aten.nonzero.default, aten.masked_select.default, aten.equal.default, aten._unique2.default,
    aten.repeat_interleave.Tensor, aten.bincount.default,
}  # fmt: skip
BY_INDEX = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}


FROM_HOST = {torch.tensor, torch.as_tensor, torch.from_numpy, torch.Tensor.new_tensor}
INDEXING = {torch.Tensor.__getitem__, torch.Tensor.__setitem__}


class Waits(Exception):
    """Something would wait for the device."""


class NothingWaits(TorchDispatchMode):
    """While this is open, everything is forbidden for which the host would wait for a GPU.

    Raises:
        Waits: where it is done, though the data are on the CPU.
    """

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        masks = func in BY_INDEX and any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
        if func in WAITING or masks:
            raise Waits(str(func))
        return func(*args, **(kwargs or {}))


class NothingComes(TorchFunctionMode):
    """While this is open, tensors of Python's numbers are forbidden, also as indices: their copy to a GPU is waited for.

    Raises:
        Waits: where one is made.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in FROM_HOST:
            raise Waits(func.__name__)
        indices = () if func not in INDEXING else args[1] if isinstance(args[1], tuple) else args[1:2]
        if any(isinstance(index, (list, tuple)) for index in indices):
            raise Waits("an index of numbers")
        return func(*args, **(kwargs or {}))


@contextmanager
def nothing_waits():
    """Both of these."""
    with NothingWaits(), NothingComes():
        yield


@pytest.fixture
def values(watched, monkeypatch):
    """Nothing may wait in the updates between log lines."""
    main, open_guards = threading.main_thread(), []

    def begin():
        open_guards.append(nothing_waits())
        open_guards[-1].__enter__()

    def end():
        open_guards.pop().__exit__(None, None, None)

    def forbidden(name, original):
        def method(self, *args, **kwargs):
            if open_guards and threading.current_thread() is main:  # others read data ahead
                raise Waits(name)
            return original(self, *args, **kwargs)

        return method

    for name in ("tolist", "numpy"):  # which no dispatcher sees
        monkeypatch.setattr(torch.Tensor, name, forbidden(name, getattr(torch.Tensor, name)))
    return watched(begin, end)


CASES = {
    "whole blocks": {},
    "padding and micro-batches": {"task.sample_break_mode": "complete", "optimization.update_freq": [2]},
    "documents": {"task.document_mask": True},
    "bfloat16": {"common.bf16": True},
}


@pytest.mark.parametrize("case", CASES)
def test_the_fast_step_waits_for_nothing(case, train, values):
    trained = train("fast", case, {**values, **CASES[case]})
    assert int(trained.rows["train"][0]["train_num_updates"]) > 4


@pytest.mark.parametrize("step", ["plain", "static", "non_blocking"])
def test_others_do_wait(step, train, values):
    with pytest.raises(Waits):
        train(step, step, values)


def test_to_know_who_was_asked_to_leave_off_nothing_waits(monkeypatch):
    """An update of fairseq's own trainer on two GPUs, where what processes sum up is on the device."""

    class Task:
        logging_outputs_can_be_summed = staticmethod(lambda criterion: True)

    class OneOfTwo(Trainer):
        data_parallel_world_size, data_parallel_process_group, device, task = 2, None, torch.device("cpu"), Task()

        def __init__(self):
            pass

        def get_criterion(self):
            return None

    monkeypatch.setattr(
        distributed_utils, "all_reduce_dict", lambda data, **_: {name: torch.tensor(2.0 * value) for name, value in data.items()}
    )
    monkeypatch.setattr(request, "everywhere", 0.0)
    trainer = OneOfTwo()
    for asked in (False, True):
        monkeypatch.setattr(request, "here", asked)
        trainer._aggregate_logging_outputs([{"loss": 1.0}], 8)
        with NothingWaits():
            assert request.of(trainer) == asked


@pytest.mark.parametrize("backend", ["auto", "eager"])  # on a GPU it is often the latter
@pytest.mark.parametrize("name", [*expressions(), "shaw+m4+reset"])
def test_no_scheme_waits(name, backend):
    sizes = {"layers": 2, "dim": 8, "ffn_dim": 8, "heads": 2, "max_positions": 12}
    encoder = Encoder(EncoderConfig(vocab_size=20, positions=expressions().get(name, name), attention_backend=backend, **sizes))
    tokens = torch.randint(4, 20, (2, 12))
    padding = torch.zeros(2, 12, dtype=torch.bool)
    padding[0, 9:] = True
    with nothing_waits():
        encoder(tokens, mask=Mask(padding)).last_hidden_state.sum().backward()
