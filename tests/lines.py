"""Lines of chance tokens as data-bins."""

from pathlib import Path

import numpy as np
from fairseq.data import Dictionary

from fairseq_posenc.text.data.databin import DatabinWriter

SYMBOLS = 40


def write_databin(folder: Path, **splits: list[int]) -> Path:
    """A data-bin; each split is given by the lengths of its lines, the end of the line (</s>) included."""
    folder.mkdir(parents=True, exist_ok=True)
    dictionary = Dictionary()
    for i in range(SYMBOLS):
        dictionary.add_symbol(f"w{i}")
    dictionary.save(str(folder / "dict.txt"))
    rng = np.random.default_rng(0)
    for split, lengths in splits.items():
        with DatabinWriter(folder / split, np.dtype(np.uint16), len(dictionary)) as writer:
            for length in lengths:
                line = rng.integers(dictionary.nspecial, len(dictionary), length)
                line[-1] = dictionary.eos()
                writer.add(line, np.array([length]))
            writer.finish()
    return folder
