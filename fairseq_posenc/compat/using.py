"""fairseq's programs that use a trained model, and how they end where their input cannot be used."""

import argparse
import functools
import sys
from collections.abc import Callable
from typing import Any

from fairseq_posenc.compat.exits import refuse
from fairseq_posenc.errors import InputError, sentence


def use(main: Callable, cfg: Any, **kwargs: Any) -> None:
    """``main`` of such a program; an error that the user can mend is shown as a sentence, with status 2."""
    try:
        main(cfg, **kwargs)
    except Exception as error:
        # Where a text, a data-bin or a flag cannot be used, fairseq raises Exception itself, as nothing else does.
        if not isinstance(error, (InputError, OSError)) and type(error) is not Exception:
            raise
        refuse(sentence(error))


def generate_through_call_main() -> None:
    """Start fairseq-generate through ``call_main``, where all other programs are checked and their errors shown.

    It alone calls its ``main`` itself, after it has asked for its parser. Can go when fairseq_cli.generate uses ``call_main``.
    """
    from fairseq import options

    get_parser = options.get_generation_parser

    @functools.wraps(get_parser)
    def get_parser_and_divert(*args: Any, **kwargs: Any) -> argparse.ArgumentParser:
        program = sys._getframe(1).f_globals  # fairseq_cli.generate, which may be called __main__
        main = program.get("main")
        if "cli_main" in program and getattr(main, "__globals__", None) is program:
            program["main"] = functools.partial(_call_main_once, program, main)
        return get_parser(*args, **kwargs)

    options.get_generation_parser = get_parser_and_divert


def _call_main_once(program: dict[str, Any], main: Callable, args: argparse.Namespace) -> None:
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from fairseq.distributed import utils

    program["main"] = main
    utils.call_main(convert_namespace_to_omegaconf(args), main)


PATCHES = (generate_through_call_main,)
