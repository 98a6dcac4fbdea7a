"""Reads checkpoints without running code from them.

``torch.load(weights_only=True)`` builds tensors, plain containers and types that are allowed by name. fairseq's checkpoints hold
a few more types, listed here, which only carry data. Anything else is refused, and so is invalid data (:mod:`.stand_ins`).
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
from torch.serialization import get_safe_globals, safe_globals

from ...base.errors import InputError
from ...base.files import require_regular
from . import stand_ins


class Unreadable(InputError, RuntimeError):
    """A file that is not a checkpoint, or a damaged one; ``torch.load`` raises RuntimeError for it."""


class Unsafe(InputError, pickle.UnpicklingError):
    """A file that names a type or function which could run code; ``torch.load`` raises UnpicklingError for it."""


def load(file: Any, map_location: Any = "cpu", **options: Any) -> Any:
    """Call ``torch.load`` with ``weights_only=True``, which never runs code from the file, in any release of PyTorch.

    The configuration of a checkpoint (``cfg`` or ``args``) is text: nothing is substituted for ``${env:NAME}`` in it.

    Raises:
        Unsafe: the file names a type that is neither built in nor one of :func:`allowed_types`, or holds invalid data.
        Unreadable: it is truncated or not a checkpoint.
        OSError: the file cannot be opened.
    """
    if isinstance(file, (str, os.PathLike)):
        require_regular(file)
        with open(file, "rb") as opened:
            return load(opened, map_location, **options)
    name = getattr(file, "name", "data from another process")
    try:
        return _read(file, verify=not isinstance(file, io.BytesIO), map_location=map_location, **options)
    except (MemoryError, ModuleNotFoundError):
        raise
    except stand_ins.InvalidContent as error:
        raise Unsafe(
            f"{name} {error}, unlike any checkpoint of fairseq, so nothing was loaded. It is damaged or malicious: use another."
        ) from None
    except Exception as error:  # a damaged file can raise almost any exception
        message = str(error)
        refused = refused_type(message) if isinstance(error, pickle.UnpicklingError) else None
        if refused:
            raise Unsafe(
                f"{name} contains {refused}, which is not a type that fairseq's checkpoints hold, so nothing was loaded: "
                "building it could run code from the file. If you trust the file and know that the type is plain data, allow it "
                "in Python before loading (a package given as --user-dir is a good place) with "
                f"torch.serialization.add_safe_globals([{refused}])."
            ) from None
        reason = message.partition("\n")[0].partition(". ")[0] or "it ends early"
        raise Unreadable(
            f"{name} cannot be read as a checkpoint: it is truncated, damaged or another kind of file "
            f"({type(error).__name__}: {reason}). Restore from another file, for example --restore-file with the newest other "
            ".pt file in its folder, or copy it again; to train from the start, move it away."
        ) from error


def peek(path: str | os.PathLike, verify: bool = False) -> Any:
    """Read a checkpoint as :func:`load` does, with tensors left on disk if the format allows.

    Args:
        verify: whether to compare checksums, for which the whole file is read.

    Raises:
        Exception: any, if the file is damaged or of another kind.
    """
    require_regular(path)
    with open(path, "rb") as file:
        return _read(file, verify, str(path), map_location="cpu")


def _read(file: Any, verify: bool, path: str | None = None, **options: Any) -> Any:
    """Read a file; with its path, tensors stay on disk if the format allows."""
    options = {"mmap": _is_archive(file, verify) and path is not None, **options, "weights_only": True}
    ours = allowed_types()
    names = {name for _, name in ours}
    others = {entry for entry in get_safe_globals() if (entry[1] if isinstance(entry, tuple) else _name(entry)) in names}
    hidden = safe_globals([*others.difference(ours)])
    hidden.__exit__(None, None, None)  # of two types that are allowed under one name, PyTorch takes either
    try:
        with safe_globals(ours):
            return stand_ins.resolve(torch.load(path or file, **options))
    finally:
        hidden.__enter__()


def _is_archive(file: IO[bytes], verify: bool) -> bool:
    """Return whether the file is a zip archive, and with ``verify`` check that its checksums are right.

    In the format before PyTorch 1.6, which has no checksums, pickles come first.
    """
    start = file.tell()
    is_zip = file.read(4) == b"PK\3\4"  # as PyTorch decides
    file.seek(start)
    if is_zip and verify:
        with zipfile.ZipFile(file) as archive:
            if damaged := archive.testzip():
                raise zipfile.BadZipFile(f"{damaged} does not have its checksum")
        file.seek(start)
    return is_zip


def refused_type(message: str) -> str | None:
    """Return the type that PyTorch's message names as forbidden; None if the message is about something else."""
    found = re.search(r"GLOBAL (\S+)|unrecognized function (\S+)|via `add_safe_globals`,? but got (.+)", message)
    return next(filter(None, found.groups())) if found else None


def _name(type_: Any) -> str:
    return f"{type_.__module__}.{type_.__qualname__}"


def allowed_types() -> list[Any]:
    """List the types in fairseq's checkpoints other than tensors and containers: what is built, and its name in the file.

    The listed types only store their arguments; other types have stand-ins.
    """
    paths, all_meters = (pathlib.PosixPath, pathlib.WindowsPath), []
    plain: list[Any] = [argparse.Namespace, frozenset, slice]
    if stand_ins.has_fairseq():
        from fairseq.data import Dictionary
        from fairseq.dataclass import FairseqDataclass
        from fairseq.distributed.utils import _TensorPlaceholder
        from fairseq.logging import meters

        all_meters = _subclasses(meters.Meter)
        plain += [Dictionary, *all_meters, meters.MetersDict, *_subclasses(FairseqDataclass)]
        plain.append(_TensorPlaceholder)  # in what processes send to each other
    only_named = [typing.Any, bool, complex, dict, float, int, list, set, str, tuple, type(None)]  # in OmegaConf's metadata
    named = {
        **{_name(type_): type_ for type_ in plain},
        **{_name(type_): _name(type_) for type_ in only_named},
        **{f"fairseq.meters.{type_.__name__}": type_ for type_ in all_meters},  # in old releases
        **{f"{module}.{type_.__name__}": type_ for module in ("pathlib", "pathlib._local") for type_ in paths},
        "builtins.bytes": stand_ins.empty_bytes,
        "collections.defaultdict": stand_ins.plain_dict,
        **_stand_ins(),
    }
    return [(built, name) for name, built in named.items()]


def _stand_ins() -> dict[str, Any]:
    """What is built in place of OmegaConf's containers and values, and of NumPy's numbers, under the names of NumPy 1 and 2."""
    numbers = {"scalar": stand_ins.scalar, "_reconstruct": stand_ins.Array}
    of_numpy = {
        **{f"numpy.{core}.multiarray.{name}": made for core in ("core", "_core") for name, made in numbers.items()},
        "numpy.dtype": stand_ins.DType,
        "numpy.ndarray": "numpy.ndarray",
    }
    if not stand_ins.has_fairseq():
        return of_numpy
    from omegaconf import DictConfig, ListConfig, base, nodes

    configs: dict[Any, Any] = dict.fromkeys((DictConfig, ListConfig), stand_ins.Config)
    configs |= dict.fromkeys((base.Metadata, base.ContainerMetadata), stand_ins.Metadata)
    configs |= dict.fromkeys(_subclasses(nodes.ValueNode), stand_ins.Value)
    return of_numpy | {_name(type_): stand_in for type_, stand_in in configs.items()}


def _subclasses(parent: Any) -> list[Any]:
    return [parent, *(below for child in parent.__subclasses__() for below in _subclasses(child))]
