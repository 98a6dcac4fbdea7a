"""The flags of fairseq's programs, and fairseq-generate."""

import argparse
import sys
from typing import Any

from hydra.errors import ConfigCompositionException

from .exits import refuse
from .view import wrap


def generate_through_call_main() -> None:
    """Start fairseq-generate through ``call_main``, as fairseq starts its other programs.

    Can be removed when fairseq_cli.generate uses ``call_main``.
    """
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from fairseq.distributed import utils

    @wrap(options, "get_generation_parser")
    def get_parser_and_divert(get_parser: Any, *args: Any, **kwargs: Any) -> argparse.ArgumentParser:
        program = sys._getframe(2).f_globals  # fairseq_cli.generate, which is called __main__ where it is run
        main = program.get("main")

        def start(namespace: argparse.Namespace) -> None:
            program["main"] = main
            utils.call_main(convert_namespace_to_omegaconf(namespace), main)

        if getattr(program.get("__spec__"), "name", None) == "fairseq_cli.generate":
            program["main"] = start
        return get_parser(*args, **kwargs)


def flags_that_are_missing() -> None:
    """Report a missing flag in one sentence, since fairseq fails when Hydra merges its None.

    Can be removed when fairseq declares which flags are required.
    """
    from fairseq.dataclass import utils

    @wrap(utils, "convert_namespace_to_omegaconf")
    def convert_or_refuse(convert: Any, args: argparse.Namespace) -> Any:
        try:
            return convert(args)
        except ConfigCompositionException as error:
            refuse(f"{error}: give it a value")


PATCHES = (generate_through_call_main, flags_that_are_missing)
