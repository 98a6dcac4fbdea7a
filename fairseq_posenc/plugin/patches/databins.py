"""Data-bins: names that NumPy has removed, and files that are missing, damaged or of another vocabulary."""

import os
import struct
import types
from pathlib import Path

import numpy as np
from fairseq.data import Dictionary, data_utils, indexed_dataset, language_pair_dataset, token_block_dataset
from fairseq.modules import dynamic_crf_layer

from ...base.errors import InputError
from ...base.files import require_regular
from ...base.patching import ModuleProxy, wrap
from ...text import vocabulary
from ...text.data.databin import read


def numpy_names() -> None:
    """Supply ``np.int``, ``np.float`` and ``np.compat.long``, removed by NumPy 1.24 and 2.0, to the modules that use them.

    Can be removed when fairseq uses ``int`` and ``float``.
    """
    view = ModuleProxy(np, int=int, float=float, compat=types.SimpleNamespace(long=int))
    for module in (data_utils, language_pair_dataset, token_block_dataset, dynamic_crf_layer):
        module.np = view


def explain_dictionaries() -> None:
    """Report a dict.txt that is missing or cannot be read by its name, with what to do.

    fairseq raises a FileNotFoundError without advice, and errors about the encoding and duplicate symbols that name no file. Can
    be removed when fairseq reports them.
    """

    @wrap(Dictionary, "add_from_file")
    def explained(add_from_file, self, f):
        return vocabulary.add_from_file(self, Path(f)) if isinstance(f, str) else add_from_file(self, f)


def refuse_damaged_data() -> None:
    """Compare a memory-mapped .bin file with its .idx file and all of its ids with the dictionary when it is opened.

    fairseq fails hours later, at the first item that is missing, with "buffer is smaller than requested size"; an id that the
    dictionary lacks is an IndexError, and on a GPU "device-side assert triggered". Fractions are cut off without a word. Can be
    removed when fairseq compares them.
    """
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
            read(path, dictionary)
        try:
            return make_dataset(path, impl, fix_lua_indexing, dictionary)
        except (AssertionError, ValueError, LookupError, AttributeError, struct.error) as error:
            raise InputError(
                f"{path}.idx and .bin cannot be read ({type(error).__name__}: {error}): prepare the data again"
            ) from error
