"""``fairseq-train --help`` with the models' flags, and the error for a misspelt or missing ``--arch``.

fairseq prints its help while it parses for the first time, before it adds the flags of the chosen architecture, so that
they never show. If help is asked for, they are added at once, in two groups. For an unknown architecture it prints all 300
that exist.
"""

from __future__ import annotations

import argparse
import sys

from fairseq import options

from ..compat.exits import refuse
from ..errors import InputError
from ..schemes import option_fields
from .architectures import require_architecture
from .config import ENCODER_OPTIONS, LANGUAGE_MODEL_OPTIONS, POSITIONS, TRANSLATION_OPTIONS

GROUPS = {
    "Positional encoding (architectures of fairseq_posenc)": ENCODER_OPTIONS,
    "Encoder (architectures of fairseq_posenc; defaults of RoBERTa's base size)": ENCODER_OPTIONS,
    "Encoder and decoder (transformer_*, with other defaults for what is above, too)": TRANSLATION_OPTIONS,
    "Decoder alone (transformer_lm_*)": LANGUAGE_MODEL_OPTIONS,
}


def add_groups(parser: argparse.ArgumentParser) -> None:
    """Add the models' flags, grouped, each with its default in the help; a flag of several kinds of models once."""
    positional, shown = {*POSITIONS, *option_fields()}, set[str]()
    for number, (title, kind) in enumerate(GROUPS.items()):
        group = parser.add_argument_group(title)
        for name, action in kind.actions().items():
            if name in shown or (number == 0 and name not in positional):
                continue
            shown.add(name)
            if name != "positions" and kind.defaults.get(name) is not None:  # which the architecture has
                action.help = f"{action.help} (default: {kind.defaults[name]})"
            group._add_action(action)


def architecture(name: str) -> str:
    """The type of ``--arch``: ends the command where there is no such architecture."""
    try:
        require_architecture(name)
    except InputError as error:
        refuse(str(error))
    return name


def show_in_help() -> None:
    """Let ``--help`` of every fairseq command that takes ``--arch`` show the groups, and ``--arch`` the nearest names."""
    original = options.add_model_args
    if getattr(original, "shows_groups", False):
        return

    def add_model_args(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
        group = original(parser)
        arch = next(action for action in group._group_actions if action.dest == "arch")
        arch.type, arch.required = architecture, True  # fairseq ends in a RuntimeError without a word where it is missing
        if {"-h", "--help"} & set(sys.argv[1:]):
            add_groups(parser)
        return group

    add_model_args.shows_groups = True  # type: ignore[attr-defined]
    options.add_model_args = add_model_args
