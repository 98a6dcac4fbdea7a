"""Reads checkpoints without running code from them.

``torch.load(weights_only=True)`` builds tensors, plain containers and types that are allowed by name. fairseq's
checkpoints hold a few types more, listed here; all of them only carry data. Anything else is refused.
"""

import argparse
import codecs
import collections
import enum
import os
import pathlib
import pickle
import re
import typing
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def load(file: Any, map_location: Any = "cpu", **options: Any) -> Any:
    """``torch.load`` that never runs code from the file, whatever the release of PyTorch.

    Args:
        file: path or binary file object.
        map_location, options: as for ``torch.load``; ``weights_only`` is always true.

    Raises:
        pickle.UnpicklingError: the file asks for a type that is neither built in nor one of :func:`allowed_types`.
        RuntimeError: the file is truncated or no checkpoint.
        OSError: the file cannot be opened.
    """
    if isinstance(file, (str, os.PathLike)):
        with open(file, "rb") as opened:
            return load(opened, map_location, **options)
    name = getattr(file, "name", "data from another process")
    types = allowed_types()
    try:
        with safe_globals(types):
            return torch.load(file, map_location=map_location, **{**options, "weights_only": True})
    except MemoryError:
        raise
    except Exception as error:  # a damaged file shows itself as almost any exception
        message = str(error)
        refused = refused_type(message) if isinstance(error, pickle.UnpicklingError) else None
        if refused:
            raise pickle.UnpicklingError(
                f"{name} asks for {refused}, which is no type that fairseq's checkpoints hold, so nothing was loaded: "
                "building it could run code from the file. If you trust the file and know that the type is plain data, "
                "allow it in Python before loading (a package given as --user-dir is a good place) with "
                f"torch.serialization.add_safe_globals([{refused}])."
            ) from None
        reason = message.partition("\n")[0].partition(". ")[0] or "it ends early"
        raise RuntimeError(
            f"{name} cannot be read as a checkpoint: it is truncated, damaged or another kind of file "
            f"({type(error).__name__}: {reason}). Restore from another file, for example --restore-file with the "
            "newest other .pt file beside it, or copy it again; to train from the start, move it away."
        ) from error


def peek(path: str | os.PathLike) -> Any:
    """What a checkpoint holds, as :func:`load` gives it, its tensors left in the file where its format allows.

    Raises:
        Exception: whatever damaged files and files of other kinds give.
    """
    with safe_globals(allowed_types()):
        return torch.load(str(path), map_location="cpu", mmap=zipfile.is_zipfile(path), weights_only=True)


def refused_type(message: str) -> str | None:
    """The type that PyTorch's message says is forbidden; None where the message is about something else."""
    found = re.search(r"GLOBAL (\S+)|unrecognized function (\S+)|via `add_safe_globals`,? but got (.+)", message)
    return next(filter(None, found.groups())) if found else None


@contextmanager
def safe_globals(types: dict[str, Any]) -> Iterator[None]:
    """Allow these types under these names, and afterwards only what was allowed before."""
    before = torch.serialization.get_safe_globals()
    torch.serialization.add_safe_globals([(type_, name) for name, type_ in types.items()])
    try:
        yield
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(before)


def _name(type_: Any) -> str:
    return f"{type_.__module__}.{type_.__qualname__}"


def allowed_types() -> dict[str, Any]:
    """What fairseq's checkpoints, old and new, hold besides tensors and containers: the name in the file, and the type."""
    plain = [
        *(argparse.Namespace, collections.defaultdict, pathlib.PosixPath, pathlib.WindowsPath, typing.Any),
        *(bool, bytearray, bytes, complex, dict, float, frozenset, int, list, set, slice, str, tuple, type(None)),
        codecs.encode,  # bytes in a pickle of protocol 2, as torch.save writes
    ]
    types = {_name(type_): type_ for type_ in [*plain, *_fairseq_types(), *_omegaconf_types()]}
    return types | _numpy_types() | _older_names()


def _fairseq_types() -> list[type]:
    """Meters, dictionaries, the choices of flags, configurations (also of plugins), and what stands in for a tensor.

    The last is in what one process sends to another.
    """
    from fairseq.data import Dictionary
    from fairseq.dataclass import FairseqDataclass, constants
    from fairseq.distributed.utils import _TensorPlaceholder
    from fairseq.logging import meters

    classes = [value for value in vars(constants).values() if isinstance(value, type)]
    choices = [value for value in classes if issubclass(value, enum.Enum)]
    counted = [*_subclasses(meters.Meter), meters.MetersDict]
    return [Dictionary, *counted, *choices, *_subclasses(FairseqDataclass), _TensorPlaceholder]


def _omegaconf_types() -> list[type]:
    from omegaconf import DictConfig, ListConfig, base, nodes

    return [DictConfig, ListConfig, base.Metadata, base.ContainerMetadata, *_subclasses(nodes.ValueNode)]


def _subclasses(parent: type) -> list[type]:
    return [parent, *(below for child in parent.__subclasses__() for below in _subclasses(child))]


def _numpy_types() -> dict[str, Any]:
    """NumPy's scalars and arrays, under the module names of NumPy 1 and 2."""
    core = np.core if np.__version__.startswith("1.") else np._core
    rebuild = {
        f"numpy.{package}.multiarray.{name}": getattr(core.multiarray, name)
        for package in ("core", "_core")
        for name in ("scalar", "_reconstruct")
    }
    dtypes = {type(np.dtype(code)) for code in np.typecodes["All"]}
    return {_name(type_): type_ for type_ in [np.dtype, np.ndarray, *dtypes]} | rebuild


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
