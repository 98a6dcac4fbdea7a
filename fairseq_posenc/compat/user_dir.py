"""``--user-dir``, and ``common.user_dir`` of Hydra's configurations."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from omegaconf import DictConfig
from omegaconf.errors import MissingMandatoryValue

from ..errors import InputError
from .exits import refuse
from .view import wrap


def imported_first() -> None:
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
        with _refusing():
            for override in get_args().overrides:
                if "common.user_dir" in override:
                    value = OverridesParser.create().parse_override(override).value()
                    import_user_dir(None if value is None else str(value))
        hydra_init(*args)

    @wrap(initialize, "add_defaults")
    def import_and_add(add_defaults: Any, cfg: DictConfig) -> None:
        with _refusing():
            import_user_dir(cfg.common.user_dir)
            add_defaults(cfg)


def named_where_missing() -> None:
    """Report a missing ``--user-dir`` in one sentence, since fairseq imports it before it reads the other flags.

    Can be removed when fairseq reports it.
    """
    from fairseq import options

    @wrap(options, "get_parser")
    def get_parser_or_refuse(get_parser: Any, *args: Any, **kwargs: Any) -> argparse.ArgumentParser:
        with _refusing():
            return get_parser(*args, **kwargs)


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except InputError as error:
        refuse(str(error))
    except MissingMandatoryValue as error:
        refuse(f"{error.key} is missing: name a configuration that has it (--config-dir, --config-name), or a value")


def import_user_dir(path: str | None) -> None:
    """Import the package at ``path``, if any, as fairseq does for ``--user-dir``.

    Raises:
        InputError: there is none.
    """
    from fairseq import utils

    utils.import_user_module(argparse.Namespace(user_dir=path))


PATCHES = (imported_first, named_where_missing)
