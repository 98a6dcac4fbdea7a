"""``--user-dir``, and ``common.user_dir`` of Hydra's configurations."""

import argparse
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from omegaconf import DictConfig

from fairseq_posenc.compat.exits import refuse
from fairseq_posenc.errors import InputError


def imported_first() -> None:
    """Let a configuration have the options of what is imported by ``common.user_dir``, such as those of a scheme.

    fairseq imports it when the configuration is complete, and by then has refused them. Here it is imported before Hydra
    composes where the command line names it, and where a file does, before fairseq adds the defaults. Can go when fairseq's
    Hydra entry point imports it itself.
    """
    from fairseq.dataclass import initialize

    initialize.hydra_init = _after(_import_overridden, initialize.hydra_init)
    initialize.add_defaults = _after(_import_configured, initialize.add_defaults)


def named_where_missing() -> None:
    """Say that there is no such ``--user-dir``, where fairseq raises FileNotFoundError with a bare path before it reads flags.

    Can go when fairseq says it.
    """
    from fairseq import options

    get_parser = options.get_parser

    @functools.wraps(get_parser)
    def get_parser_or_refuse(*args, **kwargs):
        with _refusing(), _missing_named():
            return get_parser(*args, **kwargs)

    options.get_parser = get_parser_or_refuse


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except InputError as error:
        refuse(str(error))


@contextmanager
def _missing_named() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        if error.strerror:  # it is of what the package opens
            raise
        raise InputError(f"--user-dir {error}: there is no such folder") from error


def _after(first: Callable[..., None], then: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(then)
    def both(*args, **kwargs):
        with _refusing():
            first(*args, **kwargs)
        return then(*args, **kwargs)

    return both


def _import_overridden(*_) -> None:
    from hydra._internal.utils import get_args
    from hydra.core.override_parser.overrides_parser import OverridesParser

    for text in get_args().overrides:
        if "common.user_dir" in text:
            import_user_dir(OverridesParser.create().parse_override(text).value())


def _import_configured(cfg: DictConfig) -> None:
    import_user_dir(cfg.common.user_dir)


def import_user_dir(path: str | None) -> None:
    """Import the package at ``path``, if any, as fairseq does for ``--user-dir``.

    Raises:
        InputError: there is none.
    """
    from fairseq.utils import import_user_module

    with _missing_named():
        import_user_module(argparse.Namespace(user_dir=path))


PATCHES = (imported_first, named_where_missing)
