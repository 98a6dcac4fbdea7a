"""Stand-ins for NumPy's and OmegaConf's types while a file is read.

Both accept any state from a file: NumPy may then read invalid memory, and OmegaConf looks up environment variables that a value
names. A stand-in keeps the state unchanged; :func:`resolve` checks it afterwards and makes the real object from it.
"""

import math
import re
from argparse import Namespace
from collections.abc import Callable
from enum import Enum
from functools import cached_property
from importlib import util
from pathlib import PurePath
from typing import Any

import numpy as np
from torch import Tensor

from ...base.errors import InputError

NUMBER = re.compile(r"[biufc]\d{1,2}")  # NumPy's codes for types of numbers
NAME = re.compile(r"\w[\w-]*")
INTERPOLATION = "${"
MAX_VALUES = 10**6  # of a configuration; fairseq's have some hundreds


class InvalidContent(InputError):
    """A file holds what no checkpoint of fairseq holds; the message continues a sentence that begins with the file's name."""


class StandIn:
    """An object of a file: the arguments of its constructor, and the state that it was given."""

    def __init__(self, *args: Any) -> None:
        self.args, self.state = args, None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def real(self) -> Any:
        """Return the object that the file describes; raises InvalidContent if the state does not describe one."""
        raise NotImplementedError


class DType(StandIn):
    """Stands for ``numpy.dtype``; only types of numbers become one."""

    def real(self) -> np.dtype:
        match self.args, self.state:
            case (str(code), *_), (_, "<" | ">" | "|" | "=" as order, *_) if NUMBER.fullmatch(code):
                return np.dtype(code if order == "|" else order + code)
        raise InvalidContent(f"holds NumPy data of the type {self.args[0] if self.args else None!r}, which is not a number")


class Array(StandIn):
    """Stands for ``numpy.ndarray``; only arrays of numbers whose shape fits their bytes become one."""

    def real(self) -> np.ndarray:
        match self.state:
            case (1, tuple(shape), DType() as dtype, bool(fortran), bytes(data)):
                kind = dtype.real()
                if all(type(n) is int and n >= 0 for n in shape) and math.prod(shape) * kind.itemsize == len(data):
                    return np.ndarray(shape, kind, data, order="F" if fortran else "C").copy()
        raise InvalidContent("holds a NumPy array that does not fit its own description")


def scalar(dtype: Any, data: Any) -> np.generic:
    """Return what ``numpy.core.multiarray.scalar`` makes of a number's bytes, or raise InvalidContent if they do not fit it."""
    kind = dtype.real() if isinstance(dtype, DType) else None
    if kind is None or not isinstance(data, bytes) or len(data) != kind.itemsize:
        raise InvalidContent("holds a NumPy number that does not fit its own description")
    return np.frombuffer(data, kind)[0]


class Config(StandIn):
    """``DictConfig`` and ``ListConfig``: their content as text (:func:`as_text`), so that nothing is looked up."""

    content = "_content"

    @cached_property
    def plain(self) -> Any:
        """The content as dictionaries, lists and values; raises InvalidContent if the state has none."""
        if not isinstance(self.state, dict) or self.content not in self.state:
            raise InvalidContent("holds a configuration that is damaged")
        return _change(self.state[self.content], lambda value: value.plain if isinstance(value, Config) else _real(value))

    def real(self) -> Any:
        from fairseq.dataclass.utils import omegaconf_no_object_check
        from omegaconf import OmegaConf

        plain = as_text(self.plain)
        with omegaconf_no_object_check():  # fairseq puts namespaces into configurations
            return OmegaConf.create(plain) if isinstance(plain, (dict, list)) else plain


class Value(Config):
    """A ``ValueNode``: one value of a configuration."""

    content = "_val"


class Metadata(StandIn):
    """OmegaConf's notes about a value, which are not needed."""

    def real(self) -> None:
        return None


def empty_bytes() -> bytes:
    """``bytes``, as pickle calls it."""
    return b""


def plain_dict(*_factory: Any) -> dict:
    """``collections.defaultdict``, of which fairseq's checkpoints have those that OmegaConf keeps in its metadata."""
    return {}


def resolve(value: Any) -> Any:
    """Replace the stand-ins in a file's content by real objects, in place, and return it; its configuration becomes text.

    Raises:
        InvalidContent: a stand-in's state does not describe an object of its type.
        RecursionError: the content is nested too deeply.
    """
    value = _change(value, _real)
    if isinstance(value, dict):
        for name in value.keys() & {"args", "cfg"}:
            value[name] = as_text(value[name])
        _require_names(value.get("args"))
    return value


def as_text(value: Any) -> Any:
    """Return a configuration in which ``${env:NAME}`` and the like are text, which OmegaConf would look up, here or later.

    OmegaConf has no way to quote them, so a backslash separates the two characters by which it finds them.

    Raises:
        InvalidContent: a value is of a type that options do not have, or there are too many of them, counting repetitions.
    """
    if _size(value, {}) > MAX_VALUES:
        raise InvalidContent(f"holds a configuration of more than {MAX_VALUES:,} values")
    return _change(value, _text)


def _text(leaf: Any) -> Any:
    if isinstance(leaf, (str, PurePath)):
        return str(leaf).replace(INTERPOLATION, "$\\{")
    if leaf is None or isinstance(leaf, (bool, int, float, complex, np.generic, Enum, Tensor)):
        return leaf
    if has_fairseq():
        from omegaconf import OmegaConf

        if OmegaConf.is_config(leaf):  # which a stand-in has made from text
            return leaf
    raise InvalidContent(f"holds a configuration with a value of the type {type(leaf).__name__}")


def _require_names(args: Any) -> None:
    """Reject options of old checkpoints that are no plain names: fairseq has Hydra look for a file of that name in any folder."""
    if args is None:
        return
    from fairseq.registry import REGISTRIES

    for kind in REGISTRIES:
        name = getattr(args, kind, None)
        if name is not None and not (isinstance(name, str) and NAME.fullmatch(name)):
            raise InvalidContent(f"names the {kind} {name!r}, which is not a name")


def _real(value: Any) -> Any:
    return value.real() if isinstance(value, StandIn) else value


def _change(value: Any, leaf: Callable[[Any], Any], done: dict[int, Any] | None = None) -> Any:
    """Apply ``leaf`` to every value inside dictionaries, lists, tuples and the attributes of plain objects."""
    done = {} if done is None else done
    if id(value) in done:
        return done[id(value)][0]
    if isinstance(value, tuple):
        items = tuple(_change(item, leaf, done) for item in value)
        # A tuple in which nothing changes keeps its type, such as torch.Size.
        changed: Any = value if all(new is old for new, old in zip(items, value, strict=True)) else items
    elif isinstance(value, (list, dict, *_plain_objects())):
        done[id(value)] = value, value  # before its content, which may contain it
        content = value if isinstance(value, (list, dict)) else vars(value)
        for key, item in list(enumerate(content) if isinstance(content, list) else content.items()):
            content[key] = _change(item, leaf, done)
        changed = value
    else:
        changed = leaf(value)
    done[id(value)] = changed, value  # the reference to value keeps its id from being reused
    return changed


def _size(value: Any, known: dict[int, int]) -> int:
    """Return the number of values in a configuration; more than the maximum if it contains itself."""
    if not isinstance(value, (list, tuple, dict, *_plain_objects())):
        return 1
    if id(value) not in known:
        known[id(value)] = MAX_VALUES + 1
        content = value if isinstance(value, (list, tuple)) else (value if isinstance(value, dict) else vars(value)).values()
        known[id(value)] = 1 + sum(_size(item, known) for item in content)
    return known[id(value)]


def has_fairseq() -> bool:
    """Return whether fairseq is installed; without it, no file is read that holds objects of its types or of OmegaConf's."""
    return util.find_spec("fairseq") is not None


def _plain_objects() -> tuple[type, ...]:
    if not has_fairseq():
        return (Namespace,)
    from fairseq.data import Dictionary
    from fairseq.dataclass import FairseqDataclass
    from fairseq.logging import meters

    return Namespace, Dictionary, FairseqDataclass, meters.Meter
