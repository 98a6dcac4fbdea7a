"""Data directories and what reads them."""

import functools
import types


def numpy_names() -> None:
    """Supply ``np.int``, ``np.float`` and ``np.compat.long``, removed by NumPy 1.24 and 2.0, to the modules that use them.

    Without the last, ``--sample-break-mode eos`` and ``translation`` do not run. Can go when fairseq says ``int``.
    """
    import numpy as np
    from fairseq.data import data_utils, language_pair_dataset, token_block_dataset
    from fairseq.modules import dynamic_crf_layer

    from fairseq_posenc.compat.view import View

    view = View(np, int=int, float=float, compat=types.SimpleNamespace(long=int))
    for module in (data_utils, language_pair_dataset, token_block_dataset, dynamic_crf_layer):
        module.np = view


def name_missing_dictionary() -> None:
    """Say what a missing dict.txt means, where fairseq passes on a bare FileNotFoundError. Can go when fairseq says it."""
    from fairseq.data import Dictionary

    add_from_file = Dictionary.add_from_file

    @functools.wraps(add_from_file)
    def explained(self, f):
        try:
            add_from_file(self, f)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"There is no dictionary {f}. A fairseq data directory (a data-bin) holds its dictionary beside the .bin "
                "and .idx files: check the DATA argument, or make a data-bin from text with fairseq-posenc prepare (or "
                "fairseq-preprocess)."
            ) from error

    Dictionary.add_from_file = explained


PATCHES = (numpy_names, name_missing_dictionary)
