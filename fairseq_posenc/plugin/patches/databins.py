"""Data-bins: names that NumPy has removed, and files that are missing, damaged or of another vocabulary."""

import os
import struct
import types
from pathlib import Path
from typing import Any

import numpy as np

from ...base.errors import InputError
from ...base.files import INDEX_HEADER, INDEX_MAGIC, INDEX_VERSION, require_regular
from ...base.patching import ModuleProxy, wrap
from ...text import vocabulary

CHECKED_TOGETHER = 1 << 20
"""Ids of a .bin file, or items of an .idx file, that are in memory at once."""
ADVICE = "Prepare the data again, or copy both files again."


def numpy_names() -> None:
    """Supply ``np.int``, ``np.float`` and ``np.compat.long``, removed by NumPy 1.24 and 2.0, to the modules that use them.

    Can be removed when fairseq uses ``int`` and ``float``.
    """
    from fairseq.data import data_utils, language_pair_dataset, token_block_dataset
    from fairseq.modules import dynamic_crf_layer

    view = ModuleProxy(np, int=int, float=float, compat=types.SimpleNamespace(long=int))
    for module in (data_utils, language_pair_dataset, token_block_dataset, dynamic_crf_layer):
        module.np = view


def explain_dictionaries() -> None:
    """Report a dict.txt that is missing or cannot be read by its name, with what to do.

    fairseq raises a FileNotFoundError without advice, and errors about the encoding and duplicate symbols that name no file. Can
    be removed when fairseq reports them.
    """
    from fairseq.data import Dictionary

    @wrap(Dictionary, "add_from_file")
    def explained(add_from_file, self, f):
        return vocabulary.add_from_file(self, Path(f)) if isinstance(f, str) else add_from_file(self, f)


def refuse_damaged_data() -> None:
    """Compare a memory-mapped .bin file with its .idx file and all of its ids with the dictionary when it is opened.

    fairseq fails hours later, at the first item that is missing, with "buffer is smaller than requested size"; an id that the
    dictionary lacks is an IndexError, and on a GPU "device-side assert triggered". Fractions are cut off without a word. Can be
    removed when fairseq compares them.
    """
    from fairseq.data import indexed_dataset

    for name in ("index_file_path", "data_file_path"):

        @wrap(indexed_dataset, name)
        def path_of_file(path_of, prefix):
            if os.path.exists(path := path_of(prefix)):
                require_regular(path)
            return path

    @wrap(indexed_dataset, "make_dataset")
    def checked(make_dataset, path, impl, fix_lua_indexing=False, dictionary=None):
        if not indexed_dataset.MMapIndexedDataset.exists(path) or (kind := indexed_dataset.infer_dataset_impl(path)) == "raw":
            return make_dataset(path, impl, fix_lua_indexing, dictionary)
        if kind is None:
            raise InputError(f"{path}.idx is no index of fairseq's: prepare the data again, or copy the file again")
        if impl != kind and (impl, kind) != ("lazy", "cached"):
            raise InputError(f"{path}.idx is of --dataset-impl {kind}, not {impl}: correct the flag, or leave it out")
        if kind == "mmap":
            _require_ids(path, _require_intact(path), dictionary)
        try:
            return make_dataset(path, impl, fix_lua_indexing, dictionary)
        except (AssertionError, ValueError, LookupError, AttributeError, struct.error) as error:
            raise InputError(
                f"{path}.idx and .bin cannot be read ({type(error).__name__}: {error}): prepare the data again"
            ) from error


def _require_intact(prefix: str) -> np.dtype:
    """Check that the items follow one another and fill both files; returns the type of the ids."""
    from fairseq.data.indexed_dataset import _code_to_dtype

    index = f"{prefix}.idx"
    with open(index, "rb") as file:
        beginning = file.read(INDEX_HEADER.size)
    magic, version, code, items = INDEX_HEADER.unpack(beginning.ljust(INDEX_HEADER.size, b"\0"))
    if len(beginning) == INDEX_HEADER.size and (version, magic) != (INDEX_VERSION, INDEX_MAGIC):
        raise InputError(f"{index} has version {version} of its format, and fairseq reads version {INDEX_VERSION}. {ADVICE}")
    dtype = np.dtype(_code_to_dtype.get(code, "V"))
    if not dtype.itemsize or os.path.getsize(index) != INDEX_HEADER.size + 12 * items:
        raise InputError(f"{index} is damaged, or of another program: its length does not fit its number of items. {ADVICE}")
    if dtype.kind not in "iu":
        raise InputError(f"{index} describes ids of the type {dtype}, and ids are whole numbers. {ADVICE}")
    if not items:
        raise InputError(f"{prefix}.bin and .idx hold nothing: prepare them from some text, or remove them")
    sizes = np.memmap(index, "<i4", "r", INDEX_HEADER.size, (items,))
    offsets = np.memmap(index, "<i8", "r", INDEX_HEADER.size + 4 * items, (items,))
    end, intact = 0, True  # of the items so far, in the .bin file
    for start in range(0, items, CHECKED_TOGETHER):
        lengths = sizes[start : start + CHECKED_TOGETHER].astype(np.int64) * dtype.itemsize
        ends = end + np.cumsum(lengths)
        intact &= bool((lengths >= 0).all() and (offsets[start : start + CHECKED_TOGETHER] == ends - lengths).all())
        end = int(ends[-1])
    if not intact:
        raise InputError(f"{index} is damaged: its items do not follow one another. {ADVICE}")
    if end != (held := os.path.getsize(f"{prefix}.bin")):
        raise InputError(f"{prefix}.bin has {held:,} bytes, and its .idx describes {end:,}: they do not match. {ADVICE}")
    return dtype


def _require_ids(prefix: str, dtype: np.dtype, dictionary: Any) -> None:
    """Check that all ids are those of a dictionary, if there is one."""
    symbols = np.inf if dictionary is None else len(dictionary)
    with open(f"{prefix}.bin", "rb") as file:
        while len(ids := np.fromfile(file, dtype, CHECKED_TOGETHER)):
            for number in (int(ids.max()), int(ids.min())):
                if number < 0:
                    raise InputError(f"{prefix}.bin has the id {number:,}, and ids begin at 0. {ADVICE}")
                if number >= symbols:
                    raise InputError(
                        f"{prefix}.bin has the id {number:,}, and its dictionary has {symbols:,} symbols: it is damaged, or "
                        "dict.txt is from another vocabulary. Prepare the data again, or copy dict.txt again from where it was "
                        "prepared."
                    )


PATCHES = (numpy_names, explain_dictionaries, refuse_damaged_data)
