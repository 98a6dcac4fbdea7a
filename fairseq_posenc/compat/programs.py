"""The flags and configurations of fairseq's programs, and ``--user-dir``, ``common.user_dir`` of Hydra's configurations."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hydra.errors import ConfigCompositionException
from omegaconf import DictConfig

from ..errors import InputError
from .exits import refuse
from .patching import wrap


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


def report_what_is_missing() -> None:
    """Report a missing ``--user-dir``, flag or value in one sentence, where fairseq raises errors of Python, Hydra or OmegaConf.

    Can be removed when fairseq reports them.
    """
    from fairseq import options
    from fairseq.dataclass import initialize, utils

    places = ((options, "get_parser"), (utils, "convert_namespace_to_omegaconf"), (initialize, "add_defaults"))
    for module, name in (*places, (initialize, "hydra_init")):

        @wrap(module, name)
        def call_or_refuse(function: Any, *args: Any, **kwargs: Any) -> Any:
            with _refusing():
                return function(*args, **kwargs)


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except InputError as error:
        refuse(str(error))
    except ConfigCompositionException as error:
        refuse(f"{error}: give it a value")


def user_dir_imported_first() -> None:
    """Let a configuration have the options of what ``common.user_dir`` imports, such as those of a scheme.

    fairseq imports it once the configuration is complete, and by then has rejected them. Here it is imported before Hydra
    composes if the command line names it, and before fairseq adds the defaults if a file does. Can be removed when fairseq's
    Hydra entry point imports it first.
    """
    from fairseq.dataclass import initialize
    from hydra._internal.utils import get_args
    from hydra.core.override_parser.overrides_parser import OverridesParser

    @wrap(initialize, "hydra_init")
    def import_and_init(hydra_init: Any, *args: Any) -> None:
        for override in get_args().overrides:
            if "common.user_dir" in override:
                value = OverridesParser.create().parse_override(override).value()
                import_user_dir(None if value is None else str(value))
        hydra_init(*args)

    @wrap(initialize, "add_defaults")
    def import_and_add(add_defaults: Any, cfg: DictConfig) -> None:
        import_user_dir(cfg.common.user_dir)
        add_defaults(cfg)


def import_user_dir(path: str | None) -> None:
    """Import the package at ``path``, if any, as fairseq does for ``--user-dir``; raises InputError if there is none."""
    from fairseq import utils

    utils.import_user_module(argparse.Namespace(user_dir=path))


PATCHES = (generate_through_call_main, user_dir_imported_first, report_what_is_missing)
