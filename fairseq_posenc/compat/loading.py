"""Reads checkpoints without running code from them.

``torch.load(weights_only=True)`` builds tensors, plain containers and types that are allowed by name. fairseq's
checkpoints hold a few types more, listed here; all of them only carry data. Anything else is refused, and so is what only looks
like such data (:mod:`.stand_ins`).
"""

import argparse
import io
import os
import pathlib
import pickle
import re
import typing
import zipfile
from typing import IO, Any

import torch
from torch.serialization import safe_globals

from fairseq_posenc.compat.opcodes import require_bounded
from fairseq_posenc.compat.stand_ins import (
    Array,
    Config,
    DType,
    Metadata,
    Refused,
    StandIn,
    Value,
    empty_bytes,
    plain_dict,
    scalar,
    settle,
)
from fairseq_posenc.errors import InputError

LEGACY_PICKLES = 5  # in the format before PyTorch 1.6: magic number, version, system, content, keys of the tensors


class Unreadable(InputError, RuntimeError):
    """A file that is no checkpoint, or a damaged one; RuntimeError is what ``torch.load`` raises."""


class Unsafe(InputError, pickle.UnpicklingError):
    """A file that asks for what could run code; UnpicklingError is what ``torch.load`` raises."""


def load(file: Any, map_location: Any = "cpu", **options: Any) -> Any:
    """``torch.load`` that never runs code from the file, whatever the release of PyTorch.

    Where the content is a checkpoint, its configuration (``cfg`` or ``args``) is text: ``${env:NAME}`` in it stays as it is.

    Args:
        file: path or binary file object.
        map_location, options: as for ``torch.load``; ``weights_only`` is always true.

    Raises:
        Unsafe: the file asks for a type that is neither built in nor one of :func:`allowed_types`.
        Unreadable: it is truncated or no checkpoint.
        OSError: the file cannot be opened.
    """
    if isinstance(file, (str, os.PathLike)):
        with open(file, "rb") as opened:
            return load(opened, map_location, **options)
    name = getattr(file, "name", "data from another process")
    try:
        _inspect(file, verify=not isinstance(file, io.BytesIO))  # which another process has sent: no disk has changed it
        with safe_globals(allowed_types()):
            return settle(torch.load(file, map_location=map_location, **{**options, "weights_only": True}))
    except MemoryError:
        raise
    except Refused as error:
        raise Unsafe(
            f"{name} {error}, unlike any checkpoint of fairseq, so nothing was loaded. It is damaged, or made to do harm: use "
            "another."
        ) from None
    except Exception as error:  # a damaged file can raise almost any exception
        message = str(error)
        refused = refused_type(message) if isinstance(error, pickle.UnpicklingError) else None
        if refused:
            raise Unsafe(
                f"{name} asks for {refused}, which is not a type that fairseq's checkpoints hold, so nothing was loaded: "
                "building it could run code from the file. If you trust the file and know that the type is plain data, "
                "allow it in Python before loading (a package given as --user-dir is a good place) with "
                f"torch.serialization.add_safe_globals([{refused}])."
            ) from None
        reason = message.partition("\n")[0].partition(". ")[0] or "it ends early"
        raise Unreadable(
            f"{name} cannot be read as a checkpoint: it is truncated, damaged or another kind of file "
            f"({type(error).__name__}: {reason}). Restore from another file, for example --restore-file with the "
            "newest other .pt file beside it, or copy it again; to train from the start, move it away."
        ) from error


def peek(path: str | os.PathLike, verify: bool = False) -> Any:
    """What a checkpoint holds, as :func:`load` returns it, with tensors left on disk if the format allows.

    Args:
        path: the file.
        verify: whether the file's checksums are compared, for which all of it is read.

    Raises:
        Exception: whatever damaged files and other kinds of files raise.
    """
    with open(path, "rb") as file:
        is_zip = _inspect(file, verify)
    with safe_globals(allowed_types()):
        return settle(torch.load(str(path), map_location="cpu", mmap=is_zip, weights_only=True))


def _inspect(file: IO[bytes], verify: bool) -> bool:
    """Refuse what ``torch.load`` would be busy with without end, and with ``verify`` what has changed since it was written.

    ``torch.save`` never compresses; a small file that did could fill the memory. Returns whether the file is a zip archive; in
    the format before PyTorch 1.6, which has no checksums, pickles come first.
    """
    start = file.tell()
    is_zip = file.read(4) == b"PK\3\4"  # as PyTorch decides
    file.seek(start)
    if is_zip:
        with zipfile.ZipFile(file) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > file.seek(0, os.SEEK_END):
                raise Refused("is compressed")
            if verify and (damaged := archive.testzip()):
                raise zipfile.BadZipFile(f"{damaged} does not have its checksum")
        file.seek(start)
        # PyTorch's own reader finds the pickle: zipfile could be shown another one of the same name.
        require_bounded(io.BytesIO(torch._C.PyTorchFileReader(file).get_record("data.pkl")))
    else:
        for _ in range(LEGACY_PICKLES):
            require_bounded(file)
    file.seek(start)
    return is_zip


def refused_type(message: str) -> str | None:
    """The type that PyTorch's message says is forbidden; None where the message is about something else."""
    found = re.search(r"GLOBAL (\S+)|unrecognized function (\S+)|via `add_safe_globals`,? but got (.+)", message)
    return next(filter(None, found.groups())) if found else None


def _name(type_: Any) -> str:
    return f"{type_.__module__}.{type_.__qualname__}"


def allowed_types() -> list[tuple[Any, str]]:
    """What fairseq's checkpoints, old and new, hold besides tensors and containers: what is built, and its name in the file.

    Nothing here does more than keep what it is given. Types of others that would do more have stand-ins.
    """
    plain = [argparse.Namespace, pathlib.PosixPath, pathlib.WindowsPath, frozenset, slice]
    types = {_name(type_): type_ for type_ in [*plain, *_fairseq_types()]}
    functions = {"builtins.bytes": empty_bytes, "collections.defaultdict": plain_dict}
    named = types | _only_named() | functions | _omegaconf_types() | _numpy_types() | _older_names()
    return [(built, name) for name, built in named.items()]


def _only_named() -> dict[str, str]:
    """Names of types that OmegaConf's metadata mentions but of which nothing is built."""
    mentioned = [typing.Any, bool, complex, dict, float, int, list, set, str, tuple, type(None)]
    return {_name(type_): _name(type_) for type_ in mentioned}


def _fairseq_types() -> list[type]:
    """Meters, dictionaries, configurations (also of plugins), and what stands in for a tensor.

    The last is in what one process sends to another.
    """
    from fairseq.data import Dictionary
    from fairseq.dataclass import FairseqDataclass
    from fairseq.distributed.utils import _TensorPlaceholder
    from fairseq.logging import meters

    return [Dictionary, *_subclasses(meters.Meter), meters.MetersDict, *_subclasses(FairseqDataclass), _TensorPlaceholder]


def _omegaconf_types() -> dict[str, type[StandIn]]:
    from omegaconf import DictConfig, ListConfig, base, nodes

    stand_ins = {DictConfig: Config, ListConfig: Config, base.Metadata: Metadata, base.ContainerMetadata: Metadata}
    return {
        _name(type_): stand_in for type_, stand_in in [*stand_ins.items(), *((n, Value) for n in _subclasses(nodes.ValueNode))]
    }


def _subclasses(parent: type) -> list[type]:
    return [parent, *(below for child in parent.__subclasses__() for below in _subclasses(child))]


def _numpy_types() -> dict[str, Any]:
    """NumPy's numbers and arrays of numbers, under the module names of NumPy 1 and 2."""
    functions = {"scalar": scalar, "_reconstruct": Array}
    rebuild = {f"numpy.{core}.multiarray.{name}": new for core in ("core", "_core") for name, new in functions.items()}
    return {"numpy.dtype": DType, "numpy.ndarray": "numpy.ndarray", **rebuild}


def _older_names() -> dict[str, Any]:
    """Types that files name after modules of other releases of fairseq or Python."""
    from fairseq.logging import meters

    old_meters = {f"fairseq.meters.{type_.__name__}": type_ for type_ in _subclasses(meters.Meter)}
    paths = {
        f"{module}.{type_.__name__}": type_
        for module in ("pathlib", "pathlib._local")
        for type_ in (pathlib.PosixPath, pathlib.WindowsPath)
    }
    return old_meters | paths
