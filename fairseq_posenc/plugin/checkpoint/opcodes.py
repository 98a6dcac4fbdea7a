"""Rejects small pickles that would take unlimited time or memory to read, by their opcodes, before anything is built."""

import pickletools
import sys
from dataclasses import dataclass
from typing import IO, Any

from .stand_ins import InvalidContent

MAX_REPEATED = 10**8
"""Values and characters that a pickle may repeat by references; fairseq's repeat some thousands."""

MAX_OTHER_KEYS = 10**4
"""Values in all keys of a pickle that are neither texts nor small integers; fairseq's checkpoints have no such keys.

Python hashes texts with a secret of each process, and integers below :data:`HASHES` to themselves. A file can hold other values
that share one hash, and putting n of them into a dictionary or a set takes n^2 comparisons.
"""
HASHES = sys.hash_info.modulus

MUTATING = {"APPEND", "APPENDS", "SETITEM", "SETITEMS", "BUILD"}
HASHING = {"collections OrderedDict", "collections Counter", "builtins set", "builtins frozenset", "__builtin__ frozenset"}
"""Types whose arguments become keys."""


@dataclass
class _Item:
    """An object on the pickle's stack: its size, and its content if that is a text, an integer, a global's name or a tuple."""

    size: int
    content: Any = None


def require_bounded(pickled: IO[bytes]) -> None:
    """Check the next pickle of a stream, up to its end, without building what it describes.

    A tuple that contains itself twice, 40 levels deep, takes a kilobyte, and 2^40 steps to hash. So the sizes of all objects are
    counted while the opcodes assemble them, and the sizes of what references repeat and of unusual keys are limited.

    Raises:
        InvalidContent: it repeats more than :data:`MAX_REPEATED`, has keys of more than :data:`MAX_OTHER_KEYS`, or calls what
            takes long or allocates memory without limit.
        Exception: any, if it is no pickle.
    """
    stack: list[_Item] = []
    marks: list[int] = []
    memo: dict[Any, _Item] = {}
    repeated = other_keys = 0
    for operation, argument, _ in pickletools.genops(pickled):
        name, needs = operation.name, operation.stack_before
        if name == "MARK":
            marks.append(len(stack))
        elif name in ("PUT", "GET"):
            raise InvalidContent("is a pickle of an old protocol, which PyTorch does not read")
        elif name.endswith("PUT"):
            memo[argument] = stack[-1]
        elif name.endswith("GET"):
            stack.append(memo[argument])
            repeated += memo[argument].size
            if repeated > MAX_REPEATED:
                raise InvalidContent("holds a small structure that repeats itself without end")
        else:
            mark = pickletools.markobject
            begin = marks.pop() - needs.index(mark) if mark in needs else len(stack) - len(needs)
            items = stack[begin:]
            del stack[begin:]
            if name == "GLOBAL" and argument in ("builtins bytearray", "__builtin__ bytearray"):
                raise InvalidContent("builds a bytearray, which may have any size")
            if (
                name in ("REDUCE", "NEWOBJ")
                and items[0].content == "_codecs encode"
                and (items[1].content or [])[1:] != ["latin1"]  # pickle writes bytes by it; others may take quadratic time
            ):
                raise InvalidContent("uses a codec other than latin1")
            other_keys += sum(key.size for key in _keys(name, items) if not _hashes_well(key.content))
            if other_keys > MAX_OTHER_KEYS:
                raise InvalidContent("has many keys that are neither texts nor small integers, which may all have the same hash")
            size = sum(item.size for item in items)
            if name in MUTATING:
                items[0].size = size
                stack.append(items[0])
            elif operation.stack_after:
                content = [item.content for item in items] if name.startswith("TUPLE") else argument
                stack.append(_Item(1 + size + (len(argument) if isinstance(argument, (str, bytes)) else 0), content))


def _keys(operation: str, items: list[_Item]) -> list[_Item]:
    """Return what an operation puts into dictionaries and sets."""
    if operation in ("REDUCE", "NEWOBJ") and items[0].content in HASHING:
        return items[1:]
    return items[1::2] if operation.startswith("SETITEM") else []


def _hashes_well(key: Any) -> bool:
    return isinstance(key, (str, bytes)) or (isinstance(key, int) and abs(key) < HASHES)
