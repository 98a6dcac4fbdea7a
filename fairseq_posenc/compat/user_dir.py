"""``--user-dir``, and ``common.user_dir`` of Hydra's configurations."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from omegaconf import DictConfig
from omegaconf.errors import MissingMandatoryValue

from fairseq_posenc.compat.exits import refuse
from fairseq_posenc.compat.view import wrap
from fairseq_posenc.errors import InputError


def imported_first() -> None:
    """Let a configuration have the options of what is imported by ``common.user_dir``, such as those of a scheme.

    fairseq imports it when the configuration is complete, and by then has refused them. Here it is imported before Hydra
    composes where the command line names it, and where a file does, before fairseq adds the defaults. Can be removed when
    fairseq's Hydra entry point imports it itself.
    """
    from fairseq.dataclass import initialize

    @wrap(initialize, "hydra_init")
    def import_and_init(hydra_init: Any, *args: Any) -> None:
        with _refusing():
            _import_overridden()
        hydra_init(*args)

    @wrap(initialize, "add_defaults")
    def import_and_add(add_defaults: Any, cfg: DictConfig) -> None:
        with _refusing():
            import_user_dir(cfg.common.user_dir)
            add_defaults(cfg)


def named_where_missing() -> None:
    """Report a missing ``--user-dir``, where fairseq raises FileNotFoundError with a bare path before it reads flags.

    Can be removed when fairseq reports it.
    """
    from fairseq import options

    @wrap(options, "get_parser")
    def get_parser_or_refuse(get_parser: Any, *args: Any, **kwargs: Any) -> argparse.ArgumentParser:
        with _refusing(), _missing_named():
            return get_parser(*args, **kwargs)


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except InputError as error:
        refuse(str(error))
    except MissingMandatoryValue as error:
        refuse(f"{error.key} is missing: name a configuration that has it (--config-dir, --config-name), or a value")


@contextmanager
def _missing_named() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        if error.strerror:  # it is of what the package opens
            raise
        raise InputError(f"--user-dir {error}: there is no such folder") from error


def _import_overridden() -> None:
    from hydra._internal.utils import get_args
    from hydra.core.override_parser.overrides_parser import OverridesParser

    for text in get_args().overrides:
        if "common.user_dir" in text:
            import_user_dir(OverridesParser.create().parse_override(text).value())


def import_user_dir(path: str | None) -> None:
    """Import the package at ``path``, if any, as fairseq does for ``--user-dir``.

    Raises:
        InputError: there is none.
    """
    from fairseq import utils

    with _missing_named():
        utils.import_user_module(argparse.Namespace(user_dir=path))


PATCHES = (imported_first, named_where_missing)
