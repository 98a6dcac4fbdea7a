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


def explain_dictionaries() -> None:
    """Name a dict.txt that is missing or cannot be read, and say what to do.

    fairseq passes on a bare FileNotFoundError, raises Exception and RuntimeError about the encoding and about symbols that
    stand twice, and names no file. Can go when fairseq says it.
    """
    from fairseq.data import Dictionary

    add_from_file = Dictionary.add_from_file

    @functools.wraps(add_from_file)
    def explained(self, f):
        if not isinstance(f, str):
            return add_from_file(self, f)
        try:
            return add_from_file(self, f)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"There is no dictionary {f}. A fairseq data directory (a data-bin) holds its dictionary beside the .bin "
                "and .idx files: check the DATA argument, or make a data-bin from text with fairseq-posenc prepare (or "
                "fairseq-preprocess)."
            ) from error
        except OSError:
            raise
        except Exception as error:  # fairseq raises nothing narrower
            reason = "it is not UTF-8" if "Incorrect encoding" in str(error) else " ".join(str(error).split(". ")[0].split())
            raise ValueError(
                f"{f} cannot be read as a dictionary: {reason}. Each line holds a symbol, a space and a count, and each symbol "
                "stands there once: copy the file again from where the data was prepared."
            ) from error

    Dictionary.add_from_file = explained


PATCHES = (numpy_names, explain_dictionaries)
