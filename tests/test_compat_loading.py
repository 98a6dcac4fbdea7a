"""Checkpoints load without running code, whatever wrote them."""

import argparse
import codecs
import collections
import contextlib
import functools
import io
import os
import pathlib
import pickle
import resource
import struct
import zipfile

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

from fairseq_posenc.base.errors import InputError
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


def nested_keys(levels=60):
    """A pickle of ``{tuple: 1}``, whose tuple of a text holds itself twice at each level."""
    text = pickle.BINUNICODE + b"\1\0\0\0a"
    doubled = (pickle.BINPUT + b"\0" + pickle.BINGET + b"\0" + pickle.TUPLE2) * levels
    return pickle.PROTO + b"\2" + pickle.EMPTY_DICT + text + doubled + pickle.BININT1 + b"\1" + pickle.SETITEM + pickle.STOP


class Called:
    def __init__(self, function, *arguments):
        self.reduced = function, arguments

    def __reduce__(self):
        return self.reduced


def doubled_paths(levels=60):
    """A path that is joined with itself at each level."""
    path = "a" * 1000
    for _ in range(levels):
        path = Called(pathlib.PosixPath, path, path)
    return path


HASH = 2**61 - 1  # integers that differ by a multiple of it have one hash


def colliding(keys, made=None):
    """A pickle of a dictionary or a set whose keys have one hash."""
    keys = [*keys]
    if made is not None:
        return pickle.dumps(Called(made, keys), protocol=2)
    items = b"".join(pickle.dumps(key, protocol=2)[2:-1] + pickle.NONE for key in keys)
    return pickle.PROTO + b"\2" + pickle.EMPTY_DICT + pickle.MARK + items + pickle.SETITEMS + pickle.STOP


ENDLESS = {
    "large integers of one hash": colliding(HASH * n for n in range(30_000)),
    "tuples of one hash": colliding((HASH * n, -1) for n in range(30_000)),
    "a set of one hash": colliding((HASH * n for n in range(30_000)), frozenset),
    "an ordered dictionary of one hash": colliding(((HASH * n, 0) for n in range(30_000)), collections.OrderedDict),
    "references of one hash": pickle.PROTO + b"\2" + b"N" + b"".join(b"p%d\n" % (HASH * n) for n in range(30_000)) + b".",
    "nested keys": nested_keys(),
    "punycode": pickle.dumps(Called(codecs.encode, "a\u1234" * 300_000, "punycode"), protocol=2),
    "bytearray": pickle.dumps(Called(bytearray, 2**33), protocol=2),
    "doubled paths": pickle.dumps(doubled_paths(), protocol=2),
}


@pytest.mark.parametrize("case", ENDLESS)
@pytest.mark.parametrize("format", [ZIP, LEGACY])
def test_small_files_that_take_long_are_refused_at_once(case, format, tmp_path):
    path = saved({}, tmp_path / "whole.pt", format)
    if format == ZIP:
        with zipfile.ZipFile(path) as whole, zipfile.ZipFile(tmp_path / "small.pt", "w") as small:
            for entry in whole.infolist():
                small.writestr(entry.filename, ENDLESS[case] if "data.pkl" in entry.filename else whole.read(entry))
    else:
        empty = pickle.dumps({}, protocol=2)
        (tmp_path / "small.pt").write_bytes(path.read_bytes().replace(empty, ENDLESS[case]))
    for read in (load_checkpoint, loading.peek):
        with pytest.raises(InputError, match=r"a small structure|builds a bytearray|uses a codec|has many keys|old protocol"):
            read(tmp_path / "small.pt")


def test_an_archive_of_many_files_is_refused_before_they_are_listed(tmp_path):
    path = saved({"it": 1}, tmp_path / "many.pt")
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        assert load_checkpoint(path) == {"it": 1}
        start = archive.start_dir
    entry = whole[start : start + 46 + int.from_bytes(whole[start + 28 : start + 30], "little")]
    entry = entry[:30] + bytes(2) + entry[32:]  # without what may follow the name
    count = (17 << 20) // len(entry)
    size, offset = count * len(entry), start
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count & 0xFFFF, count & 0xFFFF, size, offset, 0)
    path.write_bytes(whole[:start] + entry * count + end)
    for read in (load_checkpoint, loading.peek):
        with pytest.raises(InputError, match=r"list of files has"):
            read(path)


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
