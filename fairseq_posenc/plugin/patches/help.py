"""The models' flags in ``fairseq-train --help``, and the error for a misspelt or missing ``--arch``.

fairseq prints its help before it adds the flags of the chosen architecture. With ``--help``, they are added at once, in groups.
"""

import argparse
import sys
from collections.abc import Callable

from fairseq import options

from ...base.errors import InputError
from ...core.schemes import option_fields
from ..options.architectures import require_architecture
from ..options.option_set import ENCODER_OPTIONS, LANGUAGE_MODEL_OPTIONS, POSITIONS, TRANSLATION_OPTIONS
from ..processes.exits import refuse
from .patching import wrap

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


def architecture(name: str) -> str:
    """Return ``--arch`` unchanged, or end the command if there is no such architecture."""
    try:
        require_architecture(name)
    except InputError as error:
        refuse(str(error))
    return name


@wrap(options, "add_model_args")
def add_model_args(add: Callable, parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add ``--arch`` to a parser, and with ``--help`` the models' flags."""
    group = add(parser)
    arch = next(action for action in group._group_actions if action.dest == "arch")
    arch.type, arch.required = architecture, True  # without it, fairseq raises a RuntimeError that has no message
    if {"-h", "--help"} & set(sys.argv[1:]):
        add_groups(parser)
    return group
