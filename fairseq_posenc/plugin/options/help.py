"""The models' flags in ``fairseq-train --help``.

fairseq prints its help before it adds the flags of the chosen architecture. With ``--help``, they are added at once, in groups.
"""

import argparse

from ...core.schemes import option_fields
from .option_set import ENCODER_OPTIONS, LANGUAGE_MODEL_OPTIONS, POSITIONS, TRANSLATION_OPTIONS

GROUPS = {
    "Positional encoding (architectures of fairseq_posenc)": ENCODER_OPTIONS,
    "Encoder (architectures of fairseq_posenc; defaults of RoBERTa's base size)": ENCODER_OPTIONS,
    "Encoder and decoder (transformer_*, with other defaults for what is above, too)": TRANSLATION_OPTIONS,
    "Decoder alone (transformer_lm_*)": LANGUAGE_MODEL_OPTIONS,
}


def add_groups(parser: argparse.ArgumentParser) -> None:
    """Add the models' flags, grouped, each once and with its default in the help."""
    positional, shown = {*POSITIONS, *option_fields()}, set[str]()
    for number, (title, kind) in enumerate(GROUPS.items()):
        group = parser.add_argument_group(title)
        for name, action in kind.actions().items():
            if name in shown or (number == 0 and name not in positional):
                continue
            shown.add(name)
            if name != "positions" and kind.defaults.get(name) is not None:  # the architecture has the positions
                action.help = f"{action.help} (default: {kind.defaults[name]})"
            group._add_action(action)
