"""Checkpoints load without running code, whatever wrote them."""

import argparse
import collections
import contextlib
import functools
import io
import os
import pickle
import resource

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.dataclass.configs import EMAConfig
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from fairseq.logging import meters
from omegaconf import DictConfig, OmegaConf, base, nodes
from untrained import flip_a_bit

from fairseq_posenc.plugin.checkpoint import loading
from fairseq_posenc.plugin.checkpoint.loading import load as load_checkpoint

ZIP, LEGACY = True, False


def saved(content, path, format=ZIP):
    torch.save(content, path, _use_new_zipfile_serialization=format)
    return path


@pytest.fixture
def checkpoint():
    """What a checkpoint of fairseq 0.12.2 holds, in small."""
    return {
        "args": argparse.Namespace(arch="roberta_base", data="data-bin"),
        "cfg": None,
        "model": collections.OrderedDict(weight=torch.arange(6.0).view(2, 3)),
        "optimizer_history": [{"num_updates": 3, "lr_scheduler_state": {"best": 1.5}}],
        "extra_state": {"train_iterator": {"epoch": 2}, "val_loss": np.float64(1.25)},
    }


@pytest.mark.parametrize("format", [ZIP, LEGACY])
def test_checkpoint_comes_back_as_saved(checkpoint, tmp_path, format):
    loaded = load_checkpoint(saved(checkpoint, tmp_path / "checkpoint.pt", format))
    assert loaded["args"] == checkpoint["args"]
    assert torch.equal(loaded["model"]["weight"], checkpoint["model"]["weight"])
    assert loaded["extra_state"] == checkpoint["extra_state"]


def meter():
    average = meters.AverageMeter()
    average.update(3.0)
    return average


def dictionary():
    symbols = Dictionary()
    symbols.add_symbol("word")
    return symbols


@pytest.mark.parametrize(
    ("content", "seen"),
    [
        (meter(), lambda value: value.avg),
        (dictionary(), lambda value: value.symbols),
        (OmegaConf.structured(EMAConfig(ema_decay=0.5)), lambda value: value.ema_decay),
        (OmegaConf.create({"lr": [0.1, 0.2], "name": "adam"}), OmegaConf.to_container),
        (EMAConfig(ema_decay=0.5), lambda value: value.ema_decay),
        (np.arange(4, dtype=np.int32), np.ndarray.tolist),
        (np.float32(0.5), float),
    ],
    ids=["meter", "dictionary", "structured config", "config", "dataclass", "array", "scalar"],
)
def test_types_of_fairseq_checkpoints(content, seen, tmp_path):
    loaded = load_checkpoint(saved({"it": content}, tmp_path / "checkpoint.pt"))["it"]
    assert type(loaded) is type(content)
    assert seen(loaded) == seen(content)


def test_meters_of_old_releases(tmp_path, monkeypatch):
    monkeypatch.setattr(meters.AverageMeter, "__module__", "fairseq.meters")
    path = saved({"train_loss": meter()}, tmp_path / "checkpoint.pt")
    monkeypatch.undo()
    assert b"fairseq.meters" in path.read_bytes()
    assert load_checkpoint(path)["train_loss"].avg == 3.0


@pytest.mark.parametrize("package", [b"core", b"_core"])
def test_numpy_scalars_of_numpy_1_and_2(package, tmp_path):
    buffer = io.BytesIO()
    torch.save({"best": np.float64(2.5)}, buffer, _use_new_zipfile_serialization=LEGACY)
    content = buffer.getvalue().replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(content.replace(b"numpy.core.multiarray", b"numpy." + package + b".multiarray"))
    assert load_checkpoint(path)["best"] == 2.5


class RunsCommand:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.mark.parametrize("format", [ZIP, LEGACY])
def test_code_is_refused_and_not_run(checkpoint, tmp_path, format):
    trace = tmp_path / "trace"
    path = saved({**checkpoint, "evil": RunsCommand(f"touch {trace}")}, tmp_path / "evil.pt", format)
    with pytest.raises(pickle.UnpicklingError, match=rf"evil.pt contains {os.system.__module__}.system"):
        load_checkpoint(path)
    with pytest.raises(pickle.UnpicklingError, match=r"evil.pt contains"):
        checkpoint_utils.load_checkpoint_to_cpu(str(path))
    assert not trace.exists()


class Unknown:
    """A type that no fairseq checkpoint holds."""


def test_unknown_type_is_named_and_can_be_allowed(tmp_path):
    path = saved({"it": Unknown()}, tmp_path / "other.pt")
    with pytest.raises(pickle.UnpicklingError, match=r"other.pt contains \S*Unknown.*add_safe_globals\(\[\S*Unknown\]\)"):
        load_checkpoint(path)
    with torch.serialization.safe_globals([Unknown]):
        assert isinstance(load_checkpoint(path)["it"], Unknown)


def test_allowing_types_leaves_no_trace(checkpoint, tmp_path):
    before = set(torch.serialization.get_safe_globals())
    path = saved(checkpoint, tmp_path / "checkpoint.pt")
    load_checkpoint(path)
    assert set(torch.serialization.get_safe_globals()) == before
    with pytest.raises(pickle.UnpicklingError):
        torch.load(path, weights_only=True)


def test_a_configuration_is_text_also_where_its_types_are_allowed(tmp_path, monkeypatch):
    path = saved({"cfg": OmegaConf.create({"task": {"data": "${env:HOME}"}})}, tmp_path / "it.pt")
    kinds, allowed, load = {DictConfig, nodes.AnyNode, base.Metadata, base.ContainerMetadata}, [], torch.load

    def watched(*arguments, **options):
        allowed.append(set(torch.serialization.get_safe_globals()))
        return load(*arguments, **options)

    monkeypatch.setattr(torch, "load", watched)
    with torch.serialization.safe_globals([*kinds, Unknown]):
        before = set(torch.serialization.get_safe_globals())
        for read in (load_checkpoint, loading.peek):
            assert "env:HOME" in read(path)["cfg"].task.data
            assert allowed.pop() & {*kinds, Unknown} == {Unknown}  # else it depends on the order of a set
        assert set(torch.serialization.get_safe_globals()) == before


@pytest.mark.parametrize("fraction", [0, 0.01, 0.5, 0.99])
@pytest.mark.parametrize("format", [ZIP, LEGACY])
def test_truncated_checkpoint_is_named(checkpoint, tmp_path, fraction, format):
    whole = saved({**checkpoint, "more": torch.zeros(5000)}, tmp_path / "whole.pt", format).read_bytes()
    path = tmp_path / "checkpoint_last.pt"
    path.write_bytes(whole[: int(len(whole) * fraction)])
    with pytest.raises(RuntimeError, match=r"checkpoint_last.pt cannot be read as a checkpoint.*--restore-file"):
        load_checkpoint(path)


def test_a_flipped_bit_is_noticed(checkpoint, tmp_path):
    path = saved(checkpoint, tmp_path / "checkpoint.pt")
    flip_a_bit(path, checkpoint["model"]["weight"])
    with pytest.raises(RuntimeError, match=r"checkpoint\.pt cannot be read.*checksum"):
        load_checkpoint(path)


def test_bytes_come_back(tmp_path):
    assert load_checkpoint(saved({"it": bytes(range(256))}, tmp_path / "bytes.pt"))["it"] == bytes(range(256))


def test_other_file_is_named(tmp_path):
    path = tmp_path / "notes.pt"
    path.write_text("not a checkpoint\n")
    with pytest.raises(RuntimeError, match=r"notes.pt cannot be read as a checkpoint"):
        load_checkpoint(path)


def test_missing_file_stays_an_oserror(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_checkpoint(tmp_path / "none.pt")


@contextlib.contextmanager
def small_disk():
    """Files of more than 4,096 bytes cannot be written; nothing but what is tested may write meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("how", ["saved", "copied"])
def test_a_full_disk_is_named_at_a_checkpoint(how, tmp_path, caplog):
    source, path = tmp_path / "checkpoint1.pt", tmp_path / "checkpoint_last.pt"
    source.write_bytes(bytes(5000))
    path.write_bytes(b"before")
    save = functools.partial(checkpoint_utils.torch_persistent_save, {"model": torch.zeros(5000)}, str(path))
    copy = functools.partial(PathManager.copy, str(source), str(path), overwrite=True)
    with pytest.raises(OSError, match=rf"{path}: File too large"), small_disk():
        (save if how == "saved" else copy)()
    assert {file.name for file in tmp_path.iterdir()} == {source.name, path.name}
    assert path.read_bytes() == b"before"
    assert not caplog.records


def test_only_fairseq_sees_the_reader():
    assert checkpoint_utils.torch.load is loading.load
    assert distributed_utils.torch.load is loading.load
    assert torch.load is not loading.load
    assert checkpoint_utils.torch.Tensor is torch.Tensor
