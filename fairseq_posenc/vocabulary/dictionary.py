"""dict.txt: fairseq's dictionary of a vocabulary.

fairseq's ``Dictionary`` puts four symbols of its own first and ``masked_lm`` adds ``<mask>`` after the pieces. In a data-bin
``<mask>`` is the last line of ``dict.txt``, so that a symbol has the same id in every task:

    ======== ===============================================================================
    id       symbol
    ======== ===============================================================================
    0 .. 3   ``<s>``, ``<pad>``, ``</s>``, ``<unk>``
    4 ..     the pieces, in the order of sentencepiece or of a given dictionary
    last     ``<mask>``
    ======== ===============================================================================
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairseq.data import Dictionary

SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")
MASK = "<mask>"
EOS_ID, UNK_ID = SPECIALS.index("</s>"), SPECIALS.index("<unk>")

DICTIONARY = "dict.txt"
GIVEN_DICTIONARY = "dict.given.txt"
"""The dictionary that came with the tokenizer, under a name that fairseq does not look for."""


def load_dictionary(folder: Path) -> Dictionary:
    """Read the dictionary in a folder as ``masked_lm`` does, with ``<mask>``.

    Raises:
        InputError, OSError: the file is missing or damaged.
    """
    from fairseq.data import Dictionary

    dictionary = Dictionary.load(str(folder / DICTIONARY))
    if MASK not in dictionary:  # else its count would change
        dictionary.add_symbol(MASK)
    return dictionary
