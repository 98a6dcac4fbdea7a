"""Configurations, which Hydra 1.3 composes."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import fairseq
import hydra
from fairseq.dataclass import initialize, utils
from hydra._internal import config_loader_impl
from hydra._internal.utils import get_args
from hydra.conf import HydraConf, JobConf
from hydra.core.config_store import ConfigStore
from hydra.core.default_element import InputDefault
from omegaconf import MISSING, DictConfig, OmegaConf

from ...base.errors import suggestion
from ...base.patching import wrap
from ..processes.exits import refuse

VERSION = "1.3"
"""The ``version_base`` of Hydra, by which it chooses its defaults."""
FAIRSEQ_FOLDER = os.path.join("..", "fairseq", "config")
"""The folder by which fairseq-hydra-train's call of ``hydra.main`` is known."""


def call_hydra_1_3() -> None:
    """Let fairseq call Hydra 1.3, where it calls Hydra 1.0.

    Hydra now takes a ``version_base`` and no ``strict``, and ``# @package _group_``, with which fairseq's configurations begin,
    is its default and no longer written. It still checks a configuration against the dataclass of the same name, by which
    fairseq gives types and defaults, and warns of it. Can be removed when fairseq is for Hydra 1.3.
    """

    def compose(config_name: str, overrides: list[str], strict: bool) -> DictConfig:
        cfg = hydra.compose(config_name, overrides)
        OmegaConf.set_struct(cfg, strict)
        return cfg

    utils.compose = compose
    utils.initialize = partial(hydra.initialize, version_base=VERSION)  # no function: Hydra looks for its caller

    @wrap(hydra, "main")
    def main(main, *args: Any, **options: Any) -> Any:
        if options.get("config_path") == FAIRSEQ_FOLDER:
            options["version_base"] = VERSION
        return main(*args, **options)

    @wrap(InputDefault, "set_package_header")
    def set_package_header(set_header, default, header: str | None) -> None:
        set_header(default, None if header == "_group_" else header)

    config_loader_impl.deprecation_warning = lambda *args, **options: None  # of the matched names, the only one there


def ask_for_missing_values() -> None:
    """Report the values that a configuration leaves open, ``???``, by their names.

    Where fairseq has a default, Hydra would use it, and for a missing model fairseq goes on without one. Can be removed when
    fairseq asks for the values, and Hydra no longer merges dataclasses by the configuration's name.
    """

    @wrap(config_loader_impl.ConfigLoaderImpl, "_load_single_config")
    def load_single_config(load: Any, loader: Any, default: Any, repo: Any) -> Any:
        missing = [*_missing(repo.load_config(config_path=default.config_path).config)] if default.primary else []
        result = load(loader, default, repo)
        for key in missing:
            OmegaConf.update(result.config, key, MISSING)
        return result

    @wrap(initialize, "add_defaults")
    def require_values(add_defaults: Any, cfg: DictConfig) -> None:
        if missing := ", ".join(name for name in _missing(cfg) if not name.startswith("hydra.")):  # those Hydra fills in itself
            refuse(f"{missing} is missing: name a configuration that has it (--config-dir, --config-name), or a value")
        add_defaults(cfg)


def _missing(cfg: Any, prefix: str = "") -> Iterator[str]:
    """Iterate over the names of missing values. OmegaConf's ``missing_keys`` would look up references to other values."""
    for name in map(str, cfg if isinstance(cfg, DictConfig) else ()):
        if OmegaConf.is_missing(cfg, name):
            yield f"{prefix}{name}"
        elif not OmegaConf.is_interpolation(cfg, name):
            yield from _missing(cfg[name], f"{prefix}{name}.")


def copy_no_store() -> None:
    """Keep Hydra from copying all registered configurations for each one that it composes.

    fairseq registers hundreds, and a copy of all takes a second. Hydra copies those that it uses. Can be removed when
    ``CachingConfigRepository`` does not copy the store.
    """
    ConfigStore.__deepcopy__ = lambda store, memo: store  # type: ignore[attr-defined]


def start_programs() -> None:
    """Report a missing configuration by its name, with the names of those in its folder, and run a job in its own folder.

    fairseq registers its defaults under the name of the configuration, so that Hydra always finds one, and Hydra 1.3 stays in the
    current folder unless it is told otherwise. Can be removed when fairseq does neither.
    """

    @wrap(initialize, "hydra_init")
    def init_or_refuse(hydra_init, cfg_name: str = "config") -> None:
        args, name = get_args(), cfg_name.removesuffix(".yaml")
        folders = [*map(Path, filter(None, [args.config_dir])), Path(fairseq.__file__).with_name("config")]
        if args.config_path is None and not any((folder / f"{name}.yaml").exists() for folder in folders):
            present = sorted(path.stem for path in folders[0].glob("*.yaml"))
            refuse(f"--config-name {name}: {suggestion(name, present)}{folders[0]} has {', '.join(present) or 'none'}")
        hydra_init(cfg_name)
        store = ConfigStore.instance().store
        store(group="hydra", name="config", node=HydraConf(job=JobConf(chdir=True)), provider="hydra")
